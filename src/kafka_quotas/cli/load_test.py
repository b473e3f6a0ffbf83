"""`kafka-quotas load-test`: the table of its commands."""

import typer

from kafka_quotas.cli.lazy_group import LazyCommand, LazyGroup

LOADS: tuple[LazyCommand, ...] = (
    LazyCommand(name="run", target="kafka_quotas.cli.load_run:run", help="Run a scenario from its file or name."),
    LazyCommand(
        name="produce",
        target="kafka_quotas.cli.load_records:produce",
        help="Produce records and judge the rate that was achieved.",
    ),
    LazyCommand(
        name="consume",
        target="kafka_quotas.cli.load_records:consume",
        help="Consume records and judge the rate that was achieved.",
    ),
    LazyCommand(
        name="requests",
        target="kafka_quotas.cli.load_requests:requests",
        help="Flood a cluster with requests of a kind.",
    ),
    LazyCommand(
        name="mutate",
        target="kafka_quotas.cli.load_mutate:mutate",
        help="Flood a cluster with changes of topics.",
    ),
    LazyCommand(
        name="connect",
        target="kafka_quotas.cli.load_connect:connect",
        help="Storm a cluster with connections.",
    ),
    LazyCommand(name="list", target="kafka_quotas.cli.load_list:list_", help="List the scenarios that are shipped."),
    LazyCommand(
        name="validate",
        target="kafka_quotas.cli.load_validate:validate",
        help="Tell whether a scenario can be run here, without running it.",
    ),
    LazyCommand(
        name="report",
        target="kafka_quotas.cli.load_report:report",
        help="Draw a kept run's report again, and tell its verdict.",
    ),
    LazyCommand(
        name="compare",
        target="kafka_quotas.cli.load_compare:compare",
        help="Tell whether the second of two runs is worse than the first.",
    ),
    LazyCommand(
        name="restore",
        target="kafka_quotas.cli.load_restore:restore",
        help="Put back what a run that was killed left behind.",
    ),
)
"""Every command: name, where it is, one line of help."""


class Loads(LazyGroup):
    """The commands of `LOADS`."""

    table = LOADS


app = typer.Typer(cls=Loads, no_args_is_help=True, add_completion=False)


@app.callback()
def _group() -> None:
    """Put load on a cluster and judge whether the quotas hold.

    The verdict is the exit code: 0 when every client got what its quota promises, 1 when not.
    """
