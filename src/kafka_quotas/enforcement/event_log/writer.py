"""The thread that turns charges into lines and hands them to a sink.

Invariants: the event loop never waits for it; it works in small slices, between which others may run; a sink that fails
costs lines, which are counted, and is logged once until it works again; closing writes what is left. A charge is one
object of JSON on one line, in ASCII; every line has every field, in one order.

**Source:** `docs/reference/event-log.md`.
"""

import asyncio
import contextlib
import json
import threading
from functools import lru_cache
from pathlib import Path
from typing import Final

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.settings import EventLogSettings
from kafka_quotas.enforcement.event_log.charges import Charge, ChargeQueue, ChargeSource
from kafka_quotas.enforcement.event_log.sinks import EventFiles, EventLogError, EventTopic
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify

VERSION: Final = 1
"""Version of the format, which grows when a field changes its meaning or goes: readers skip unknown fields."""

_MAX_CACHED: Final = 256
"""Most characters of a name whose JSON form is cached: names can have 32,767."""
_cached_json = lru_cache(maxsize=8192)(json.dumps)
_ZERO_COLUMNS: Final = '"bytes":{},"thread_ms":{},"mutations":{}'
_COLUMNS: Final = dict.fromkeys(QuotaType, _ZERO_COLUMNS.format("0", "0", "0%.0s")) | {
    QuotaType.PRODUCE: _ZERO_COLUMNS.format("%d", "0", "0"),
    QuotaType.FETCH: _ZERO_COLUMNS.format("%d", "0", "0"),
    QuotaType.REQUEST: _ZERO_COLUMNS.format("0", "%.6g", "0"),
    QuotaType.CONTROLLER_MUTATION: _ZERO_COLUMNS.format("0", "0", "%d"),
}
"""Three figures by quota type, the charged one left open. Types that have none count lines."""


def _quoted(text: str) -> str:
    return _cached_json(text) if len(text) <= _MAX_CACHED else json.dumps(text)


def charge_line(cluster: str, source: ChargeSource, charge: Charge) -> str:
    """Return the line, with its line break, of a charge at a broker of this cluster."""
    ts_ms, user, client_id, quota_type, api_key, amount, throttle_ms, is_exempt = charge
    node_id = source.route.node_id
    return (
        f'{{"v":{VERSION},"ts_ms":{ts_ms},"cluster":{_quoted(cluster)},'
        f'"broker_id":{"null" if node_id is None else node_id},"connection":{source.connection},'
        f'"user":{_quoted(user)},"client_id":{_quoted(client_id)},"ip":{_quoted(source.ip)},'
        f'"quota_type":"{quota_type.value}","api_key":{api_key},{_COLUMNS[quota_type] % amount},'
        f'"throttle_ms":{throttle_ms},"is_exempt":{"true" if is_exempt else "false"}}}\n'
    )


PAUSE_S: Final = 0.2
"""Seconds for which charges gather before they are written."""
SLICE: Final = 200
"""Lines written at a time: half a millisecond, the longest the event loop may wait for the interpreter."""
_JOIN_S: Final = 10.0


class EventLogWriter:
    """The thread that writes `charges` to a sink until it is closed."""

    def __init__(
        self, settings: EventLogSettings, *, notify: Notify, sink: EventFiles | EventTopic | None = None
    ) -> None:
        self.charges = ChargeQueue()
        target = settings.target
        self.target = str(target)
        self._cluster = settings.cluster
        self._notify = notify
        self._sink = sink or (EventFiles(settings) if isinstance(target, Path) else EventTopic(target))
        self._stop = threading.Event()
        self._failing = False
        self._lost = 0
        self.written = 0
        """Number of lines that the sink took, since the start."""
        self._thread = threading.Thread(target=self._run, name="event-log", daemon=True)

    @property
    def dropped(self) -> int:
        """The number of charges in no line: the queue had no room, or the sink did not take them."""
        return self.charges.dropped + self._lost

    def start(self) -> None:
        """Start writing charges."""
        self._thread.start()

    def close(self) -> None:
        """Write the remaining charges and close the sink."""
        self._stop.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_S):
            self._write_pending()
        self._write_pending()
        try:
            self._sink.close()
        except Exception as error:  # noqa: BLE001 - as below
            self._log_failure(error)

    def _write_pending(self) -> None:
        """Write what is on the queue by now, and log any exception."""
        try:
            self._write_slices()
        except Exception as error:  # noqa: BLE001 - a defect costs the lines at hand, not all that come after them
            self._log_failure(error)

    def _write_slices(self) -> None:
        for _ in range(0, len(self.charges), SLICE):
            self._write([charge_line(self._cluster, *each) for each in self.charges.take(SLICE)])
        self._sink.settle()

    def _write(self, lines: list[str]) -> None:
        """Write lines, and count the written and the lost ones."""
        try:
            taken = self._sink.write(lines)
        except Exception as error:  # noqa: BLE001 - as above
            self._lost += len(lines)
            self._log_failure(error)
            return
        self.written += taken
        self._lost += len(lines) - taken
        if taken < len(lines):
            self._log_failure(EventLogError(f"{len(lines) - taken} events were not taken"))
        elif self._failing:
            self._failing = False
            self._notify(LogEvent.of("event log is written again", lost=self.dropped))

    def _log_failure(self, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            event = "event log can't be written; events are lost until it can"
            self._notify(LogEvent.failure(event, error, target=self.target))


def start_event_log(
    settings: EventLogSettings | None, loop: asyncio.AbstractEventLoop, notify: Notify
) -> EventLogWriter | None:
    """Start the writer of the event log, which reports its failures in the loop, or return None."""
    if settings is None:
        return None

    def notify_in_loop(event: LogEvent) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the log with it
            loop.call_soon_threadsafe(notify, event)

    writer = EventLogWriter(settings, notify=notify_in_loop)
    writer.start()
    return writer
