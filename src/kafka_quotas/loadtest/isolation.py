"""Whether a neighbour of throttled clients was left in peace: its latency beside them, and alone."""

from kafka_quotas.loadtest.durations import LatencySummary
from kafka_quotas.loadtest.judgement import Aspect, Judgement, State
from kafka_quotas.loadtest.result import EntityResult

_GRAIN_US = 10_000
"""Added to what the factor allows: below some milliseconds it is the machine's scheduler that is measured."""


def allowed_us(alone: LatencySummary, factor: float) -> float:
    """The longest p99 that leaves a control client unharmed, in microseconds."""
    return alone.p99_us * factor + _GRAIN_US


def isolation(entity: EntityResult, *, factor: float) -> Judgement:
    """The judgement on a control client: its p99 from intended to acknowledged, against that of its solo run."""
    beside, alone = entity.response, entity.solo
    label = entity.name.label
    if alone is None or not alone.count or not beside.count:
        return Judgement(
            aspect=Aspect.ISOLATION,
            state=State.UNCHECKED,
            evidence="no latency was measured " + ("beside the others" if alone else "in a run of its own"),
            entity=label,
        )
    most_us = allowed_us(alone, factor)
    return Judgement(
        aspect=Aspect.ISOLATION,
        state=State.MET if beside.p99_us <= most_us else State.NOT_MET,
        evidence=(
            f"p99 {beside.p99_us / 1000:.3g} ms beside the others, {alone.p99_us / 1000:.3g} ms alone; allowed "
            f"{most_us / 1000:.3g} ms, {factor:g} times as long and {_GRAIN_US // 1000} ms of grain"
        ),
        entity=label,
    )
