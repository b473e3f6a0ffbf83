"""The base of all kafka-python clients of a run, each with a thread of its own.

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
from typing import Any, Final

from kafka_quotas.loadtest.clients.engine import RunClock, SoloClient
from kafka_quotas.loadtest.clients.kafka_python.settings import shared_settings, translated_error
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.stores.reachability import quieten

_LOGGER: Final = "kafka.net.connection"
_MESSAGE: Final = "throttled by broker"


class ThrottleLog(logging.Handler):
    """A log handler that keeps one client's throttle times until `close`."""

    def __init__(self, client_id: str | None) -> None:
        super().__init__(logging.WARNING)
        self._client_id = client_id
        self._throttle_times: deque[int] = deque()
        logging.getLogger(_LOGGER).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the throttle time of a log record, if it is this client's."""
        arguments: Any = record.args
        if _MESSAGE not in record.msg or not isinstance(arguments, tuple):
            return
        connection, *_, throttle_ms = arguments
        if connection.config["client_id"] == self._client_id:
            self._throttle_times.append(int(throttle_ms))

    def taken(self) -> list[int]:
        """Remove and return the throttle times since the last call, in ms and in order."""
        return [self._throttle_times.popleft() for _ in range(len(self._throttle_times))]

    def close(self) -> None:
        """Detach the handler from the library's log."""
        logging.getLogger(_LOGGER).removeHandler(self)
        super().close()


LONGEST_WAIT_S: Final = 0.05


class KafkaPythonClient(SoloClient, ABC):
    """One kafka-python client of a run, which is its own engine."""

    def __init__(self, plan: LoadPlan, entity: ClientLoad, clock: RunClock) -> None:
        super().__init__(plan, entity, clock)
        self.settings = shared_settings(plan, entity)
        quieten("kafka")

    def run(self, stop: threading.Event) -> None:
        """Open the library's client, put its load on the target until its end, and close it."""
        stop.wait(self.start_in_s())
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

    def wait(self, stop: threading.Event, *, until_ns: int | None = None) -> None:
        """Wait until the next arrival or `until_ns`, at most `LONGEST_WAIT_S`."""
        now_ns = time.monotonic_ns()
        due_ns = self.pacer.next_ns(now_ns) if until_ns is None else until_ns
        stop.wait(min(max((min(due_ns, self.end_ns) - now_ns) / 1e9, 0.0), LONGEST_WAIT_S))

    def count_throttles(self) -> int:
        """Record the throttle times since the last call and return the longest, in ms."""
        times_ms = self.throttles.taken()
        now_ns = time.monotonic_ns()
        for throttle_ms in times_ms:
            self.recorder.throttled(now_ns, throttle_ms)
        return max(times_ms, default=0)
