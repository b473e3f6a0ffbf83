"""When a client may send what: its schedule, how far it got in it, and what it has to let go.

Open loop: an arrival is due at its time whatever the target does, and one that could not be sent within
`OUTSTANDING_S` is dropped. Closed loop: arrivals that would have been due while the client waited for an answer never
were; the schedule goes on from the answer. Times are nanoseconds of the run's clock.
"""

from typing import Final

from kafka_quotas.loadtest.plan.schedule import Schedule
from kafka_quotas.loadtest.plan.workload import Loop

OUTSTANDING_S: Final = 60
"""How long an arrival may be overdue before it is dropped."""
NEVER_NS: Final = 2**63 - 1


class Pacer:
    """The arrivals of one client; without a schedule any number is due at any time."""

    def __init__(self, schedule: Schedule | None, *, origin_ns: int, loop: Loop) -> None:
        self._schedule = schedule
        self._origin_ns = origin_ns
        self._is_closed = loop is Loop.CLOSED
        self.taken = 0

    @property
    def is_unpaced(self) -> bool:
        """Whether there is no schedule."""
        return self._schedule is None

    def due(self, now_ns: int, *, most: int) -> int:
        """How many arrivals are due and not taken yet, at most `most`."""
        if self._schedule is None:
            return most
        return min(self._schedule.due_count(now_ns - self._origin_ns) - self.taken, most)

    def dropped(self, now_ns: int) -> int:
        """How many arrivals have waited for too long; they are taken."""
        if self._schedule is None or self._is_closed:
            return 0
        late = self._schedule.due_count(now_ns - self._origin_ns - OUTSTANDING_S * 1_000_000_000) - self.taken
        self.taken += max(late, 0)
        return max(late, 0)

    def answered(self, now_ns: int) -> None:
        """Nothing; in a closed loop, arrivals missed while waiting for this answer are put off until now."""
        if self._schedule is not None and self._is_closed:
            self._origin_ns += max(0, now_ns - self.intended_ns(self.taken, now_ns))

    def intended_ns(self, index: int, now_ns: int) -> int:
        """When arrival `index` is due; `now_ns` without a schedule."""
        return now_ns if self._schedule is None else self._origin_ns + self._schedule.intended_ns(index)

    def next_ns(self, now_ns: int) -> int:
        """When the next arrival that is not taken is due."""
        return self.intended_ns(self.taken, now_ns)
