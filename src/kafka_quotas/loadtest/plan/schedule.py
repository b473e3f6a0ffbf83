"""Schedules of open-loop loads: when each arrival is due, whatever the target does.

Contract: pure. Times are nanoseconds since the start of the load, and indices start at 0. `due_count` and `intended_ns`
agree exactly: arrival i counts as due from the instant `intended_ns(i)` on and not before. The same seed gives the same
arrivals. Any index can be asked for at once, in memory that does not grow, so a day of arrivals costs no more than its
last second.
"""

import random
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Protocol

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadShare
from kafka_quotas.loadtest.plan.ramp import RampSchedule, multiplied
from kafka_quotas.loadtest.plan.workload import Arrival

_BLOCK: Final = 256
_KEPT: Final = 4
TICKS: Final = 1 << 20
"""The grain of random arrivals: parts of the mean distance between two."""
NS_PER_S = 1_000_000_000


class Schedule(Protocol):
    """The intended time of every record."""

    def intended_ns(self, index: int) -> int:
        """Return when record `index` is due, in nanoseconds since the start."""
        ...

    def due_count(self, elapsed_ns: int) -> int:
        """Return how many records are due at `elapsed_ns`, earlier ones included."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantSchedule:
    """Records at even intervals.

    The rate is a fraction, so the schedule of a day has no drift. A rate that is not above 0 raises a `UsageError`.
    """

    records_per_second: Fraction

    def __post_init__(self) -> None:
        if self.records_per_second <= 0:
            raise UsageError(f"a rate must be above 0 records/s, not {self.records_per_second}")

    def intended_ns(self, index: int) -> int:
        """Return when record `index` is due, in nanoseconds since the start."""
        rate = self.records_per_second
        return index * NS_PER_S * rate.denominator // rate.numerator

    def due_count(self, elapsed_ns: int) -> int:
        """Return how many records are due at `elapsed_ns`, the one at 0 included, and none before the start."""
        if elapsed_ns < 0:
            return 0
        rate = self.records_per_second
        return -((elapsed_ns + 1) * rate.numerator // -(NS_PER_S * rate.denominator))  # rounded up


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonSchedule:
    """Arrivals at random and independent of each other, at the rate of an even schedule.

    Each 256 of them share the span in which 256 even arrivals lie, and lie in it as a Poisson process lies that is
    known to have had 256 arrivals: sorted uniform instants. So the rate is exact over any longer time, without drift,
    and only fluctuations of the sum over many such spans are missing.
    """

    ticks: Schedule
    """The even schedule, with `TICKS` of its own arrivals for each arrival."""
    seed: int
    _kept: "dict[int, array[int]]" = field(init=False, repr=False, compare=False, default_factory=dict)

    def intended_ns(self, index: int) -> int:
        """Return when arrival `index` is due, in nanoseconds since the start."""
        block, position = divmod(index, _BLOCK)
        return self._instants(block)[position]

    def due_count(self, elapsed_ns: int) -> int:
        """Return how many arrivals are due at `elapsed_ns`, earlier ones included."""
        if elapsed_ns < 0:
            return 0
        block = (self.ticks.due_count(elapsed_ns) - 1) // (_BLOCK * TICKS)  # the span that this instant lies in
        return block * _BLOCK + bisect_right(self._instants(block), elapsed_ns)

    def _instants(self, block: int) -> "array[int]":
        """Return the sorted instants of one span, cached for the spans that are sent and due."""
        kept = self._kept
        found = kept.get(block)
        if found is None:
            if len(kept) >= _KEPT:
                del kept[next(iter(kept))]
            source = random.Random(f"{self.seed}/{block}")  # noqa: S311 - spread, not secrets
            first, span = block * _BLOCK * TICKS, _BLOCK * TICKS
            instants = [self.ticks.intended_ns(first + int(source.random() * span)) for _ in range(_BLOCK)]
            found = kept[block] = array("q", sorted(instants))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstSchedule:
    """Bursts of `burst_size` arrivals at once, each with one arrival of an even schedule."""

    bursts: Schedule
    burst_size: int

    def __post_init__(self) -> None:
        if self.burst_size < 1:
            raise UsageError(f"a burst has one arrival at least, not {self.burst_size}")

    def intended_ns(self, index: int) -> int:
        """Return when arrival `index` is due, in nanoseconds since the start."""
        return self.bursts.intended_ns(index // self.burst_size)

    def due_count(self, elapsed_ns: int) -> int:
        """Return how many arrivals are due at `elapsed_ns`, earlier ones included."""
        return self.bursts.due_count(elapsed_ns) * self.burst_size


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSchedule:
    """Every Nth arrival of a schedule, so that N shares have all of them between them, and none twice."""

    whole: Schedule
    share: LoadShare

    def intended_ns(self, index: int) -> int:
        """Return when arrival `index` of the share is due, in nanoseconds since the start."""
        return self.whole.intended_ns(index * self.share.count + self.share.number - 1)

    def due_count(self, elapsed_ns: int) -> int:
        """Return how many arrivals of the share are due at `elapsed_ns`, earlier ones included."""
        return (self.whole.due_count(elapsed_ns) + self.share.count - self.share.number) // self.share.count


def schedule_of(entity: ClientLoad, *, seed: int) -> Schedule | None:
    """Return the schedule of a client's arrivals, None for as many as possible."""
    whole = _whole_schedule(entity, seed=seed)
    if whole is None or entity.share.count == 1:
        return whole
    return ShareSchedule(whole=whole, share=entity.share)


def _whole_schedule(entity: ClientLoad, *, seed: int) -> Schedule | None:
    match entity.arrival:
        case _ if entity.arrivals_per_second is None:
            return None
        case Arrival.CONSTANT:
            return _even_schedule(entity, Fraction(1))
        case Arrival.POISSON:
            return PoissonSchedule(ticks=_even_schedule(entity, Fraction(TICKS)), seed=seed)
        case Arrival.BURST:
            bursts = _even_schedule(entity, Fraction(1, entity.burst_size))
            return BurstSchedule(bursts=bursts, burst_size=entity.burst_size)


def _even_schedule(entity: ClientLoad, factor: Fraction) -> Schedule:
    """Return the even schedule of a client's rate times a factor, along its ramp where it has one."""
    if entity.ramp:
        return RampSchedule(phases=multiplied(entity.ramp, factor))
    return ConstantSchedule(records_per_second=(entity.arrivals_per_second or Fraction(0)) * factor)
