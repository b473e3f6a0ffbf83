"""The base of all load clients: when one may send, how far it is in its schedule, and which arrivals it drops.

Open loop: an arrival is due at its time whatever the target does, and the client drops one that it could not send
within `OUTSTANDING_S`. Closed loop: no arrival falls due while the client waits for a response, and the schedule
continues from that response. Times are nanoseconds of the run's clock.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from kafka_quotas.loadtest.measurement.delivery import Books
from kafka_quotas.loadtest.measurement.recorder import Recorder, room_for
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.schedule import NS_PER_S, Schedule, schedule_of
from kafka_quotas.loadtest.plan.workload import Arrival, Loop, MutationFlood, Workload

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


_UNSENT_GROUPS: Final = 1000


class RunClock(NamedTuple):
    """The instants of a run, in nanoseconds of the monotonic clock."""

    start_ns: int
    measure_from_ns: int
    """End of the warm-up."""
    end_ns: int

    def part_of(self, entity: ClientLoad) -> tuple[int, int]:
        """Return when a client starts and stops to take part, in nanoseconds of the same clock."""
        end_ns = self.end_ns
        if entity.stop_s is not None:
            end_ns = min(end_ns, self.start_ns + int(entity.stop_s * 1e9))
        return self.start_ns + int(entity.start_s * 1e9), end_ns

    def recorder(self, plan: LoadPlan) -> Recorder:
        """Return an empty recorder for one client, whose buffers depend on the number of clients in the plan."""
        return Recorder(
            start_ns=self.start_ns,
            measure_from_ns=self.measure_from_ns,
            window_ms=plan.window_ms,
            room=room_for(len(plan.entities)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WireCount:
    """The bytes and requests of one client since it started.

    A quota counts whole requests and responses, an application counts record values. At 1 KiB records the difference is
    about 1 %, which is half of what a verdict tolerates, and with compression far larger.
    """

    wire_bytes: int = 0
    payload_bytes: int = 0
    """Bytes of payload within them."""
    requests: int = 0

    @property
    def ratio(self) -> float:
        """Wire bytes per byte of payload, or 1 before there is any payload."""
        return self.wire_bytes / self.payload_bytes if self.payload_bytes else 1.0


def phase_ns(entity: ClientLoad, index: int, *, of: int) -> int:
    """Return how long after its start the first of a client's even arrivals is due, below their distance.

    Each client of a run has its own share of that time. Without it a thousand clients with one rate would all be due at
    the same instants, and most of them late.
    """
    rate = entity.arrivals_per_second
    if entity.arrival is not Arrival.CONSTANT or entity.ramp or not rate:
        return 0
    return int(NS_PER_S * index / (rate * of))


class LoadClient:
    """One client of a run: its load, its part of the run, and what came of it."""

    def __init__(self, plan: LoadPlan, entity: ClientLoad, clock: RunClock) -> None:
        self.plan = plan
        self.entity = entity
        self.index = next(at for at, each in enumerate(plan.entities) if each is entity)  # they take long to compare
        self.recorder = clock.recorder(plan)
        self.wire = WireCount()
        self.unfinished = 0
        """Records or requests that were sent and had no response at the end."""
        self.latency_every = 1
        """N, where every Nth record has its latency recorded."""
        self._overdue = 0
        self.error: Exception | None = None
        self.trouble: Exception | None = None
        """The last error that did not end the run, which reports it if nothing is ever acknowledged."""
        self.start_ns, self.end_ns = clock.part_of(entity)
        origin_ns = self.start_ns + phase_ns(entity, self.index, of=len(plan.entities))
        self.pacer = Pacer(schedule_of(entity, seed=plan.seed + self.index), origin_ns=origin_ns, loop=entity.loop)

    def postpone(self, by_ns: int) -> None:
        """Begin later than was planned: a run begins when all of its clients are made."""
        self.start_ns += by_ns
        self.end_ns += by_ns
        self.pacer.postpone(by_ns)
        self.recorder.postpone(by_ns)

    @property
    def is_active(self) -> bool:
        """Whether the client still sends."""
        return self.error is None and time.monotonic_ns() < self.end_ns

    def start_in_s(self) -> float:
        """Return the seconds until the client starts, 0 from then on."""
        return max(0.0, (self.start_ns - time.monotonic_ns()) / 1e9)

    def take_arrival(self, now_ns: int, *, sent: int = 1) -> int:
        """Take the next arrival, which counts as `sent` records or requests, and return when it was due."""
        intended_ns = self.pacer.intended_ns(self.pacer.taken, now_ns)
        self.pacer.taken += 1
        self.recorder.sent += sent
        return intended_ns

    def count_dropped(self, now_ns: int) -> None:
        """Record the arrivals that the pacer drops because they are too long overdue."""
        late = self.pacer.dropped(now_ns)
        if late:
            self.recorder.dropped(len(late))
            self._record_unsent(late, until_ns=now_ns)

    def settle(self, end_ns: int) -> None:
        """Record the arrivals that were due by the end of the client's part and never sent."""
        self.end_ns = min(self.end_ns, end_ns)
        late = self.pacer.overdue(self.end_ns - 1)  # what is due at the end is no part of the run
        self._overdue = len(late)
        self._record_unsent(late, until_ns=self.end_ns)
        self.recorder.fold()

    def books(self, *, answer_ms: float) -> Books:
        """Return the books after `settle`, where an answer takes `answer_ms` milliseconds at most."""
        recorder, pacer = self.recorder, self.pacer
        unsent = self._overdue + recorder.dropped_count
        is_read = self.entity.workload is Workload.CONSUME  # whose failures are those of fetches, not of records
        flood = self.entity.flood
        if isinstance(flood, MutationFlood):  # an arrival is a request, and the books are of topics
            unsent *= flood.topics_per_request
            due = recorder.sent + unsent
            settled = 0
        else:
            due = max(pacer.taken, pacer.due_by(self.end_ns - 1))
            settled = pacer.due_by(self.end_ns - int(answer_ms * 1e6))
        return Books(
            due=due,
            acknowledged=recorder.acked,
            failed=0 if is_read else recorder.failures.total(),
            unsent=unsent,
            unanswered=self.unfinished,
            doubtful=min(recorder.unwatched.count, recorder.acked),
            settled=settled,
        )

    def _record_unsent(self, late: range, *, until_ns: int) -> None:
        """Record how long arrivals have waited, in groups that count as the one in each that waited least."""
        step = max(len(late) // _UNSENT_GROUPS, self.latency_every)
        for group in (late[start : start + step] for start in range(0, len(late), step)):
            count = max(len(group) // self.latency_every, 1)
            intended_ns = self.pacer.intended_ns(group[-1], until_ns)
            self.recorder.unsent(intended_ns=intended_ns, until_ns=until_ns, count=count)


class ClientEngine(Protocol):
    """The clients that one thread drives between `RunClock.start_ns` and `RunClock.end_ns`."""

    @property
    def clients(self) -> Sequence[LoadClient]:
        """The clients, whose recorders fill while the engine runs."""
        ...

    @property
    def head_start_ns(self) -> int:
        """How long before the start of the run its thread begins, to have its connections by then."""
        ...

    def run(self, stop: threading.Event) -> None:
        """Drive the clients until the run ends, `stop` is set, or a client has an `error`."""
