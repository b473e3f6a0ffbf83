"""A worker: a process that serves the connections its parent hands to it.

It is a daemon without endpoints: no store, no state file and no socket that clients or operators reach. It ends when
its parent is gone.
"""

import asyncio
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Final

from kafka_quotas.core.clock import MonotonicClock
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.config.address import Address, ListenError
from kafka_quotas.enforcement.proxy.admission import AcceptedConnection
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas
from kafka_quotas.enforcement.proxy.listener import Listener
from kafka_quotas.enforcement.proxy.unmuting import ClientChoice
from kafka_quotas.enforcement.quotas.quota_registry import Route
from kafka_quotas.enforcement.quotas.store_watcher import StoreState
from kafka_quotas.enforcement.sharing.buckets import BucketId
from kafka_quotas.enforcement.sharing.channel import Channel, receive_blocking, send_blocking
from kafka_quotas.enforcement.sharing.charges import SharedCharges
from kafka_quotas.enforcement.sharing.fleet import ADJUST_MS
from kafka_quotas.enforcement.sharing.messages import (
    ChargesTaken,
    ClientsWaiting,
    Closed,
    Drain,
    Drained,
    Handed,
    KnownRoute,
    Ready,
    StoreChanged,
    WantedSocket,
    WorkerAnswer,
    WorkerReport,
    WorkerRequest,
    WorkerStart,
    WorkerTotals,
    known_route,
    meet,
)
from kafka_quotas.enforcement.sharing.parts import Parts
from kafka_quotas.enforcement.sharing.state import parse_state
from kafka_quotas.enforcement.telemetry.log import LogEvent, error_text
from kafka_quotas.enforcement.telemetry.status import run_sliced

TICK_S: Final = 0.01
"""Pause between two messages about what was charged."""
IDLE_TICK_S: Final = 0.05
"""The same while nothing is charged."""
BUSY_PART: Final = 10
"""How many times as long as all charges took here, others' included, is waited until the next message."""
TOTALS_S: Final = 1.0
"""Pause between two messages with the counters: what a worker that is killed takes with it."""


def parent_socket(questions: socket.socket, role: str, host: str, port: int, upstream: Address | None) -> socket.socket:
    """Return a copy of the parent's listening socket for a role, which the parent opens where it has none.

    Raises:
        ListenError: The parent can't open it, or is gone.
    """
    del host, port  # the parent has the same settings
    try:
        send_blocking(questions, WantedSocket(role=role, upstream=upstream))
        answer, sockets = receive_blocking(questions)
    except OSError as error:
        raise ListenError("the daemon's main process is gone") from error
    if isinstance(answer, ListenError):
        raise answer
    return sockets[0]


