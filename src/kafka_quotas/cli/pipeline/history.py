"""`kafka-quotas pipeline history`, `compact` and `convert`: the data folder itself."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import Without
from kafka_quotas.cli.options.stores import ListingView
from kafka_quotas.cli.output.render import TABLE_VIEW, Listing, Table, columns, print_listing, write
from kafka_quotas.cli.pipeline.options import Data, EngineOptions, StoreProperties
from kafka_quotas.cli.pipeline.progress import job_progress, job_watcher
from kafka_quotas.commands.pipeline.history import compact as run_compact
from kafka_quotas.commands.pipeline.history import convert as run_convert
from kafka_quotas.commands.pipeline.history import history as read_history
from kafka_quotas.core.clock import format_instant
from kafka_quotas.pipeline.engine.progress import JobProgress

_WEEK_HOURS = 168

Old = Annotated[Path, typer.Argument(metavar="OLD", help="A data folder with _layout.json in it.")]
Out = Annotated[
    str,
    typer.Option(
        "--out", rich_help_panel=OUTPUT_HEADING, metavar="DATA", help="The folder or URL of Delta tables to write."
    ),
]
Retention = Annotated[
    int,
    typer.Option(
        "--retention-hours",
        metavar="N",
        min=0,
        help="Files that no change of the last N hours needs are deleted; older changes can't be read after that.",
    ),
]


def history(*, data: Data, store: StoreProperties, output: ListingView = TABLE_VIEW) -> None:
    """List the changes of a data folder: ingests, replacements, compactions.

    Every job takes --as-of NUMBER and then reads the folder as it was after that change.
    """
    changes = read_history(data, store.spark())
    rows = [
        [str(each.number), format_instant(each.at_ms), each.operation, f"{each.files:,}", f"{each.events:,}"]
        for each in changes
    ]
    listing = Listing(
        noun="pipeline-history",
        data={"data": data, "changes": [asdict(each) for each in changes]},
        items="changes",
        table=Table(columns=columns("change>!, at, operation, files>, events>"), rows=rows),
    )
    print_listing(listing, output)


def compact(
    *,
    data: Data,
    retention_hours: Retention = _WEEK_HOURS,
    engine: Annotated[EngineOptions, Without("as_of")],
) -> None:
    """Merge small files of a data folder, and delete files that are no longer needed.

    Rows of ingests that were killed more than a day ago are deleted too.
    """
    with job_watcher() as watcher:
        result = run_compact(engine.events(data), watcher, retention_hours=retention_hours)
    write(
        f"{result.files_before} files became {result.files_after}, {result.removed} old ones were deleted", sys.stdout
    )


def convert(*, old: Old, out: Out, store: StoreProperties) -> None:
    """Convert a data folder of the earlier form, with buckets, to Delta tables.

    The old folder stays as it is. A conversion that was killed continues when it is run again.
    """
    with job_progress() as progress:
        events = run_convert(
            old,
            out,
            store.spark(),
            done=lambda done, total: progress(JobProgress(stage="convert ingests", done=done, total=total)),
        )
    write(f"{events:,} events of {old} are in {out}", sys.stdout)
