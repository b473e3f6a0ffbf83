"""What the clients of kafka-python have in common: a pacer, a recorder, and a life in a thread of their own.

They are co-operative always: the library itself sends nothing on a connection for the throttle time. It does not tell
the sizes of its requests, but averages, from which `wire` is reckoned at the end.

Throttle times that clients of kafka-python were told: the library says them in its log, and nowhere else.

Its metrics have the average and the longest of a while, from which no sum can be had. The log has every one above 0,
with the connection that was told it, which knows its client's id.
"""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from kafka_quotas.loadtest.clients.engine import LoadClient, RunClock
from kafka_quotas.loadtest.clients.kafka_python.settings import shared_settings, translated_error
from kafka_quotas.loadtest.clients.pacer import Pacer
from kafka_quotas.loadtest.clients.wire_overhead import WireCount
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.schedule_choice import schedule_of
from kafka_quotas.stores.library_logging import quieten

_LOGGER: Final = "kafka.net.connection"
_SAID: Final = "throttled by broker"


class ThrottleLog(logging.Handler):
    """The throttle times that one client is told, in ms, until `close`; nothing of them reaches a terminal."""

    def __init__(self, client_id: str | None) -> None:
        super().__init__(logging.WARNING)
        self._client_id = client_id
        self._told: deque[tuple[str, int]] = deque()
        logging.getLogger(_LOGGER).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Nothing; a throttle time of this client's is kept."""
        arguments: Any = record.args
        if _SAID in record.msg and isinstance(arguments, tuple) and arguments[0].config["client_id"] == self._client_id:
            self._told.append((str(arguments[1]), int(arguments[2])))

    def taken(self) -> list[int]:
        """The throttle times since the last call, in order."""
        return [self._told.popleft()[1] for _ in range(len(self._told))]

    def close(self) -> None:
        """Nothing; no more are kept."""
        logging.getLogger(_LOGGER).removeHandler(self)
        super().close()


LONGEST_WAIT_S: Final = 0.05


class KafkaPythonClient(ABC):
    """One client of kafka-python's in a run; it is its own engine."""

    def __init__(self, plan: LoadPlan, entity: ClientLoad, clock: RunClock) -> None:
        self.plan = plan
        self.entity = entity
        self.recorder = clock.recorder(plan)
        self.wire = WireCount(wire_bytes=0, payload_bytes=0)
        self.unfinished = 0
        self.error: Exception | None = None
        self.trouble: Exception | None = None
        self.start_ns, self.end_ns = clock.part_of(entity)
        schedule = schedule_of(entity, seed=plan.seed + plan.entities.index(entity))
        self.pacer = Pacer(schedule, origin_ns=self.start_ns, loop=entity.loop)
        self.settings = shared_settings(plan, entity)
        quieten("kafka")

    @property
    def clients(self) -> Sequence[LoadClient]:
        """Itself: a client of this library is driven alone."""
        return (self,)

    def run(self, stop: threading.Event) -> None:
        """Nothing; the client did its part of the run."""
        stop.wait(max(0.0, (self.start_ns - time.monotonic_ns()) / 1e9))
        self.throttles = ThrottleLog(self.entity.name.client_id)
        try:
            client = self.opened()
            try:
                self.work(client, stop)
            finally:
                self.closed(client)
                self.count_throttles()
        except Exception as error:  # noqa: BLE001 - the library's own errors are not all of one kind
            self.error = translated_error(error, bootstrap=self.plan.bootstrap)
        finally:
            self.throttles.close()

    @abstractmethod
    def opened(self) -> Any:
        """The library's client."""

    @abstractmethod
    def work(self, client: Any, stop: threading.Event) -> None:
        """Nothing; the load was put on until the end of the run."""

    @abstractmethod
    def closed(self, client: Any) -> None:
        """Nothing; the library's client is closed, and what had no answer is unfinished."""

    def going_on(self, stop: threading.Event) -> bool:
        """Whether its part of the run still lasts."""
        return self.error is None and not stop.is_set() and time.monotonic_ns() < self.end_ns

    def wait(self, stop: threading.Event, *, until_ns: int | None = None) -> None:
        """Nothing; an arrival is due, or a moment has passed."""
        now_ns = time.monotonic_ns()
        due_ns = self.pacer.next_ns(now_ns) if until_ns is None else until_ns
        stop.wait(min(max((min(due_ns, self.end_ns) - now_ns) / 1e9, 0.0), LONGEST_WAIT_S))

    def count_dropped(self, now_ns: int) -> None:
        """Nothing; arrivals that have waited for too long are let go."""
        late = self.pacer.dropped(now_ns)
        if late:
            self.recorder.dropped(late)

    def count_throttles(self) -> int:
        """The longest throttle time told since the last call, in ms; all of them are recorded."""
        told = self.throttles.taken()
        now_ns = time.monotonic_ns()
        for throttle_ms in told:
            self.recorder.throttled(now_ns, throttle_ms)
        return max(told, default=0)
