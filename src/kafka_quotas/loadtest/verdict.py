"""What a quota promises each kind of client, and whether it was kept.

A *greedy* client (it offers more than its quota) gets its quota, no more and no less. A *modest* client (it offers
less) gets all it offers. A client *without a quota* gets all it offers and is never throttled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from kafka_quotas.core.units import format_bytes
from kafka_quotas.loadtest.cycles import TOLERANCE, CycleMeasurement, Direction, average, judge


class Kind(Enum):
    """What a client was judged as."""

    GREEDY = "greedy"
    MODEST = "modest"
    UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityVerdict:
    """Whether one client got what it should; rates in bytes/s as the quota counts them, None where there is none.

    `ratio` is achieved / quota; `cycles` whole throttle cycles were measured over `span_ms`. `too_short`: the run left
    no more than a window to measure, and no rate could be told from any other.
    """

    kind: Kind
    ok: bool
    achieved_bytes_per_second: float
    offered_bytes_per_second: float | None
    quota_bytes_per_second: float | None
    ratio: float | None
    lower: float | None
    upper: float | None
    cycles: int
    span_ms: float
    evidence: str
    too_short: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is judged: acknowledgements (t_ms, bytes), what was offered (None: all it could), how often throttled.

    `elapsed_ms` is the length of the whole run, warm-up included.
    """

    acks: Sequence[tuple[float, int]]
    offered_bytes_per_second: float | None
    throttle_count: int
    elapsed_ms: float


def entity_verdict(
    seen: Observation,
    *,
    quota_bytes_per_second: float | None,
    window_ms: int,
    warmup_ms: float,
    direction: Direction,
) -> EntityVerdict:
    """The verdict on one client by what it offered and what its quota allows."""
    offered = seen.offered_bytes_per_second
    if quota_bytes_per_second is not None and (offered is None or offered > quota_bytes_per_second):
        return _greedy(seen, quota_bytes_per_second, window_ms=window_ms, warmup_ms=warmup_ms, direction=direction)
    measured = average(seen.acks, window_ms=window_ms, skip_ms=warmup_ms)
    return _unhindered(seen, measured, quota_bytes_per_second)


def _greedy(
    seen: Observation, quota: float, *, window_ms: int, warmup_ms: float, direction: Direction
) -> EntityVerdict:
    verdict = judge(
        seen.acks, quota_bytes_per_second=quota, window_ms=window_ms, direction=direction, skip_ms=warmup_ms
    )
    measured_ms = seen.elapsed_ms - max(window_ms, warmup_ms)
    too_short = not verdict.ok and measured_ms <= window_ms
    return EntityVerdict(
        kind=Kind.GREEDY,
        ok=verdict.ok,
        achieved_bytes_per_second=verdict.achieved_bytes_per_second,
        offered_bytes_per_second=seen.offered_bytes_per_second,
        quota_bytes_per_second=quota,
        ratio=verdict.ratio,
        lower=verdict.lower,
        upper=verdict.upper,
        cycles=verdict.cycles,
        span_ms=verdict.span_ms,
        evidence=_too_short(measured_ms, window_ms) if too_short else verdict.evidence,
        too_short=too_short,
    )


def _unhindered(seen: Observation, measured: CycleMeasurement, quota: float | None) -> EntityVerdict:
    """The verdict on a client that should get all it offers."""
    achieved, offered = measured.bytes_per_second, seen.offered_bytes_per_second
    got_all = achieved > 0 if offered is None else achieved >= offered * (1 - TOLERANCE)
    throttled = quota is None and seen.throttle_count > 0
    return EntityVerdict(
        kind=Kind.UNLIMITED if quota is None else Kind.MODEST,
        ok=got_all and not throttled,
        achieved_bytes_per_second=achieved,
        offered_bytes_per_second=offered,
        quota_bytes_per_second=quota,
        ratio=None if quota is None else achieved / quota,
        lower=None,
        upper=None,
        cycles=measured.cycles,
        span_ms=measured.span_ms,
        evidence=_told(seen, achieved),
    )


def _too_short(measured_ms: float, window_ms: int) -> str:
    left, window = f"{max(measured_ms, 0) / 1000:.1f} s", f"{window_ms / 1000:g} s"
    return f"the run left {left} after the first window, and it takes more than a window of {window} to judge"


def _told(seen: Observation, achieved: float) -> str:
    rate = f"{format_bytes(achieved)}/s"
    throttled = f"throttled {seen.throttle_count} times" if seen.throttle_count else "never throttled"
    if seen.offered_bytes_per_second is None:
        return f"{rate}, {throttled}"
    return f"{rate} of the {format_bytes(seen.offered_bytes_per_second)}/s it offered, {throttled}"
