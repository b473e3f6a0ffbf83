"""`kafka-quotas pipeline`: the table of the pipeline's jobs."""

import typer

from kafka_quotas.cli.framework.lazy_group import LazyCommand, LazyGroup

JOBS: tuple[LazyCommand, ...] = (
    LazyCommand(
        name="ingest",
        target="kafka_quotas.cli.pipeline.ingest:ingest",
        help="Read logs, metrics and samples into tables.",
    ),
    LazyCommand(
        name="usage",
        target="kafka_quotas.cli.pipeline.usage:usage",
        help="Show who used how much of which quota.",
    ),
    LazyCommand(
        name="replay",
        target="kafka_quotas.cli.pipeline.replay:replay",
        help="Try proposed quotas on recorded traffic.",
    ),
    LazyCommand(
        name="recommend",
        target="kafka_quotas.cli.pipeline.recommend:recommend",
        help="Say which quotas to set, and why.",
    ),
    LazyCommand(
        name="validate",
        target="kafka_quotas.cli.pipeline.validate:validate",
        help="Compare the replay with what brokers did.",
    ),
    LazyCommand(
        name="report",
        target="kafka_quotas.cli.pipeline.report:report",
        help="Write a page with charts that anyone can read.",
    ),
    LazyCommand(
        name="stream",
        target="kafka_quotas.cli.pipeline.stream:stream",
        help="Keep live usage and throttle state from a stream of events.",
    ),
    LazyCommand(
        name="demo",
        target="kafka_quotas.cli.pipeline_demo:demo",
        help="Go from real traffic to quotas that are set, in minutes.",
    ),
)
"""Every job: name, where it is, one line of help."""


class PipelineCommands(LazyGroup):
    """The commands of `JOBS`."""

    table = JOBS


app = typer.Typer(cls=PipelineCommands, no_args_is_help=True, add_completion=False)


@app.callback()
def _group() -> None:
    """Turn recorded traffic into usage, what-ifs and quotas to set."""
