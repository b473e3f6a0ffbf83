"""The base of all kafka-python clients of a run: pacer, recorder, and a thread of their own.

These clients always honour throttling: the library itself sends nothing on a connection for the throttle time. It
reports no sizes of requests, only averages, from which `wire` is computed at the end.

The library reports throttle times nowhere but in its log: its metrics have the average and the longest of a period,
which give no sum. The log has every throttle time above 0, with the connection, which knows its client's id.
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
    """A log handler that keeps one client's throttle times until `close`."""

    def __init__(self, client_id: str | None) -> None:
        super().__init__(logging.WARNING)
        self._client_id = client_id
        self._told: deque[tuple[str, int]] = deque()
        logging.getLogger(_LOGGER).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the throttle time of a log record, if it is this client's."""
        arguments: Any = record.args
        if _SAID in record.msg and isinstance(arguments, tuple) and arguments[0].config["client_id"] == self._client_id:
            self._told.append((str(arguments[1]), int(arguments[2])))

    def taken(self) -> list[int]:
        """Remove and return the throttle times since the last call, in ms and in order."""
        return [self._told.popleft()[1] for _ in range(len(self._told))]

    def close(self) -> None:
        """Detach the handler from the library's log."""
        logging.getLogger(_LOGGER).removeHandler(self)
        super().close()


LONGEST_WAIT_S: Final = 0.05


class KafkaPythonClient(ABC):
    """One kafka-python client of a run, which is its own engine."""

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
        """The client itself, which is driven alone."""
        return (self,)

    def run(self, stop: threading.Event) -> None:
        """Open the library's client, put its load on the target until its end, and close it."""
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
        """Open the library's client."""

    @abstractmethod
    def work(self, client: Any, stop: threading.Event) -> None:
        """Put the client's load on the target until its end."""

    @abstractmethod
    def closed(self, client: Any) -> None:
        """Close the library's client and count the records without a response as unfinished."""

    def going_on(self, stop: threading.Event) -> bool:
        """Return whether the client still takes part."""
        return self.error is None and not stop.is_set() and time.monotonic_ns() < self.end_ns

    def wait(self, stop: threading.Event, *, until_ns: int | None = None) -> None:
        """Wait until the next arrival or `until_ns`, at most `LONGEST_WAIT_S`."""
        now_ns = time.monotonic_ns()
        due_ns = self.pacer.next_ns(now_ns) if until_ns is None else until_ns
        stop.wait(min(max((min(due_ns, self.end_ns) - now_ns) / 1e9, 0.0), LONGEST_WAIT_S))

    def count_dropped(self, now_ns: int) -> None:
        """Record the arrivals that the pacer drops because they are too long overdue."""
        late = self.pacer.dropped(now_ns)
        if late:
            self.recorder.dropped(late)

    def count_throttles(self) -> int:
        """Record the throttle times since the last call and return the longest, in ms."""
        told = self.throttles.taken()
        now_ns = time.monotonic_ns()
        for throttle_ms in told:
            self.recorder.throttled(now_ns, throttle_ms)
        return max(told, default=0)
