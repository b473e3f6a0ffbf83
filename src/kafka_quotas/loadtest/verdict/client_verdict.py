"""Verdicts on clients: what a quota promises each kind of client, and whether it was kept.

A *greedy* client (it offers more than its quota) gets its quota, no more and no less. A *modest* client (it offers
less) gets all it offers. A client *without a quota* gets all it offers and is never throttled. Clients that share a
quota are judged by their sum, and one that only thread time or errors limit is not judged by its rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_quotas.loadtest.plan.throttle_cycles import (
    TOLERANCE,
    ClientVerdict,
    CycleMeasurement,
    ObservationKind,
    average,
    judge,
)
from kafka_quotas.loadtest.plan.workload import UNITS, RateUnit, Workload

_MOST_SILENT = 0.5
"""Share of the measured time at whose end nothing may come, however long the announced throttle times are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The observed load of one client, or of several that share a quota."""

    acks: Sequence[tuple[float, int]]
    """The charges, as (t_ms, amount)."""
    offered: float | None
    """The offered rate, None for as much as possible."""
    throttle_count: int
    elapsed_ms: float
    """The length of the whole run, warm-up included."""
    end_ms: float | None = None
    """The end on the clock of the charges, None where a client may have finished its work before."""
    workload: Workload = Workload.PRODUCE
    limited_from_ms: float | None = None
    """When the quota began to throttle, None where unknown, as a bucket of tokens may last for longer than a window."""
    patience_ms: float | None = None
    """The longest silence at the end that shows nothing: a throttle time, and a moment. None for one window."""
    mean_over_ms: tuple[float, float] | None = None
    """The time of which `offered` is the mean, where stages change the rate, None for any part of the run."""
    offer_slack: float = 0.0
    """The share by which random arrivals, or bursts, may have been fewer than `offered`."""
    under_way: float = 0.0
    """The most that is under way at once to one broker, in the unit of its quota."""


def entity_verdict(seen: Observation, *, quota: float | None, window_ms: int, warmup_ms: float) -> ClientVerdict:
    """Return the verdict on one client by its offer and its quota."""
    offered = seen.offered
    if quota is not None and (offered is None or offered > quota):
        return _greedy(seen, quota, window_ms=window_ms, warmup_ms=warmup_ms)
    measured = _average(seen, window_ms=window_ms, skip_ms=warmup_ms)
    return _unhindered(seen, measured, quota)


def unjudged_verdict(
    seen: Observation, *, quota: float | None, window_ms: int, warmup_ms: float, is_staged: bool = False
) -> ClientVerdict:
    """Return the verdict on a client whose rate proves nothing.

    Thread time or expected errors limit such a client, or `is_staged`: its stages lead across its quota. The verdict
    has the quota all the same, where there is one for the rate.
    """
    measured = _average(seen, window_ms=window_ms, skip_ms=warmup_ms)
    plain = _unhindered(seen, measured, None)
    reason = "its stages lead across its quota, so its rate" if is_staged else "its rate proves nothing here and"
    kind = ObservationKind.STAGED if is_staged else ObservationKind.UNJUDGED
    ratio = None if quota is None else plain.achieved / quota
    evidence = f"{plain.evidence}; {reason} is not judged"
    return replace(plain, kind=kind, ok=True, quota=quota, ratio=ratio, evidence=evidence)


def shared_verdict(own: ClientVerdict, together: ClientVerdict, *, others: int, unit: RateUnit) -> ClientVerdict:
    """Return the verdict on one of several clients that share a quota, by the sum of all of them."""
    evidence = f"{unit.text(own.achieved)} of a quota that it shares with {others} others; together: "
    return replace(together, achieved=own.achieved, offered=own.offered, evidence=evidence + together.evidence)


def _greedy(seen: Observation, quota: float, *, window_ms: int, warmup_ms: float) -> ClientVerdict:
    skip_ms = max(warmup_ms, seen.limited_from_ms or 0)
    measured_ms = seen.elapsed_ms - max(window_ms, skip_ms)
    verdict = judge(
        seen.acks,
        quota=quota,
        window_ms=window_ms,
        workload=seen.workload,
        skip_ms=skip_ms,
        measured_ms=measured_ms,
        blur=seen.under_way / (quota * window_ms / 1000),
        silent_ms=_silence_ms(seen, window_ms),
        offered=seen.offered,
    )
    bucket = quota * (seen.elapsed_ms + window_ms) / 1000
    if seen.workload is Workload.MUTATE and not seen.throttle_count and sum(size for _, size in seen.acks) <= bucket:
        return replace(verdict, ok=False, too_short=True, evidence="too short to judge: its bucket was never empty")
    last_ms = seen.acks[-1][0] if seen.acks else 0.0
    silent_ms = seen.end_ms - last_ms if verdict.ok and seen.end_ms is not None else 0.0
    if silent_ms > _MOST_SILENT * max(measured_ms, verdict.span_ms):  # it may wait for a long throttle time, or be dead
        evidence = f"too silent to judge: nothing came in the last {silent_ms / 1000:.1f} of {measured_ms / 1000:.1f} s"
        return replace(verdict, ok=False, too_short=True, evidence=evidence)
    return verdict


def _average(seen: Observation, *, window_ms: int, skip_ms: float) -> CycleMeasurement:
    if seen.mean_over_ms is not None:
        from_ms, to_ms = seen.mean_over_ms
        amount = sum(amount for t_ms, amount in seen.acks if t_ms >= from_ms)
        return CycleMeasurement(per_second=amount / (to_ms - from_ms) * 1000, cycles=0, span_ms=to_ms - from_ms)
    end_ms = seen.end_ms if _silence_ms(seen, window_ms) else None
    return average(seen.acks, window_ms=window_ms, skip_ms=skip_ms, end_ms=end_ms)


def _silence_ms(seen: Observation, window_ms: int) -> float:
    """Return the length of the silence at the end, 0 where it shows nothing."""
    if seen.end_ms is None or not seen.acks:
        return 0.0
    silent_ms = seen.end_ms - seen.acks[-1][0]
    patience_ms = window_ms if seen.patience_ms is None else seen.patience_ms
    if seen.workload is Workload.CONSUME:  # what one fetch waited for, another one of the client may have taken
        patience_ms *= 2
    return silent_ms if silent_ms > patience_ms else 0.0


def _unhindered(seen: Observation, measured: CycleMeasurement, quota: float | None) -> ClientVerdict:
    achieved, offered = measured.per_second, seen.offered
    at_once = measured.span_ms <= 0 and len(seen.acks) == 1  # a single answer: it has an instant, but no rate
    got_all = achieved > 0 or at_once if offered is None else achieved >= offered * (1 - TOLERANCE - seen.offer_slack)
    throttled = quota is None and seen.throttle_count > 0
    return ClientVerdict(
        kind=ObservationKind.UNLIMITED if quota is None else ObservationKind.MODEST,
        ok=got_all and not throttled,
        achieved=achieved,
        offered=offered,
        quota=quota,
        ratio=None if quota is None else achieved / quota,
        lower=None,
        upper=None,
        cycles=measured.cycles,
        span_ms=measured.span_ms,
        evidence=_evidence(seen, None if at_once else achieved),
    )


def _evidence(seen: Observation, achieved: float | None) -> str:
    """Return a sentence with both rates, where an achieved rate of None is a single answer."""
    throttled = f"throttled {seen.throttle_count} times" if seen.throttle_count else "never throttled"
    if achieved is None:
        return f"all answered at one instant, which has no rate, {throttled}"
    unit = UNITS[seen.workload]
    rate = unit.text(achieved)
    if seen.offered is None:
        return f"{rate}, {throttled}"
    return f"{rate} of the {unit.text(seen.offered)} it offered, {throttled}"
