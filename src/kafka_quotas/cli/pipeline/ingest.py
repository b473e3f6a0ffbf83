"""`kafka-quotas pipeline ingest`: logs, scrapes and samples into tables."""

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from kafka_quotas.cli.framework.option_groups import Without, option, option_group, required
from kafka_quotas.cli.options.stores import ListingView
from kafka_quotas.cli.output.listing import TABLE_VIEW, Listing, listed
from kafka_quotas.cli.output.render import print_listing, write
from kafka_quotas.cli.pipeline.options import EngineOptions, job_watcher
from kafka_quotas.core.described import document_of, documents_of
from kafka_quotas.core.errors import VerdictError
from kafka_quotas.core.model.value_format import format_count
from kafka_quotas.pipeline.engine.job import require_libraries
from kafka_quotas.pipeline.ingest.job import IngestRequest, IngestResult
from kafka_quotas.pipeline.ingest.job import ingest as run_ingest
from kafka_quotas.pipeline.ingest.plan import IngestSettings

_SHOWN_FAULTS = 10
_TITLES = {
    "files": "files",
    "unchanged": "files unchanged",
    "empty": "files empty",
    "lines": "lines",
    "events": "events",
    "metrics": "metrics",
    "client_throttle": "client_throttle",
    "quarantined": "quarantined",
    "forwarded": "forwarded requests, counted once",
    "unused": "figures that are no quota's",
    "blank": "blank lines",
}
_ALWAYS = ("files", "unchanged", "lines", "events", "quarantined")

Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE", help="Files, or folders of files, as paths or URLs, plain or compressed by gzip."),
]


@option_group("Input")
class IngestOptions:
    """The options about what is read, and where to."""

    source: list[str] | None = option(
        "--source PATTERN",
        help="Files by a pattern (a path, or a URL as s3a://logs/{broker_id}/*.gz) with *, ** and ?, and with "
        "{broker_id}, {cluster} or {time} where the path names them; may be repeated.",
    )
    replace: list[str] | None = option(
        "--replace PATTERN",
        help="Files, by a pattern as for --source, to read again in place of what was ingested from them, for "
        "example with another --timezone or a newer parser; may be repeated.",
    )
    out: str = required("--out DATA", help="The folder or URL of Delta tables; what is new is added to it.")


def ingest(
    *,
    files: Files = None,
    asked: IngestOptions,
    settings: IngestSettings,
    engine: Annotated[EngineOptions, Without("as_of")],
    output: ListingView = TABLE_VIEW,
) -> None:
    """Read request logs, metrics, client statistics and event logs into Delta tables.

    What was read before is not read again; lines that can't be read are kept in the table quarantine. The exit code
    is 1 if no line could be read.
    """
    require_libraries()
    request = IngestRequest(
        patterns=tuple(asked.source or ()),
        paths=tuple(files or ()),
        replaced=tuple(asked.replace or ()),
        target=engine.events(asked.out),
        settings=settings,
    )
    with job_watcher() as watcher:
        result = run_ingest(request, watcher)
    print_listing(_listing(result), output)
    _report_faults(result)
    counts = result.counts
    read = counts.events + counts.metrics + counts.client_throttle
    # The last line of each file may be one that is being written, which is no reason to doubt the file. A line or two
    # of any text look like a scrape's sample, so those count for the file only if they outnumber what can't be read.
    if not read and counts.quarantined > max(result.files, counts.unused):
        lines = format_count(counts.quarantined, "line", separator=",")
        raise VerdictError(
            f"nothing was read: {lines} went into the table quarantine",
            hint="is it the right file? --format says what files are, and --replace PATTERN reads them anew",
        )


def _listing(result: IngestResult) -> Listing:
    figures = {"files": result.files, "unchanged": result.unchanged, "empty": result.empty, **asdict(result.counts)}
    rows = [(title, figures[name]) for name, title in _TITLES.items() if figures[name] or name in _ALWAYS]
    where = f"change {result.number} of {result.out}" if result.number else f"nothing new for {result.out}"
    return listed(
        "pipeline-ingest",
        {**document_of(result), "faults": documents_of(result.faults)},
        "what, count>",
        rows,
        caption=where,
    )


def _report_faults(result: IngestResult) -> None:
    for fault in result.faults[:_SHOWN_FAULTS]:
        lines = f"{fault.lines} lines" if fault.lines > 1 else "1 line"
        write(f"quarantined: {fault.src_file}:{fault.first_line_no}: {fault.reason} ({lines})", sys.stderr)
    if result.unknown:
        count = format_count(len(result.unknown), "file")
        write(f"note: {count} of no known form left out, such as {result.unknown[0]}", sys.stderr)
    if result.read_otherwise:
        write(
            f"note: {len(result.read_otherwise)} files ({result.read_otherwise[0]}) were read before with "
            "another --timezone or by another parser; --replace PATTERN reads them anew",
            sys.stderr,
        )
    if len(result.faults) > _SHOWN_FAULTS:
        write(f"note: {len(result.faults) - _SHOWN_FAULTS} more reasons are in the table quarantine", sys.stderr)
