"""The experiment with and without quotas: which run is next, when it is decided, and what it shows.

Runs with and without quotas alternate in mirrored pairs (without, with, with, without), so that a drift of the machine
is in both. They end as soon as the interval of the effect lies on one side of what is claimed.

Contract: pure.
"""

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TypeVar

from kafka_quotas.loadtest.judge.expectation import Expectation
from kafka_quotas.loadtest.judge.interval import difference_interval
from kafka_quotas.loadtest.judgement import Aspect, Judgement, State
from kafka_quotas.loadtest.plan.throttle_cycles import TOLERANCE
from kafka_quotas.loadtest.result.effect import QuotaEffect
from kafka_quotas.loadtest.result.result import LoadResult
from kafka_quotas.loadtest.result.verdict import ObservationKind

LEAST_PAIRS = 3
"""The pairs of runs that decide anything: of two the interval is too wide."""
_T = TypeVar("_T")


def quota_effect(with_us: Sequence[int], without_us: Sequence[int]) -> QuotaEffect | None:
    """Return the effect from the p90 of runs with and without quotas, None with fewer than two of each.

    Latencies scatter by factors, so their logarithms are compared.
    """
    logs = [[math.log(max(each, 1)) for each in side] for side in (with_us, without_us)]
    interval = difference_interval(*logs)
    if interval is None:
        return None
    return QuotaEffect(
        with_us=tuple(with_us),
        without_us=tuple(without_us),
        ratio=math.exp(fmean(logs[1]) - fmean(logs[0])),
        low=math.exp(interval.low),
        high=math.exp(interval.high),
    )


def alternating(
    run: Callable[[bool], _T],
    *,
    is_decided: Callable[[Sequence[_T], Sequence[_T]], bool],
    has_time: Callable[[], bool],
) -> tuple[list[_T], list[_T]]:
    """Run with quotas (True) and without in mirrored pairs, and return the runs of either side.

    It ends after the third pair or a later one, when they decide, or before a run for which there is no time.
    """
    sides: tuple[list[_T], list[_T]] = ([], [])
    pair = 0
    while True:
        for has_quotas in (pair % 2 == 1, pair % 2 == 0):
            if not has_time():
                return sides
            sides[0 if has_quotas else 1].append(run(has_quotas))
        pair += 1
        if pair >= LEAST_PAIRS and is_decided(*sides):
            return sides


def control_run(judged: LoadResult, without: LoadResult, expectations: Sequence[Expectation]) -> Judgement | None:
    """Return whether the run without quotas breaks what that with them holds, None for nothing held.

    A verdict that is as good without the quotas shows nothing about them.
    """
    greedy = [entity for entity in judged.entities if entity.verdict.kind is ObservationKind.GREEDY]
    if not greedy and not expectations:
        return None
    void = next((each for each in without.judgements if each.aspect is Aspect.RUN), None)
    if void is not None:
        return Judgement(
            aspect=Aspect.CONTROL, state=State.UNDECIDED, evidence=f"the run without the quotas: {void.evidence}"
        )
    broken = _broken(judged, without, expectations)
    if not broken:
        evidence = "all that was judged holds without the quotas as well, so it does not show what they do"
        return Judgement(aspect=Aspect.CONTROL, state=State.NOT_MET, evidence=evidence)
    more = f" (the first of {len(broken)} failures)" if len(broken) > 1 else ""
    return Judgement(aspect=Aspect.CONTROL, state=State.MET, evidence=f"without the quotas it fails: {broken[0]}{more}")


def _broken(judged: LoadResult, without: LoadResult, expectations: Sequence[Expectation]) -> list[str]:
    """Return what does not hold without the quotas: rates above them, and thresholds."""
    free = {entity.key: entity for entity in without.entities}
    found = []
    for entity in judged.entities:
        quota, unit = entity.verdict.quota, entity.unit
        achieved = free[entity.key].verdict.achieved if entity.key in free else 0.0
        if entity.verdict.kind is ObservationKind.GREEDY and quota is not None and achieved > quota * (1 + TOLERANCE):
            found.append(f"{entity.name.label} gets {unit.text(achieved)} instead of {unit.text(quota)}")
    for expectation in expectations:
        judgement = expectation.judge(without)
        if judgement.state is State.NOT_MET and any(
            expectation.metric.of(each) is not None for each in without.entities
        ):
            found.append(judgement.evidence)
    return found
