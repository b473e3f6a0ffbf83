"""When a client may send: its schedule, its progress through it, and the arrivals that it drops.

Open loop: an arrival is due at its time whatever the target does, and the client drops one that it could not send
within `OUTSTANDING_S`. Closed loop: no arrival falls due while the client waits for a response, and the schedule
continues from that response. Times are nanoseconds of the run's clock.
"""

from typing import Final

from kafka_quotas.loadtest.plan.schedule import Schedule
from kafka_quotas.loadtest.plan.workload import Loop

OUTSTANDING_S: Final = 60
"""How long an arrival may be overdue before it is dropped."""


class Pacer:
    """The arrivals of one client, of which any number is due at any time without a schedule."""

    def __init__(self, schedule: Schedule | None, *, origin_ns: int, loop: Loop) -> None:
        self._schedule = schedule
        self._origin_ns = origin_ns
        self._is_closed = loop is Loop.CLOSED
        self.taken = 0

    def postpone(self, by_ns: int) -> None:
        """Let every arrival be due later."""
        self._origin_ns += by_ns

    @property
    def is_unpaced(self) -> bool:
        """Whether there is no schedule."""
        return self._schedule is None

    def due(self, now_ns: int, *, most: int) -> int:
        """Return the number of arrivals that are due and not taken, at most `most`."""
        if self._schedule is None:
            return most
        return min(self._schedule.due_count(now_ns - self._origin_ns) - self.taken, most)

    def due_by(self, now_ns: int) -> int:
        """Return the number of arrivals that are due in an open loop, 0 in any other."""
        if self._schedule is None or self._is_closed:
            return 0
        return self._schedule.due_count(now_ns - self._origin_ns)

    def overdue(self, now_ns: int) -> range:
        """Return an open loop's arrivals that are due and not taken."""
        return range(self.taken, max(self.taken, self.due_by(now_ns)))

    def dropped(self, now_ns: int) -> range:
        """Take an open loop's arrivals that are overdue by `OUTSTANDING_S`, and return them."""
        late = self.overdue(now_ns - OUTSTANDING_S * 1_000_000_000)
        self.taken += len(late)
        return late

    def answered(self, now_ns: int) -> None:
        """Postpone a closed loop's overdue arrivals to the time of this response."""
        if self._schedule is not None and self._is_closed:
            # Arrivals that fell due during the wait do not pile up into a burst.
            self._origin_ns += max(0, now_ns - self.intended_ns(self.taken, now_ns))

    def intended_ns(self, index: int, now_ns: int) -> int:
        """Return when arrival `index` is due, or `now_ns` without a schedule."""
        return now_ns if self._schedule is None else self._origin_ns + self._schedule.intended_ns(index)

    def next_ns(self, now_ns: int) -> int:
        """Return when the first arrival that is not taken is due, or `now_ns` without a schedule."""
        return self.intended_ns(self.taken, now_ns)