class Worker:
    """The parts of a worker, in its event loop."""

    def __init__(self, start: WorkerStart, events: socket.socket, questions: socket.socket) -> None:
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._clock = MonotonicClock(start.clock_offset_ns)
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._settings = settings = start.settings
        self._channel = Channel(self._loop, events, on_message=self._receive, on_closed=self._orphaned)
        self._connections = ConnectionQuotas(settings.rules.window)
        parts = self._parts = Parts(
            settings,
            self._connections,
            self._clock,
            notify=self._notify,
            is_worker=True,
        )
        self._use_files()
        parts.content.apply(start.snapshot, start.store_url)
        parts.start_event_log()
        proxy = self._served = parts.listen(
            bind=partial(parent_socket, questions),
            on_closed=lambda number: self._channel.send(Closed(number=number)),
            on_route=self._route_changed,
        )
        for route in start.routes:
            meet(proxy.listeners, route)
        parts.measured(proxy).restore(parse_state(start.state, "the main process"), "the main process")
        self._shared = SharedCharges(parts.policy, parts.topics.thresholds, is_worker=True)
        self._recording_s = 0.0
        state = StoreState(url=start.store_url, revision="", confirmed_ms=self._clock.now_ms())
        self._reporter = parts.reporter(proxy, lambda: state)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve what the parent hands over, until it has drained or the parent is gone."""
        self._channel.send(Ready())
        for work in (*self._parts.background(self._served), self._share, self._count):
            self._begin(work())
        if self._settings.fleet is not None:
            self._begin(self._report_waiting())
        try:
            await self._ended
        finally:
            for task in self._tasks:
                task.cancel()
            self._served.close()
            if self._parts.events is not None:
                self._parts.events.close()
            self._channel.close()

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        # Without one of its parts a worker is no worker: its parent starts another one.
        if not task.cancelled() and task.exception() is not None and not self._ended.done():
            self._ended.set_exception(task.exception() or RuntimeError())

    def _notify(self, event: LogEvent) -> None:
        self._channel.send(event)

    def _use_files(self) -> None:
        for use in [file.read() for file in self._parts.content.files()]:
            use()

    # What the parent sends.

    def _receive(self, message: object, sockets: list[socket.socket]) -> None:
        match message:
            case ChargesTaken():
                self._record(message)
            case Handed():
                self._serve(message, sockets[0])
            case KnownRoute():
                meet(self._served.listeners, message)
            case StoreChanged():
                self._parts.content.apply(message.snapshot, message.store_url)
            case WorkerRequest():
                self._begin(self._answer(message))
            case Drain():
                self._begin(self._drain(message))

    def _record(self, taken: ChargesTaken) -> None:
        now_ms, began_s = self._clock.now_ms(), time.monotonic()
        for worker, charges in taken.charges:
            if worker == self._start.worker:
                self._shared.echoed(charges)
            else:
                self._shared.record(charges, now_ms)
        self._recording_s += time.monotonic() - began_s

    def _serve(self, handed: Handed, client: socket.socket) -> None:
        client.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
        listener = next(each for each in self._served.listeners if each.settings.name == handed.listener)
        try:
            route = self._route(listener, handed)
        except KafkaQuotasError as error:
            self._notify(LogEvent.failure("connection closed: its broker has no listener here", error))
            client.close()
            self._channel.send(Closed(number=handed.number))
            return
        connections = self._connections.broker(route.node_id)
        slot = connections.began(handed.listener, recorded=connections.rates)
        slot.came_from(handed.source.host)
        accepted = AcceptedConnection(client=client, route=route, source=handed.source, slot=slot)
        self._served.serve(listener, accepted, handed.number)

    def _route(self, listener: Listener, handed: Handed) -> Route:
        """Return this process's route to the broker of a connection."""
        brokers = listener.brokers
        if handed.is_bootstrap or handed.node_id is None:
            found = [route for route in brokers.bootstraps if route.upstream == handed.upstream]
            return found[0] if found else brokers.bootstraps[0]
        if handed.is_located:
            return brokers.route(handed.node_id, handed.upstream)
        brokers.announce(handed.node_id)
        route = brokers.known(handed.node_id)
        assert route is not None
        if not route.is_located:
            route.upstream = handed.upstream
        return route

    def _route_changed(self, listener: Listener, route: Route) -> None:
        known = known_route(listener, route)
        if known is not None:
            self._channel.send(known)

    async def _answer(self, request: WorkerRequest) -> None:
        result: object
        try:
            match request.of:
                case WorkerReport.STATUS:
                    result = await run_sliced(self._reporter.status())
                case WorkerReport.FIGURES:
                    result = await run_sliced(self._reporter.figures())
                case WorkerReport.RELOAD:
                    self._use_files()
                    result = None
                case ClientChoice():
                    result = self._served.unmute(request.of)
        except Exception as error:  # noqa: BLE001 - the parent gets an answer in any case
            result = KafkaQuotasError(error_text(error))
        self._channel.send(WorkerAnswer(number=request.number, result=result))

    async def _drain(self, drain: Drain) -> None:
        self._reporter.draining = True
        cut = await self._served.drain(drain.timeout_s)
        self._send_charges(whole=True)
        if self._parts.events is not None:
            await asyncio.to_thread(self._parts.events.close)
        self._send_totals()
        self._channel.send(Drained(cut_connections=cut))
        self._end()

    def _orphaned(self) -> None:
        """Answer what has begun, for clients connect again elsewhere."""
        self._begin(self._drain(Drain(timeout_s=self._settings.drain_timeout_s)))

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    # What happens by the clock.

    async def _share(self) -> None:
        while True:
            began_s = time.monotonic()
            pause_s = TICK_S if self._send_charges() else IDLE_TICK_S
            spent_s, self._recording_s = time.monotonic() - began_s + self._recording_s, 0.0
            await asyncio.sleep(max(pause_s, BUSY_PART * spent_s))

    def _send_charges(self, *, whole: bool = False) -> bool:
        """Send the parent what was charged here, and return whether anything was."""
        charges = self._shared.take(self._clock.now_ms(), whole=whole)
        if charges:
            self._channel.send(ChargesTaken(charges=((self._start.worker, charges),)))
        return bool(charges)

    async def _report_waiting(self) -> None:
        """Send the parent how many clients wait, which the fleet's other members hear from it."""
        before: Mapping[BucketId, int] = {}
        while True:
            await asyncio.sleep(ADJUST_MS / 1000.0)
            counts = self._shared.waiting(self._served.throttled(), self._clock.now_ms())
            if counts != before:
                self._channel.send(ClientsWaiting(counts=counts))
                before = counts

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(TOTALS_S)
            self._send_totals()

    def _send_totals(self) -> None:
        self._channel.send(WorkerTotals(counters=self._reporter.totals(), quota_totals=self._reporter.quota_totals()))


def main(loop_factory: Callable[[], asyncio.AbstractEventLoop] | None, on_started: Callable[[], None]) -> None:
    """Run a worker whose sockets are the descriptors that the command line names.

    Args:
        loop_factory: Makes the event loop, None for asyncio's own.
        on_started: Called when everything that lives as long as the worker is made.
    """
    events, questions = (socket.socket(fileno=int(each)) for each in sys.argv[1:3])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # its parent decides when it ends
    start, _ = receive_blocking(events)
    assert isinstance(start, WorkerStart)

    async def run() -> None:
        try:
            worker = Worker(start, events, questions)
        except KafkaQuotasError as error:
            sys.stderr.write(f"a worker can't start: {error.message}\n")
            sys.exit(1)
        on_started()
        await worker.run()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())
