"""`kafka-quotas throttle`: the calculator, one module for each kind of quota."""

import typer

from kafka_quotas.cli.framework.commands import LazyGroup, lazy_commands


class ThrottleCommands(LazyGroup):
    """The calculator's commands."""

    table = lazy_commands(
        "kafka_quotas.cli.throttle",
        {
            "simulate": ("simulate:simulate", "Replay events and show each decision."),
            "rate": ("rate:rate", "Compute the delay of a produce or fetch quota."),
            "request": ("rate:request", "Show what a request quota is worth."),
            "mutation": ("mutation:mutation", "Compute the wait after a burst of partition changes."),
            "compare": ("mutation:compare", "Compare four algorithms on one burst of mutations."),
        },
    )


app = typer.Typer(cls=ThrottleCommands, add_completion=False, no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Calculate rates, delays and bursts as Kafka does."""
