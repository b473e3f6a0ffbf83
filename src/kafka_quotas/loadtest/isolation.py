"""Whether a neighbour of throttled clients was left in peace: its latency beside them, and alone."""

from kafka_quotas.loadtest.judgement import Aspect, Judgement, State
from kafka_quotas.loadtest.result import EntityResult

DEFAULT_FACTOR = 3.0
"""How many times its solo p99 a control client's p99 may be."""
_GRAIN_US = 10_000
"""Added to what the factor allows: below some milliseconds it is the machine's scheduler that is measured."""


def isolation(entity: EntityResult, *, factor: float = DEFAULT_FACTOR) -> Judgement:
    """The judgement on a control client: its p99 from intended to acknowledged, against that of its solo run."""
    beside, alone = entity.response, entity.solo
    label = entity.name.label
    if alone is None or not alone.count or not beside.count:
        return Judgement(
            aspect=Aspect.ISOLATION,
            state=State.UNCHECKED,
            evidence="not checked: no latency was measured "
            + ("beside the others" if alone else "in a run of its own"),
            entity=label,
        )
    allowed_us = alone.p99_us * factor + _GRAIN_US
    return Judgement(
        aspect=Aspect.ISOLATION,
        state=State.MET if beside.p99_us <= allowed_us else State.NOT_MET,
        evidence=(
            f"p99 {beside.p99_us / 1000:.3g} ms beside the others, {alone.p99_us / 1000:.3g} ms alone; allowed "
            f"{allowed_us / 1000:.3g} ms, {factor:g} times as long and {_GRAIN_US // 1000} ms of grain"
        ),
        entity=label,
    )
