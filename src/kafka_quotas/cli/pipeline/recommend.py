"""`kafka-quotas pipeline recommend`: which quotas to set, and why."""

import sys
from functools import partial
from pathlib import Path

from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import option, option_group
from kafka_quotas.cli.options.stores import ListingView
from kafka_quotas.cli.options.windows import WindowOptions
from kafka_quotas.cli.output.render import TABLE_VIEW, print_listing, write
from kafka_quotas.cli.pipeline.options import AdviceOptions, Data, EngineOptions
from kafka_quotas.cli.pipeline.progress import job_watcher, show_stage
from kafka_quotas.cli.pipeline.recommend_view import advice_listing, demand_listing
from kafka_quotas.commands.pipeline.recommend import recommend as run_recommend
from kafka_quotas.pipeline.engine.choice import require_libraries
from kafka_quotas.pipeline.recommend.findings import warnings


@option_group(OUTPUT_HEADING)
class AdviceOutputOptions:
    """The options about what becomes of a recommendation."""

    explain: str | None = option(
        "--explain NAME",
        help="Show what one client did at each broker and what each limit would have done: a user, a client-id, or "
        "USER/CLIENT-ID, as --default-of says.",
    )
    file: Path | None = option("--file FILE", help="Write the quotas there, as diff and apply take them.")
    out: str | None = option(
        "--out DIR", rich_help_panel=OUTPUT_HEADING, help="Write the Delta table recommendation there, a folder or URL."
    )


def recommend(
    *,
    data: Data,
    advice: AdviceOptions,
    wanted: AdviceOutputOptions,
    windows: WindowOptions,
    engine: EngineOptions,
    output: ListingView = TABLE_VIEW,
) -> None:
    """Recommend a default for each quota type, and quotas of their own for the few clients who need more.

    Limits are tried by exact replay: the default is the smallest that holds back no more clients, for no more of their
    time, than is tolerated. Every value is per broker, from each client's busiest one. --file writes what apply reads.
    """
    require_libraries()
    request = advice.request(
        engine.events(data), windows, file=wanted.file, tables=wanted.out, explained=wanted.explain
    )
    with job_watcher() as watcher:
        result = run_recommend(request, watcher, step=partial(show_stage, watcher))
    if wanted.explain is None:
        print_listing(advice_listing(result), output)
    else:
        print_listing(demand_listing(result, wanted.explain), output)
    for line in warnings(result.recommendation, result.events):
        write(line, sys.stderr)
    if request.file is not None:
        write(f"note: the quotas are in {request.file}; next: kafka-quotas diff {request.file}", sys.stderr)
    if request.tables is not None:
        write(f"note: the table recommendation is in {request.tables}", sys.stderr)
