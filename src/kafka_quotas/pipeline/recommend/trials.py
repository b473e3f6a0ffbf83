"""The limits to replay, as steps of one sweep.

Each step has a default for every quota type: one pass over the events answers for all of them. Steps are geometric. The
first sweep finds the need to within one ratio, and a second sweep between two steps refines it. Under each proposal
every client has a bucket of its own.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.proposal import DefaultScope, Proposal
from kafka_quotas.pipeline.recommend.demand import Demand

RECOMMENDED: Final = (QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST, QuotaType.CONTROLLER_MUTATION)
"""Quota types that brokers enforce, in display order."""


def defaults(name: str, scope: DefaultScope, limits: Mapping[QuotaType, float]) -> Proposal:
    """Return the proposal with these limits as its only quotas, as defaults for every client."""
    return Proposal(
        name=name, entries=((scope.default_entity, {kind.key.name: value for kind, value in limits.items()}),)
    )


def unlimited_clients(scope: DefaultScope) -> Proposal:
    """Return the proposal that gives every client a bucket of its own and limits none."""
    return defaults("clients", scope, {kind: float(kind.key.unlimited) for kind in RECOMMENDED})


STEPS: Final = 24
_LEAST_SHARE_OF_PEAK: Final = 1 / 10_000
"""Lowest limit by the largest peak: otherwise the smallest clients would set the steps of all."""


def first_limits(demands: Iterable[Demand], steps: int = STEPS) -> dict[QuotaType, list[float]]:
    """Return limits from the smallest median rate to the largest peak, for every quota type that was used."""
    lows: dict[QuotaType, float] = {}
    highs: dict[QuotaType, float] = {}
    for demand in demands:
        for each in demand.brokers:
            if each.peak > 0:
                low = each.p50 if each.p50 > 0 else each.peak
                lows[demand.quota_type] = min(lows.get(demand.quota_type, math.inf), low)
                highs[demand.quota_type] = max(highs.get(demand.quota_type, 0.0), each.peak)
    return {kind: spread(max(lows[kind], high * _LEAST_SHARE_OF_PEAK), high, steps) for kind, high in highs.items()}


def finer_limits(
    tried: Mapping[QuotaType, Sequence[float]], found: Mapping[QuotaType, float], steps: int = STEPS
) -> dict[QuotaType, list[float]]:
    """Return limits between the one found and the next lower tried one.

    The lowest tried limit has none below it and is returned alone.
    """
    finer = {}
    for kind, limit in found.items():
        lower = [each for each in tried[kind] if each < limit]
        finer[kind] = spread(lower[-1], limit, steps) if lower else [limit]
    return finer


def spread(low: float, high: float, steps: int) -> list[float]:
    """Return limits of equal ratio from `low` to `high`, both included, ascending.

    Returns:
        `steps` limits, or one where `low` is not below `high`.
    """
    if not low < high:
        return [high]
    ratio = (high / low) ** (1 / (steps - 1))
    return [low * ratio**step for step in range(steps - 1)] + [high]


def sweep(scope: DefaultScope, limits: Mapping[QuotaType, Sequence[float]]) -> tuple[Proposal, ...]:
    """Return the steps as proposals for one pass.

    A quota type with fewer limits ends with its last one.
    """
    count = max((len(each) for each in limits.values()), default=0)
    return tuple(
        defaults(f"step-{step:03}", scope, {kind: each[min(step, len(each) - 1)] for kind, each in limits.items()})
        for step in range(count)
    )
