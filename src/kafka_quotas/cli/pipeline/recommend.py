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
from kafka_quotas.pipeline.engine.choice import require_libraries
from kafka_quotas.pipeline.engine.runner import open_events
from kafka_quotas.pipeline.recommend.findings import warnings
from kafka_quotas.stores.files.atomic_write import save_text


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
    from kafka_quotas.pipeline.recommend import job  # noqa: PLC0415 - loads the kernels
    from kafka_quotas.pipeline.recommend.quota_file import recommendation_table  # noqa: PLC0415
    from kafka_quotas.pipeline.tables.arrow import write_tables  # noqa: PLC0415

    plan = advice.plan(windows, explained=wanted.explain)
    with job_watcher() as watcher, open_events(engine.events(data), watcher) as events:
        if wanted.file is not None and events.recorded.count:
            plan.require_enough(events.recorded.seconds)
        found = job.recommend(events, plan, step=partial(show_stage, watcher))
    if wanted.file is not None:
        save_text(wanted.file, [job.recommended_file(found)])
    if wanted.out is not None:
        table = recommendation_table(found.cluster, found.advices, plan.scope)
        write_tables(wanted.out, {"recommendation": table})
    print_listing(advice_listing(found) if wanted.explain is None else demand_listing(found, wanted.explain), output)
    for line in warnings(found):
        write(line, sys.stderr)
    if wanted.file is not None:
        write(f"note: the quotas are in {wanted.file}; next: kafka-quotas diff {wanted.file}", sys.stderr)
    if wanted.out is not None:
        write(f"note: the table recommendation is in {wanted.out}", sys.stderr)
