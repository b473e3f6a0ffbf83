"""`kafka-quotas throttle`: the calculator, one module for each kind of quota."""

from kafka_quotas.cli.framework.commands import LazyGroup

app = LazyGroup(
    "Calculate rates, delays and bursts as Kafka does.",
    {
        "simulate": ("throttle.simulate:simulate", "Replay events and show each decision."),
        "rate": ("throttle.calculator:rate", "Compute the delay of a produce or fetch quota."),
        "request": ("throttle.calculator:request", "Show what a request quota is worth."),
        "mutation": ("throttle.calculator:mutation", "Compute the wait after a burst of partition changes."),
        "compare": ("throttle.calculator:compare", "Compare four algorithms on one burst of mutations."),
    },
)
