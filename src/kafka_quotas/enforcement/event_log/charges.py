"""What every client took from its quotas, charge by charge: the queue of the daemon's event log, and its writer.

Contract: a function that charges a bucket calls an `OnCharge` with what went in and the throttle time that came out,
nothing more; `ChargeQueue.recorder` makes one per connection. On the hot path a charge is a tuple on a queue; a thread
of its own turns it into a line and hands it to a sink. A line is one object of JSON, in ASCII, with every field in one
order.
Invariants: the queue is bounded in charges and in bytes, what does not fit is counted in `dropped`; charges come out in
the order in which they went in. The event loop never waits for the writer, which works in small slices, between which
others may run. A sink that fails costs lines, which are counted, and is logged once until it works again; closing
writes what is left.
**Source:** `docs/reference/event-log.md`.
"""

import asyncio
import contextlib
import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.settings import EventLogSettings
from kafka_quotas.enforcement.decisions import DecisionRequest
from kafka_quotas.enforcement.event_log.sinks import EventFiles, EventLogError, EventTopic
from kafka_quotas.enforcement.quotas.quota_registry import NodeId, Route
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify

MAX_PENDING: Final = 200_000
"""Most charges that may wait for the writer: some seconds of what one process can pass on."""
MAX_PENDING_BYTES: Final = 96 * 1024 * 1024
"""Memory of the charges that may wait: the number above at the usual length of names, far fewer at 32 kB each."""
_CHARGE_BYTES: Final = 320
"""Memory of a charge without its names: two tuples, three numbers, a slot of the queue."""

NOWHERE: Final = Address(host="", port=0)
"""Upstream of charges that went through no listener."""

Charge: TypeAlias = tuple[int, str, str, QuotaType, int, float, int, bool]
"""(now_ms, user, client_id, quota_type, api_key, amount, throttle_ms, is_exempt): one charge of one bucket.

`amount` is in bytes, milliseconds of (estimated) thread time, or partitions, as the quota type has it. A plain tuple:
anything with named fields takes several times as long to make, once per request.
"""
OnCharge: TypeAlias = Callable[[Charge], None]
"""Records a charge without raising and without waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeSource:
    """The connection that charges come from."""

    connection: int
    """Number of the connection since the start, 0 for charges that other programs requested."""
    ip: str
    route: Route


class ChargeQueue:
    """The bounded queue of charges between the event loop and the writer's thread."""

    def __init__(self, *, limit: int = MAX_PENDING, limit_bytes: int = MAX_PENDING_BYTES) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._queue: deque[tuple[ChargeSource, Charge]] = deque()
        # Two sums that only grow, each written by one thread: one that both change would need a lock per charge.
        self._bytes_put = 0
        self._bytes_taken = 0
        self.dropped = 0
        """Number of charges that found the queue full, since the start."""

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def size_bytes(self) -> int:
        """The estimated memory of the charges that wait, with names counted once per charge."""
        return self._bytes_put - self._bytes_taken

    def recorder(self, source: ChargeSource) -> OnCharge:
        """Return the function that records the charges of one connection."""
        queue, limit, limit_bytes = self._queue, self._limit, self._limit_bytes

        def record(charge: Charge) -> None:
            size = _size(charge)
            if len(queue) < limit and self._bytes_put - self._bytes_taken + size <= limit_bytes:
                self._bytes_put += size
                queue.append((source, charge))
            else:
                self.dropped += 1

        return record

    def record_requested(self, request: DecisionRequest, node_id: NodeId, charge: Charge) -> None:
        """Record a charge that another program requested, under connection 0."""
        route = Route(node_id=node_id, port=0, upstream=NOWHERE)
        self.recorder(ChargeSource(connection=0, ip=request.ip, route=route))(charge)

    def take(self, count: int) -> list[tuple[ChargeSource, Charge]]:
        """Take the oldest charges off the queue, at most `count`, in one thread only."""
        pop = self._queue.popleft
        taken = [pop() for _ in range(min(count, len(self._queue)))]
        self._bytes_taken += sum(_size(charge) for _, charge in taken)
        return taken


def _size(charge: Charge) -> int:
    """Return the most memory a charge takes in bytes, at four per character beyond ASCII."""
    user, client_id = charge[1], charge[2]
    text = len(user) + len(client_id)
    return _CHARGE_BYTES + (text if user.isascii() and client_id.isascii() else 4 * text)


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
        try:
            for _ in range(0, len(self.charges), SLICE):
                self._write([charge_line(self._cluster, *each) for each in self.charges.take(SLICE)])
            self._sink.settle()
        except Exception as error:  # noqa: BLE001 - a defect costs the lines at hand, not all that come after them
            self._log_failure(error)

    def _write(self, lines: list[str]) -> None:
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
