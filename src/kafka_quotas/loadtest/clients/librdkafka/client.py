"""The base of all librdkafka clients of a run: clock, recorder, and librdkafka's callbacks.

Invariant: one thread drives one client, and callbacks run in that thread, inside the client's own calls.
"""

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafka_quotas.loadtest.clients.engine import LoadClient, RunClock
from kafka_quotas.loadtest.clients.errors import is_fatal, translated
from kafka_quotas.loadtest.clients.wire_overhead import WireCount, wire_count
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.schedule_choice import schedule_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, ThrottleEvent

LONGEST_WAIT_S = 0.05
"""Longest wait between two looks at the end of the run."""
_SAMPLES_PER_S = 2000
"""Latencies recorded per second and client: a delivery callback costs about a microsecond, and so do its entries."""


class ClientState:
    """The state that producers and consumers share, and the callbacks that write it."""

    def __init__(self, plan: LoadPlan, entity: ClientLoad, clock: RunClock) -> None:
        self.plan = plan
        self.entity = entity
        self.clock = clock
        self.recorder = clock.recorder(plan)
        self.wire = WireCount(wire_bytes=0, payload_bytes=0)
        self.error: Exception | None = None
        self.unfinished = 0
        self.last_trouble: KafkaError | None = None
        self.start_ns, self.end_ns = clock.part_of(entity)
        self.schedule = schedule_of(entity, seed=plan.seed + plan.entities.index(entity))

    @property
    def clients(self) -> Sequence[LoadClient]:
        """The client itself, which is driven alone."""
        return (self,)

    @property
    def trouble(self) -> Exception | None:
        """The last error that did not end the run, or None."""
        return None if self.last_trouble is None else translated(self.last_trouble, bootstrap=self.plan.bootstrap)

    def callbacks(self) -> dict[str, object]:
        """Return the properties that set librdkafka's callbacks."""
        return {"error_cb": self.on_error, "throttle_cb": self.on_throttle, "stats_cb": self.on_statistics}

    def on_error(self, error: "KafkaError") -> None:
        """Keep the client's last error, and end the run if the error is fatal."""
        self.last_trouble = error
        if is_fatal(error) and self.error is None:
            self.error = translated(error, bootstrap=self.plan.bootstrap)

    def on_throttle(self, event: "ThrottleEvent") -> None:
        """Record a throttle time, which librdkafka reports in seconds."""
        self.recorder.throttled(time.monotonic_ns(), round(event.throttle_time * 1000))

    def on_statistics(self, statistics: str) -> None:
        """Update the bytes on the wire and the number of requests."""
        self.wire = wire_count(statistics, topic=self.entity.topic, direction=self.entity.direction)
        self.recorder.responded(time.monotonic_ns(), self.wire.requests)

    def await_start(self, stop: threading.Event) -> None:
        """Wait until the client's start or the end of the run."""
        stop.wait(max(0.0, (self.start_ns - time.monotonic_ns()) / 1e9))

    def going_on(self, stop: threading.Event, now_ns: int) -> bool:
        """Return whether the client still takes part."""
        return self.error is None and now_ns < self.end_ns and not stop.is_set()

    def sample_every(self) -> int:
        """Return N where every Nth record has its latency recorded.

        Returns:
            1 below some thousand records per second, 100 without a rate.
        """
        rate = self.entity.arrivals_per_second
        return 100 if rate is None else max(1, int(rate) // _SAMPLES_PER_S)

    def wait_until_due_s(self, index: int, now_ns: int) -> float:
        """Return the seconds until record `index` is due, at most `LONGEST_WAIT_S`, and 0 without a schedule."""
        if self.schedule is None:
            return 0.0
        intended_ns = self.start_ns + self.schedule.intended_ns(index)
        return min(max((intended_ns - now_ns) / 1e9, 0.0), LONGEST_WAIT_S)
