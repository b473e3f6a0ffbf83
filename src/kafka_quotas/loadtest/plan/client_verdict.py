"""Verdicts on clients: what a quota promises each kind of client, and whether it was kept.

A *greedy* client (it offers more than its quota) gets its quota, no more and no less. A *modest* client (it offers
less) gets all it offers. A client *without a quota* gets all it offers and is never throttled. Clients that share a
quota are judged by their sum, and one that only thread time or errors limit is not judged by its rate.

Kafka's window lets a greedy client repeat a burst about once per window, so an average over an arbitrary span is off by
up to window/span even when all is right. Here the rate is taken between *low points*: the instants just before each
burst, where `amount - mean rate x time` is lowest. The first window (a burst into an empty past) does not count.

A trace without such a sawtooth needs no low points: its average is off by no more than swing/span.

Large requests blur what a broker keeps: those of several connections are all taken before the first throttle time
holds, and a fetch that does not fit has to wait until all of it does. So the bounds are wider by what is under way at
once, as a share of what the quota allows in a window (`blur`), and with more than `MAX_BLUR` of it nothing is judged.

Contract: pure. Acknowledgements are (t_ms, amount) in order of time, the amount as the quota counts it (bytes of whole
requests or responses, requests, partitions, connections). A trace of fewer than `MIN_WINDOWS` windows or `MIN_CYCLES`
cycles is never judged, whatever its rate.
**Source:** the bounds are those of Kafka's limiter over drawn loads (tests/unit/loadtest/verdict/test_analysis.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.plan.plan import MIN_WINDOWS
from kafka_quotas.loadtest.plan.workload import UNITS, RateUnit, Workload

MIN_CYCLES = 3
"""The number of throttle cycles that a verdict takes."""
TOLERANCE = 0.02
"""The distance from its quota that is allowed, as a share of the quota."""
MAX_BLUR = 0.04
"""The largest share of a window's quota under way at once that leaves a difference of 10 % visible."""

_FETCH_BLUR = 1.2  # of the blur is what a consumer may get less, as over-quota fetches lengthen the delay
_CERTAIN = 2.0  # times the quota is too much whatever the cycles are
_LEAST_SURPLUS_MS = 2000  # of its quota at once may be what a busy machine tells of too late
_END_SHARE = 0.02  # of a window that a run may end early, as stopping takes a moment
# What must lie between a low point and the highs beside it, as a share of the whole swing. The smaller shares are for
# traces that level out: their early bursts are much larger than the later ones.
_REVERSAL_SHARES = (0.25, 0.1, 0.04)
_MIN_SPACING_SHARE = 0.5  # of a window: closer low points belong to one cycle, the lower one counts
_STEADY_SWING = TOLERANCE / 4  # of all bytes: a trace that swings by no more has no sawtooth to allow for
_MOST_SWING = 0.06  # of all bytes, and blur: a trace without cycles that swings by no more has bounds wider by it
_REFINEMENTS = 3  # the line that low points are sought under is redrawn with the rate they gave


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleMeasurement:
    """A rate between low points, or the plain average of fewer than `MIN_CYCLES` cycles."""

    per_second: float
    cycles: int
    span_ms: float
    swing: float = 1.0
    """How far a plain average may be off, as a share of it, 0 for a rate between low points."""

    @property
    def steady(self) -> bool:
        """Whether there is no sawtooth that could falsify the average."""
        return self.swing <= _STEADY_SWING and not self.cycles

    @property
    def length(self) -> str:
        """The time that the rate was measured over, as the end of a sentence."""
        over = f" over {self.cycles} throttle cycles in" if self.cycles >= MIN_CYCLES else ", steady over"
        return f"{over} {self.span_ms / 1000:.1f} s"


