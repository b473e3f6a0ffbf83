"""Schedules, which say when arrivals are due: evenly, along a ramp, at random, or in bursts.

A phase of a ramp leads from one rate to another in a straight line. After the last phase its rate remains.

Contract: pure. Counts are exact: the number of arrivals up to an instant is a quadratic function with whole
coefficients, so that `due_count` and `intended_ns` agree to the nanosecond.
"""

import math
import random
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, Protocol

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadShare, RampPhase
from kafka_quotas.loadtest.plan.workload import Arrival

NS_PER_S: Final = 1_000_000_000
NEVER_NS: Final = 365 * 86_400 * NS_PER_S
"""When an arrival is due that a ramp to 0 leaves out: a year after the start, longer than any run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """A phase on the time axis, with (offset + linear * t + quadratic * t**2) / unit arrivals up to t."""

    start_ns: int
    unit: int
    offset: int
    linear: int
    quadratic: int

    def scaled_count(self, elapsed_ns: int) -> int:
        """Return `unit` times the arrivals until an instant, in nanoseconds since the start of the ramp."""
        t_ns = elapsed_ns - self.start_ns
        return self.offset + (self.linear + self.quadratic * t_ns) * t_ns

    def first_ns(self, index: int) -> int:
        need = index * self.unit - self.offset
        if need <= 0:
            return self.start_ns
        if not self.quadratic:
            return self.start_ns + -(-need // self.linear) if self.linear else NEVER_NS
        root = math.isqrt(max(self.linear**2 + 4 * self.quadratic * need, 0))
        found_ns = self.start_ns + max((root - self.linear) // (2 * self.quadratic), 0)
        # The whole root is up to 1 below the true one, so the instant may be off by one or two.
        while self.scaled_count(found_ns) < index * self.unit:
            found_ns += 1
        while found_ns > self.start_ns and self.scaled_count(found_ns - 1) >= index * self.unit:
            found_ns -= 1
        return found_ns


class RampSchedule:
    """Arrivals at even steps of the area below a rate that changes."""

    def __init__(self, phases: Sequence[RampPhase]) -> None:
        self._segments = segments = list(_segments(phases))
        self._starts_ns = [each.start_ns for each in segments]
        self._lasts = [each.offset // each.unit for each in segments[1:]]
        """The last arrival that is due by the end of each segment but the last."""

    def intended_ns(self, index: int) -> int:
        """Return when arrival `index` is due, in ns since the start, `NEVER_NS` where the rate ends at 0."""
        return self._segments[bisect_left(self._lasts, index)].first_ns(index)

    def due_count(self, elapsed_ns: int) -> int:
        """Return how many arrivals are due at `elapsed_ns`, earlier ones included."""
        if elapsed_ns < 0:
            return 0
        segment = self._segments[bisect_right(self._starts_ns, elapsed_ns) - 1]
        return segment.scaled_count(elapsed_ns) // segment.unit + 1


def multiplied(phases: Sequence[RampPhase], factor: Fraction) -> tuple[RampPhase, ...]:
    """Return the phases with their rates times a factor."""
    return tuple(replace(each, start_rate=each.start_rate * factor, end_rate=each.end_rate * factor) for each in phases)


def mean_rate(phases: Sequence[RampPhase], *, from_s: float, to_s: float) -> float:
    """Return the average rate between two instants in seconds since the start of the ramp."""
    if to_s <= from_s:
        return 0.0
    area = sum((low + high) / 2 * length for length, low, high in _pieces(phases, from_s, to_s))
    return area / (to_s - from_s)


def rate_bounds(phases: Sequence[RampPhase], *, from_s: float, to_s: float) -> tuple[float, float]:
    """Return the lowest and the highest rate between two instants in seconds since the start of the ramp."""
    ends = [rate for _, *rates in _pieces(phases, from_s, to_s) for rate in rates]
    return min(ends, default=0.0), max(ends, default=0.0)


def _segments(phases: Sequence[RampPhase]) -> Iterator[_Segment]:
    count, start_ns = Fraction(0), 0
    for phase in phases:
        length_ns = round(phase.duration_s * NS_PER_S)
        if not length_ns:
            continue
        yield _segment(start_ns, count, phase.start_rate, (phase.end_rate - phase.start_rate) / (2 * length_ns))
        count += (phase.start_rate + phase.end_rate) * length_ns / (2 * NS_PER_S)
        start_ns += length_ns
    yield _segment(start_ns, count, phases[-1].end_rate, Fraction(0))


def _segment(start_ns: int, count: Fraction, rate: Fraction, growth: Fraction) -> _Segment:
    parts = (count, rate / NS_PER_S, growth / NS_PER_S)
    unit = math.lcm(*(part.denominator for part in parts))
    offset, linear, quadratic = (int(part * unit) for part in parts)
    return _Segment(start_ns=start_ns, unit=unit, offset=offset, linear=linear, quadratic=quadratic)


def _pieces(phases: Sequence[RampPhase], from_s: float, to_s: float) -> Iterator[tuple[float, float, float]]:
    start_s = 0.0
    last = phases[-1].end_rate
    for phase in (*phases, RampPhase(duration_s=math.inf, start_rate=last, end_rate=last)):
        end_s = start_s + phase.duration_s
        low_s, high_s = max(from_s, start_s), min(to_s, end_s)
        if high_s > low_s:
            rise = float(phase.end_rate - phase.start_rate)
            shares = ((at_s - start_s) / phase.duration_s for at_s in (low_s, high_s))
            first, last_rate = (float(phase.start_rate) + rise * share for share in shares)
            yield high_s - low_s, first, last_rate
        start_s = end_s


_BLOCK: Final = 256
_KEPT: Final = 4
TICKS: Final = 1 << 20
"""The grain of random arrivals: parts of the mean distance between two."""


class Schedule(Protocol):
    """The intended time of every record."""

    def intended_ns(self, index: int) -> int:
        """Return when record `index` is due, in nanoseconds since the start."""
        ...

    def due_count(self, elapsed_ns: int) -> int:
        """Return how many records are due at `elapsed_ns`, earlier ones included."""
        ...


def even_schedule(records_per_second: Fraction) -> RampSchedule:
    """Return the schedule of records at even intervals, without a drift: the rate is a fraction."""
    if records_per_second <= 0:
        raise UsageError(f"a rate must be above 0 records/s, not {records_per_second}")
    return RampSchedule([RampPhase(duration_s=0.0, start_rate=records_per_second, end_rate=records_per_second)])


class PoissonSchedule:
    """Arrivals at random and independent of each other, at the rate of an even schedule.

    Each 256 of them share the span in which 256 even arrivals lie, and lie in it as a Poisson process lies that is
    known to have had 256 arrivals: sorted uniform instants. So the rate is exact over any longer time, without drift,
    and only fluctuations of the sum over many such spans are missing.
    """

    def __init__(self, ticks: Schedule, *, seed: int) -> None:
        """Make the schedule from an even one, which has `TICKS` arrivals for each arrival."""
        self._ticks = ticks
        self._seed = seed
        self._kept: dict[int, array[int]] = {}

    def intended_ns(self, index: int) -> int:
        block, position = divmod(index, _BLOCK)
        return self._instants(block)[position]

    def due_count(self, elapsed_ns: int) -> int:
        if elapsed_ns < 0:
            return 0
        block = (self._ticks.due_count(elapsed_ns) - 1) // (_BLOCK * TICKS)  # the span that this instant lies in
        return block * _BLOCK + bisect_right(self._instants(block), elapsed_ns)

    def _instants(self, block: int) -> "array[int]":
        kept = self._kept
        found = kept.get(block)
        if found is None:
            if len(kept) >= _KEPT:
                del kept[next(iter(kept))]
            source = random.Random(f"{self._seed}/{block}")  # noqa: S311 - spread, not secrets
            first, span = block * _BLOCK * TICKS, _BLOCK * TICKS
            instants = [self._ticks.intended_ns(first + int(source.random() * span)) for _ in range(_BLOCK)]
            found = kept[block] = array("q", sorted(instants))
        return found


class BurstSchedule:
    """Bursts of `burst_size` arrivals at once, each with one arrival of an even schedule."""

    def __init__(self, bursts: Schedule, *, burst_size: int) -> None:
        self._bursts = bursts
        self._burst_size = burst_size

    def intended_ns(self, index: int) -> int:
        return self._bursts.intended_ns(index // self._burst_size)

    def due_count(self, elapsed_ns: int) -> int:
        return self._bursts.due_count(elapsed_ns) * self._burst_size


class ShareSchedule:
    """Every Nth arrival of a schedule, so that N shares have all of them between them, and none twice."""

    def __init__(self, whole: Schedule, share: LoadShare) -> None:
        self._whole = whole
        self._share = share

    def intended_ns(self, index: int) -> int:
        return self._whole.intended_ns(index * self._share.count + self._share.number - 1)

    def due_count(self, elapsed_ns: int) -> int:
        return (self._whole.due_count(elapsed_ns) + self._share.count - self._share.number) // self._share.count


def schedule_of(entity: ClientLoad, *, seed: int) -> Schedule | None:
    """Return the schedule of a client's arrivals, None for as many as possible."""
    whole = _whole_schedule(entity, seed=seed)
    if whole is None or entity.share.count == 1:
        return whole
    return ShareSchedule(whole, entity.share)


def _whole_schedule(entity: ClientLoad, *, seed: int) -> Schedule | None:
    match entity.arrival:
        case _ if entity.arrivals_per_second is None:
            return None
        case Arrival.CONSTANT:
            return _even_schedule(entity, Fraction(1))
        case Arrival.POISSON:
            return PoissonSchedule(_even_schedule(entity, Fraction(TICKS)), seed=seed)
        case Arrival.BURST:
            bursts = _even_schedule(entity, Fraction(1, entity.burst_size))
            return BurstSchedule(bursts, burst_size=entity.burst_size)


def _even_schedule(entity: ClientLoad, factor: Fraction) -> Schedule:
    if entity.ramp:
        return RampSchedule(multiplied(entity.ramp, factor))
    return even_schedule((entity.arrivals_per_second or Fraction(0)) * factor)
