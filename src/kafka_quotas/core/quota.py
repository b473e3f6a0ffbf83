"""A bound on a measured value, from above or from below.

Invariants: a value equal to the bound is acceptable, NaN never is; quotas are equal when bound and direction are, and
as in Java a bound of NaN equals nothing.
**Source:** `org.apache.kafka.common.metrics.Quota` (Kafka 4.0).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Quota:
    """A bound (unit of what is measured), by default an upper one."""

    bound: float
    upper: bool = True

    def acceptable(self, value: float) -> bool:
        """Whether a value is within the bound."""
        return value <= self.bound if self.upper else value >= self.bound

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quota) and (self is other or (self.bound == other.bound and self.upper == other.upper))

    def __hash__(self) -> int:
        return hash((self.bound, self.upper))
