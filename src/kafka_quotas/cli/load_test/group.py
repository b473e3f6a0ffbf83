"""`kafka-quotas load-test`: the table of its commands."""

import typer

from kafka_quotas.cli.framework.commands import LazyGroup, lazy_commands

LOADS = lazy_commands(
    "kafka_quotas.cli.load_test",
    {
        "run": ("run:run", "Run a scenario from its file or name."),
        "produce": ("typed:produce", "Produce records and judge the rate that was achieved."),
        "consume": ("typed:consume", "Consume records and judge the rate that was achieved."),
        "requests": ("typed:requests", "Flood a cluster with requests of a kind."),
        "mutate": ("typed:mutate", "Flood a cluster with changes of topics."),
        "connect": ("typed:connect", "Storm a cluster with connections."),
        "list": ("scenarios:list_", "List the scenarios that are shipped."),
        "init": ("scenarios:init", "Write a commented scenario for a question, to run and to change."),
        "validate": ("scenarios:validate", "Check whether a scenario can be run here, without running it."),
        "report": ("kept_runs:report", "Draw a kept run's report again, and print its verdict."),
        "compare": ("kept_runs:compare", "Compare two runs, and judge whether the second is worse than the first."),
        "merge": ("kept_runs:merge", "Join the shards of a load test to one run, with its verdict."),
        "restore": ("kept_runs:restore", "Put back what a run that was killed left behind."),
    },
)


class LoadTestCommands(LazyGroup):
    """The commands of `LOADS`."""

    table = LOADS


app = typer.Typer(cls=LoadTestCommands, no_args_is_help=True, add_completion=False)


@app.callback()
def _group() -> None:
    """Put load on a cluster and judge whether the quotas hold.

    The verdict is the exit code: 0 when every client got what its quota promises, 1 when not.
    """
