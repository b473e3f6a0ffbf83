"""`kafka-quotas load-test`: the table of its commands."""

import typer

from kafka_quotas.cli.framework.lazy_group import LazyCommand, LazyGroup

LOADS: tuple[LazyCommand, ...] = (
    LazyCommand(name="run", target="kafka_quotas.cli.load_test.run:run", help="Run a scenario from its file or name."),
    LazyCommand(
        name="produce",
        target="kafka_quotas.cli.load_test.records:produce",
        help="Produce records and judge the rate that was achieved.",
    ),
    LazyCommand(
        name="consume",
        target="kafka_quotas.cli.load_test.records:consume",
        help="Consume records and judge the rate that was achieved.",
    ),
    LazyCommand(
        name="requests",
        target="kafka_quotas.cli.load_test.requests:requests",
        help="Flood a cluster with requests of a kind.",
    ),
    LazyCommand(
        name="mutate",
        target="kafka_quotas.cli.load_test.mutate:mutate",
        help="Flood a cluster with changes of topics.",
    ),
    LazyCommand(
        name="connect",
        target="kafka_quotas.cli.load_test.connect:connect",
        help="Storm a cluster with connections.",
    ),
    LazyCommand(
        name="list", target="kafka_quotas.cli.load_test.list:list_", help="List the scenarios that are shipped."
    ),
    LazyCommand(
        name="validate",
        target="kafka_quotas.cli.load_test.validate:validate",
        help="Tell whether a scenario can be run here, without running it.",
    ),
    LazyCommand(
        name="report",
        target="kafka_quotas.cli.load_test.report:report",
        help="Draw a kept run's report again, and tell its verdict.",
    ),
    LazyCommand(
        name="compare",
        target="kafka_quotas.cli.load_test.compare:compare",
        help="Tell whether the second of two runs is worse than the first.",
    ),
    LazyCommand(
        name="restore",
        target="kafka_quotas.cli.load_test.restore:restore",
        help="Put back what a run that was killed left behind.",
    ),
)
"""Every command: name, where it is, one line of help."""


class LoadTestCommands(LazyGroup):
    """The commands of `LOADS`."""

    table = LOADS


app = typer.Typer(cls=LoadTestCommands, no_args_is_help=True, add_completion=False)


@app.callback()
def _group() -> None:
    """Put load on a cluster and judge whether the quotas hold.

    The verdict is the exit code: 0 when every client got what its quota promises, 1 when not.
    """
