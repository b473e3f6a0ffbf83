"""Schedules of open-loop loads: when each record is due, decided in advance and independent of the target.

Contract: pure. Times are nanoseconds since the start of the load, and record indices start at 0. `due_count` and
`intended_ns` agree exactly: record i counts as due from the instant `intended_ns(i)` on and not before.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from kafka_quotas.core.errors import UsageError

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