class ObservationKind(Enum):
    """The kind of client as which one was judged."""

    GREEDY = "greedy"
    MODEST = "modest"
    UNLIMITED = "unlimited"
    UNJUDGED = "unjudged"
    STAGED = "staged"
    """Stages lead across its quota, so that throttle times judge it and no rate does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientVerdict:
    """The verdict whether one client got what it should, with rates as the quota counts them."""

    kind: ObservationKind
    ok: bool
    achieved: float
    offered: float | None
    quota: float | None
    ratio: float | None
    lower: float | None
    upper: float | None
    cycles: int
    """The number of whole throttle cycles over `span_ms`."""
    span_ms: float
    too_short: bool = False
    """Whether the run held too few windows or cycles to judge, or requests too large for the window."""
    settled_ms: float | None = None
    """How long after its quota was changed the client was held to the new one, None where it was not changed, or the
    client was never held to it.
    """
    evidence: str

    @property
    def state(self) -> State:
        """Met, not met, void where the run was too short, or unchecked where the rate proves nothing."""
        if self.kind in (ObservationKind.UNJUDGED, ObservationKind.STAGED):
            return State.UNCHECKED
        return State.MET if self.ok else State.VOID if self.too_short else State.NOT_MET


def judge(
    acks: Sequence[tuple[float, int]],
    *,
    quota: float,
    window_ms: int,
    workload: Workload = Workload.PRODUCE,
    skip_ms: float | None = None,
    measured_ms: float | None = None,
    blur: float = 0.0,
    silent_ms: float = 0.0,
    offered: float | None = None,
) -> ClientVerdict:
    """Return the verdict on a client that wanted more than its quota.

    Args:
        acks: The charges, in order of time.
        quota: The quota per second, in the workload's unit.
        window_ms: The length of the quota window: samples x sample length.
        workload: What the client does.
        skip_ms: The time to leave out at the start, one window where that is longer.
        measured_ms: The time after that, None for that of the trace.
        blur: What is under way at once, as a share of what the quota allows in a window.
        silent_ms: How long nothing was acknowledged at the end, 0 where that shows nothing.
        offered: The rate that it offered, None for as much as possible.
    """
    if not quota > 0:
        raise UsageError(f"a quota to judge by must be above 0, not {quota}")
    skipped_ms = max(window_ms, skip_ms or 0)
    if measured_ms is None:
        measured_ms = acks[-1][0] - acks[0][0] - skipped_ms if acks else 0.0
    measured, blur = _measured(acks, workload, window_ms=window_ms, skip_ms=skipped_ms, blur=blur)
    lower, upper = _bounds(measured, workload, blur)
    ratio = measured.per_second / quota
    is_inside = lower <= ratio <= upper
    faults = _silence(silent_ms) + _burst(acks, quota * upper, window_ms=window_ms, skip_ms=skipped_ms, blur=blur)
    # A bucket of tokens is judged in less than a window, but not by nothing.
    reason = _too_short(measured_ms, window_ms) if workload is not Workload.MUTATE or measured.span_ms <= 0 else ""
    if not (reason or faults or _is_certain(ratio, lower, upper, measured, blur)):
        reason = _why_open(measured, blur)
    evidence = "nothing was acknowledged after the first window, so there is no rate to judge"
    if measured.span_ms > 0:
        rates = f"{UNITS[workload].text(measured.per_second)} of {UNITS[workload].text(quota)} = {ratio:.3f}"
        evidence = f"{rates}{measured.length} (accepted: {lower:.2f} to {upper:.2f})"
    return ClientVerdict(
        kind=ObservationKind.GREEDY,
        offered=offered,
        achieved=measured.per_second,
        quota=quota,
        ratio=ratio,
        cycles=measured.cycles,
        span_ms=measured.span_ms,
        lower=lower,
        upper=upper,
        ok=not (reason or faults) and is_inside,
        too_short=bool(reason),
        evidence=reason or evidence + (faults if is_inside else ""),
    )


def _measured(
    acks: Sequence[tuple[float, int]], workload: Workload, *, window_ms: int, skip_ms: float, blur: float
) -> tuple[CycleMeasurement, float]:
    if workload is not Workload.MUTATE:
        return measure(acks, window_ms=window_ms, skip_ms=skip_ms), blur
    # A bucket of tokens has no cycles: at either end of the time a request may be in it or not.
    measured = replace(average(acks, window_ms=window_ms, skip_ms=skip_ms), swing=0.0)
    return measured, blur * (window_ms / measured.span_ms if measured.span_ms else 1.0)


def _bounds(measured: CycleMeasurement, workload: Workload, blur: float) -> tuple[float, float]:
    swing = 0.0 if measured.steady or measured.swing + blur > _MOST_SWING else measured.swing
    less = 0.0 if workload is Workload.PRODUCE else _FETCH_BLUR * blur
    return 1 - TOLERANCE - swing - less, 1 + TOLERANCE + swing + blur


def _is_certain(ratio: float, lower: float, upper: float, measured: CycleMeasurement, blur: float) -> bool:
    if measured.span_ms <= 0 or (ratio >= _CERTAIN and blur < 1 / 2):
        return True
    # A plain average is off by its swing at most, so one that is further out says enough without cycles.
    return blur <= MAX_BLUR and not lower - measured.swing <= ratio <= upper + measured.swing


def _silence(silent_ms: float) -> str:
    silence = f"; nothing was acknowledged in the last {silent_ms / 1000:.1f} s, longer than any throttle time"
    return silence if silent_ms else ""


def _burst(acks: Sequence[tuple[float, int]], per_second: float, *, window_ms: int, skip_ms: float, blur: float) -> str:
    if blur > MAX_BLUR:
        return ""
    times, before = _after(acks, skip_ms)
    level = [size - per_second / 1000 * t_ms for size, t_ms in zip(before, times, strict=True)]
    above = (here - low for here, low in zip(level, accumulate(level, min), strict=True))
    surplus_ms = max(above, default=0.0) / per_second * 1000
    if surplus_ms <= window_ms * (1 + blur) + max(window_ms, _LEAST_SURPLUS_MS):
        return ""
    return f"; at some time it got {surplus_ms / 1000:.1f} s of its quota too much, more than a window's burst"


def _too_short(got_ms: float, window_ms: int) -> str:
    if got_ms >= (MIN_WINDOWS - _END_SHARE) * window_ms:
        return ""
    needed, got, window = (f"{ms / 1000:.4g} s" for ms in (MIN_WINDOWS * window_ms, max(got_ms, 0.0), window_ms))
    return f"too short to judge: needs {needed}, got {got}: {MIN_WINDOWS} quota windows of {window}, after the first"


def _why_open(measured: CycleMeasurement, blur: float) -> str:
    if blur > MAX_BLUR:
        return (
            f"its requests are too large to judge: {blur:.0%} of what the quota allows in a window is under way at "
            f"once, and up to {MAX_BLUR:.0%} shows a rate; take smaller batches, or fewer connections"
        )
    if measured.swing + blur > _MOST_SWING:
        span = f"{measured.span_ms / 1000:.1f} s"
        found = f"{measured.cycles} whole throttle cycles in {span}, and it takes {MIN_CYCLES}"
        return (
            f"too irregular to judge: {found if measured.cycles else f'less than half of {span} are throttle cycles'}"
        )
    return ""


def measure(acks: Sequence[tuple[float, int]], *, window_ms: int, skip_ms: float | None = None) -> CycleMeasurement:
    """Return the rate over whole cycles, after the first window or `skip_ms`.

    Where there are too few cycles, or they fill less than half of the time, it is the rate over the whole rest.
    """
    times, before = _after(acks, max(window_ms, skip_ms or 0))
    plain = _average(times, before, window_ms=window_ms)
    if plain.steady or plain.span_ms <= 0:
        return plain
    cycles = 0
    for share in _REVERSAL_SHARES:
        measured = _over_cycles(times, before, average=plain, window_ms=window_ms, reversal_share=share)
        # The cycles at one end of a trace say nothing of its rest.
        is_most = measured.span_ms >= plain.span_ms / 2
        if measured.cycles >= MIN_CYCLES and is_most:
            return measured
        cycles = measured.cycles if is_most else 0
    return replace(plain, cycles=cycles)  # the whole span shows more than one or two cycles do


def average(
    acks: Sequence[tuple[float, int]], *, window_ms: int, skip_ms: float | None = None, end_ms: float | None = None
) -> CycleMeasurement:
    """Return the plain average after `skip_ms`, for a client that no quota throttles.

    Such a client makes no burst into an empty past, so the time that is left out may be shorter than a window. An
    amount was transferred since the acknowledgement before, so the first amount is left out and the last one counts.

    `skip_ms` is left out at the start, None for one window. The silence up to `end_ms` counts, where it is not None.
    """
    times, before = _after(acks, window_ms if skip_ms is None else skip_ms)
    if not times:
        return _average(times, before, window_ms=window_ms)
    upto = [*before[1:], before[-1] + acks[-1][1]]
    since = [amount - upto[0] for amount in upto]
    if end_ms is not None and end_ms > acks[-1][0]:
        times, since = [*times, end_ms], [*since, since[-1]]
    return _average(times, since, window_ms=window_ms)


def settling_ms(acks: Sequence[tuple[float, int]], *, from_ms: float, quota: float, window_ms: int) -> float | None:
    """Return how long after `from_ms`, when a quota was set, a greedy client is held to it.

    It is the first low point from which to the last one, a window later or more, it gets no more than the quota.
    A client that stays within the quota from the first acknowledgement on gives 0, one that is not held to it None.
    """
    since = [(t_ms - from_ms, size) for t_ms, size in acks if t_ms > from_ms]
    times = [t_ms for t_ms, _ in since]
    before = list(accumulate((size for _, size in since), initial=0))
    per_ms = quota / 1000
    if all(size <= per_ms * t_ms for t_ms, size in zip(times, before[1:], strict=True)):
        return 0.0 if since else None
    for share in _REVERSAL_SHARES:
        lows = _low_points(times, before[:-1], per_ms=per_ms, window_ms=window_ms, reversal_share=share)
        for low in lows:
            span_ms = times[lows[-1]] - times[low]
            if span_ms >= window_ms and before[lows[-1]] - before[low] <= per_ms * span_ms * (1 + TOLERANCE):
                return times[low]
    return None


def _after(acks: Sequence[tuple[float, int]], skipped_ms: float) -> tuple[list[float], list[int]]:
    steady = [ack for ack in acks if ack[0] >= acks[0][0] + skipped_ms]
    return [t_ms for t_ms, _ in steady], list(accumulate((size for _, size in steady), initial=0))[:-1]


def _average(times: Sequence[float], before: Sequence[int], *, window_ms: int) -> CycleMeasurement:
    span_ms = times[-1] - times[0] if times else 0.0
    if span_ms <= 0:
        return CycleMeasurement(per_second=0.0, cycles=0, span_ms=0.0)
    per_ms = before[-1] / span_ms
    level = [size - per_ms * (t_ms - times[0]) for size, t_ms in zip(before, times, strict=True)]
    swing = max(level) - min(level)
    return CycleMeasurement(
        per_second=per_ms * 1000,
        cycles=0,
        span_ms=span_ms,
        swing=swing / before[-1] if before[-1] and span_ms >= MIN_CYCLES * window_ms else 1.0,
    )


def _over_cycles(
    times: Sequence[float], before: Sequence[int], *, average: CycleMeasurement, window_ms: int, reversal_share: float
) -> CycleMeasurement:
    """Return the rate from the first low point to the last, or `average` where there are not two."""
    measured = average
    for _ in range(_REFINEMENTS):
        per_ms = measured.per_second / 1000
        lows = _low_points(times, before, per_ms=per_ms, window_ms=window_ms, reversal_share=reversal_share)
        if len(lows) < 2:
            return average
        span_ms = times[lows[-1]] - times[lows[0]]
        rate = (before[lows[-1]] - before[lows[0]]) / span_ms * 1000
        measured = CycleMeasurement(per_second=rate, cycles=len(lows) - 1, span_ms=span_ms, swing=0.0)
    return measured


def _low_points(
    times: Sequence[float], before: Sequence[int], *, per_ms: float, window_ms: int, reversal_share: float
) -> list[int]:
    """Return the indices of the low points of `before - per_ms x time`.

    A low point counts only with a clear high on either side, so neither end of a trace is one.
    """
    level = [size - per_ms * t_ms for size, t_ms in zip(before, times, strict=True)]
    reversal = reversal_share * (max(level) - min(level))
    lows: list[int] = []
    low = high = 0
    falling = False
    for index, here in enumerate(level):
        if falling:
            if here < level[low]:
                low = index
            elif here > level[low] + reversal:
                if not lows or times[low] - times[lows[-1]] >= _MIN_SPACING_SHARE * window_ms:
                    lows.append(low)
                elif level[low] < level[lows[-1]]:
                    lows[-1] = low
                falling, high = False, index
        elif here > level[high]:
            high = index
        elif here < level[high] - reversal:
            falling, low = True, index
    return lows


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
    """The end on the clock of the charges, None if a client may have finished its work before."""
    workload: Workload = Workload.PRODUCE
    limited_from_ms: float | None = None
    """When the quota began to throttle, None if unknown, as a bucket of tokens may last for longer than a window."""
    patience_ms: float | None = None
    """The longest silence at the end that shows nothing: a throttle time, and a moment. None for one window."""
    mean_over_ms: tuple[float, float] | None = None
    """The time of which `offered` is the mean if stages change the rate, None for any part of the run."""
    offer_slack: float = 0.0
    """The share by which random arrivals, or bursts, may have been fewer than `offered`."""
    under_way: float = 0.0
    """The most that is under way at once to one broker, in the unit of its quota."""

    def silence_ms(self, window_ms: int) -> float:
        """Return the length of the silence at the end, 0 if it shows nothing."""
        if self.end_ms is None or not self.acks:
            return 0.0
        patience_ms = window_ms if self.patience_ms is None else self.patience_ms
        if self.workload is Workload.CONSUME:  # what one fetch waited for, another one of the client may have taken
            patience_ms *= 2
        silent_ms = self.end_ms - self.acks[-1][0]
        return silent_ms if silent_ms > patience_ms else 0.0


def entity_verdict(seen: Observation, *, quota: float | None, window_ms: int, warmup_ms: float) -> ClientVerdict:
    """Return the verdict on one client by its offer and its quota."""
    if quota is not None and (seen.offered is None or seen.offered > quota):
        return _greedy(seen, quota, window_ms=window_ms, warmup_ms=warmup_ms)
    return _unhindered(seen, quota, window_ms=window_ms, warmup_ms=warmup_ms)


def unjudged_verdict(
    seen: Observation, *, quota: float | None, window_ms: int, warmup_ms: float, is_staged: bool = False
) -> ClientVerdict:
    """Return the verdict on a client whose rate proves nothing.

    Thread time or expected errors limit such a client, or `is_staged`: its stages lead across its quota. The verdict
    has the quota all the same, if there is one for the rate.
    """
    plain = _unhindered(seen, None, window_ms=window_ms, warmup_ms=warmup_ms)
    reason = "its stages lead across its quota, so its rate" if is_staged else "its rate proves nothing here and"
    return replace(
        plain,
        kind=ObservationKind.STAGED if is_staged else ObservationKind.UNJUDGED,
        ok=True,
        quota=quota,
        ratio=None if quota is None else plain.achieved / quota,
        evidence=f"{plain.evidence}; {reason} is not judged",
    )


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
        silent_ms=seen.silence_ms(window_ms),
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


def _unhindered(seen: Observation, quota: float | None, *, window_ms: int, warmup_ms: float) -> ClientVerdict:
    if seen.mean_over_ms is None:
        end_ms = seen.end_ms if seen.silence_ms(window_ms) else None
        measured = average(seen.acks, window_ms=window_ms, skip_ms=warmup_ms, end_ms=end_ms)
        achieved, span_ms = measured.per_second, measured.span_ms
    else:
        from_ms, to_ms = seen.mean_over_ms
        span_ms = to_ms - from_ms
        achieved = sum(amount for t_ms, amount in seen.acks if t_ms >= from_ms) / span_ms * 1000
    offered, unit = seen.offered, UNITS[seen.workload]
    at_once = span_ms <= 0 and len(seen.acks) == 1  # a single answer: it has an instant, but no rate
    got_all = achieved > 0 or at_once if offered is None else achieved >= offered * (1 - TOLERANCE - seen.offer_slack)
    rate = unit.text(achieved) + ("" if offered is None else f" of the {unit.text(offered)} it offered")
    throttled = f"throttled {seen.throttle_count} times" if seen.throttle_count else "never throttled"
    return ClientVerdict(
        kind=ObservationKind.UNLIMITED if quota is None else ObservationKind.MODEST,
        ok=got_all and not (quota is None and seen.throttle_count),
        achieved=achieved,
        offered=offered,
        quota=quota,
        ratio=None if quota is None else achieved / quota,
        lower=None,
        upper=None,
        cycles=0,
        span_ms=span_ms,
        evidence=f"{'all answered at one instant, which has no rate' if at_once else rate}, {throttled}",
    )
