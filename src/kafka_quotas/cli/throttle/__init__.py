"""`kafka-quotas throttle`: the calculator, one module for each kind of quota."""

from kafka_quotas.cli.framework.commands import lazy_app

app = lazy_app(
    "Calculate rates, delays and bursts as Kafka does.",
    {
        "simulate": ("throttle.simulate:simulate", "Replay events and show each decision."),
        "rate": ("throttle.rate:rate", "Compute the delay of a produce or fetch quota."),
        "request": ("throttle.rate:request", "Show what a request quota is worth."),
        "mutation": ("throttle.mutation:mutation", "Compute the wait after a burst of partition changes."),
        "compare": ("throttle.mutation:compare", "Compare four algorithms on one burst of mutations."),
    },
)
