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
from kafka_quotas.loadtest.plan.plan import ClientLoad
from kafka_quotas.loadtest.plan.workload import Arrival

_BLOCK: Final = 256
_KEPT: Final = 4
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
    """Arrivals at random and independent of each other, at a mean rate.

    Each 256 of them share a span of 256 / rate seconds, in which they lie as a Poisson process lies that is known to
    have had 256 arrivals: sorted uniform instants. So the rate is exact over any longer time, without drift, and only
    fluctuations of the sum over many such spans are missing. A rate that is not above 0 raises a `UsageError`.
    """

    arrivals_per_second: Fraction
    seed: int
    _even: ConstantSchedule = field(init=False, repr=False)
    _kept: "dict[int, array[int]]" = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_even", ConstantSchedule(records_per_second=self.arrivals_per_second))

    def intended_ns(self, index: int) -> int:
        """Return when arrival `index` is due, in nanoseconds since the start."""
        block, position = divmod(index, _BLOCK)
        return self._instants(block)[position]

    def due_count(self, elapsed_ns: int) -> int:
        """Return how many arrivals are due at `elapsed_ns`, earlier ones included."""
        if elapsed_ns < 0:
            return 0
        block = (self._even.due_count(elapsed_ns) - 1) // _BLOCK  # the span that this instant lies in
        return block * _BLOCK + bisect_right(self._instants(block), elapsed_ns)

    def _instants(self, block: int) -> "array[int]":
        """Return the sorted instants of one span, cached for the spans that are sent and due."""
        kept = self._kept
        found = kept.get(block)
        if found is None:
            if len(kept) >= _KEPT:
                del kept[next(iter(kept))]
            first_ns = self._even.intended_ns(block * _BLOCK)
            span_ns = self._even.intended_ns((block + 1) * _BLOCK) - first_ns
            source = random.Random(f"{self.seed}/{block}")  # noqa: S311 - spread, not secrets
            instants = sorted(first_ns + int(source.random() * span_ns) for _ in range(_BLOCK))
            found = kept[block] = array("q", instants)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstSchedule:
    """Bursts of `burst_size` arrivals at once, with pauses that keep the mean rate."""

    arrivals_per_second: Fraction
    burst_size: int
    _bursts: ConstantSchedule = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.burst_size < 1:
            raise UsageError(f"a burst has one arrival at least, not {self.burst_size}")
        bursts = ConstantSchedule(records_per_second=self.arrivals_per_second / self.burst_size)
        object.__setattr__(self, "_bursts", bursts)

    def intended_ns(self, index: int) -> int:
        """Return when arrival `index` is due, in nanoseconds since the start."""
        return self._bursts.intended_ns(index // self.burst_size)

    def due_count(self, elapsed_ns: int) -> int:
        """Return how many arrivals are due at `elapsed_ns`, earlier ones included."""
        return self._bursts.due_count(elapsed_ns) * self.burst_size


def schedule_of(entity: ClientLoad, *, seed: int) -> Schedule | None:
    """Return the schedule of a client's arrivals, None for as many as possible."""
    rate = entity.arrivals_per_second
    if rate is None:
        return None
    match entity.arrival:
        case Arrival.CONSTANT:
            return ConstantSchedule(records_per_second=rate)
        case Arrival.POISSON:
            return PoissonSchedule(arrivals_per_second=rate, seed=seed)
        case Arrival.BURST:
            return BurstSchedule(arrivals_per_second=rate, burst_size=entity.burst_size)
