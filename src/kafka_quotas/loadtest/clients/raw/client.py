"""The base of all raw clients of a run: pacer, recorder, access to the cluster, and end.

Contract: one event loop runs them all, and `live` is the whole life of one.
"""

import time
from abc import ABC, abstractmethod

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.loadtest.clients.engine import RunClock
from kafka_quotas.loadtest.clients.pacer import Pacer
from kafka_quotas.loadtest.clients.raw.access import client_access
from kafka_quotas.loadtest.clients.raw.leaders import Leaders
from kafka_quotas.loadtest.clients.wire_overhead import WireCount
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.schedule_choice import schedule_of


class RawClient(ABC):
    """One raw client of a run."""

    def __init__(self, plan: LoadPlan, entity: ClientLoad, clock: RunClock, *, index: int, leaders: Leaders) -> None:
        self.plan = plan
        self.entity = entity
        self.leaders = leaders
        self.recorder = clock.recorder(plan)
        self.wire = WireCount(wire_bytes=0, payload_bytes=0)
        self.error: Exception | None = None
        self.trouble: Exception | None = None
        self.unfinished = 0
        self.start_ns, self.end_ns = clock.part_of(entity)
        self.access = client_access(plan, entity)
        self.pacer = Pacer(schedule_of(entity, seed=plan.seed + index), origin_ns=self.start_ns, loop=entity.loop)

    @property
    def is_going_on(self) -> bool:
        """Whether the client still sends."""
        return self.error is None and time.monotonic_ns() < self.end_ns

    @abstractmethod
    async def live(self) -> None:
        """Put the client's load on the target until its end, with the error that ends the run in `error`."""

    def start_in_s(self) -> float:
        """Return the seconds until the client starts, 0 from then on."""
        return max(0.0, (self.start_ns - time.monotonic_ns()) / 1e9)

    def count_dropped(self, now_ns: int) -> None:
        """Record the arrivals that the pacer drops because they are too long overdue."""
        late = self.pacer.dropped(now_ns)
        if late:
            self.recorder.dropped(late)

    def give_up(self, error: KafkaQuotasError) -> None:
        """End the run with this error, unless the client already has one."""
        self.error = self.error or error

    def end(self) -> None:
        """Stop sending now."""
        self.end_ns = min(self.end_ns, time.monotonic_ns())
