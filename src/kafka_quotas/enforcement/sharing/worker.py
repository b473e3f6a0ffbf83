"""A worker: a process that serves the connections its parent hands to it.

A worker is a daemon without endpoints: no store, no state file and no socket that clients or operators reach. It ends
when its parent is gone.
"""

import asyncio
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from kafka_quotas.core.clock import MonotonicClock
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.config.address import Address, ListenError
from kafka_quotas.enforcement.event_log.charges import start_event_log
from kafka_quotas.enforcement.monitoring.status_reporter import Reporter
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas
from kafka_quotas.enforcement.proxy.context import ServerContext
from kafka_quotas.enforcement.proxy.proxy_quotas import ProxyQuotas
from kafka_quotas.enforcement.proxy.proxy_server import AcceptedConnection, ProxyServer
from kafka_quotas.enforcement.quotas.quota_registry import BucketId, Route
from kafka_quotas.enforcement.quotas.store_watcher import ChangedSnapshot, StoreState
from kafka_quotas.enforcement.sharing.buckets import waiting_clients
from kafka_quotas.enforcement.sharing.channel import Channel, WorkerStart, WorkerTotals, packed, receive_blocking
from kafka_quotas.enforcement.sharing.charges import SharedCharge, SharedCharges
from kafka_quotas.enforcement.sharing.fleet import ADJUST_MS
from kafka_quotas.enforcement.sharing.state import MeasuredState, parse_state
from kafka_quotas.enforcement.telemetry.log import LogEvent, error_text
from kafka_quotas.enforcement.telemetry.status import run_sliced

TICK_S: Final = 0.01
"""Pause between two messages about what was charged."""
IDLE_TICK_S: Final = 0.05
"""The same while nothing is charged."""
BUSY_PART: Final = 10
"""How many times the processor time of all charges here, others' included, is waited until the next message."""
TOTALS_S: Final = 1.0
"""Pause between two messages with the counters: what a worker that is killed takes with it."""


def parent_port(questions: socket.socket, role: str, upstream: Address | None) -> int:
    """Return the port on which the parent listens in a role, and have it listen if it does not."""
    try:
        questions.sendall(packed("port", role, upstream))
        (opened,) = receive_blocking(questions)
    except OSError as error:
        raise ListenError("the daemon's main process is gone") from error
    if isinstance(opened, ListenError):
        raise opened
    port: int = opened
    return port


class Worker:
    """The parts of a worker, in its event loop."""

    def __init__(self, start: WorkerStart, events: socket.socket, questions: socket.socket) -> None:
        self._number = start.worker
        self._loop = asyncio.get_running_loop()
        self._clock = clock = MonotonicClock(start.clock_offset_ns)
        self._tasks = asyncio.TaskGroup()
        self._ended = asyncio.Event()
        settings = start.settings
        # Without its parent it answers what has begun: clients connect again elsewhere.
        self._channel = Channel(
            self._loop, events, self._called, on_closed=lambda: self._called("drain", settings.drain_timeout_s)
        )
        call = self._channel.call
        quotas = self._quotas = ProxyQuotas(
            settings, ConnectionQuotas(settings.rules.window), clock, notify=partial(call, "log"), is_worker=True
        )
        quotas.use_files()
        quotas.apply(start.snapshot, start.store_url)
        self._events = start_event_log(settings.event_log, self._loop, quotas.notify)
        context = ServerContext(quotas, events=self._events, port_of=partial(parent_port, questions))
        proxy = self._proxy = ProxyServer(context)
        proxy.on_closed, proxy.on_route = partial(call, "closed"), partial(call, "meet")
        for route in start.routes:
            proxy.meet(route)
        MeasuredState(quotas, lambda: proxy.bootstrap).restore(
            parse_state(start.state, "the main process"), "the main process"
        )
        self._shared = SharedCharges(quotas)
        self._recording_s = 0.0
        state = StoreState(url=start.store_url, revision="", confirmed_ms=clock.now_ms())
        self._reporter = Reporter(proxy, store=lambda: state)

    async def run(self) -> None:
        """Serve what the parent hands over, until it has drained or the parent is gone."""
        work = [*self._proxy.background(), self._share, self._count]
        if self._quotas.settings.fleet is not None:
            work.append(self._report_waiting)
        try:
            # Without one of its parts a worker is no worker: its parent starts another one.
            async with self._tasks:
                lasting = [self._tasks.create_task(each()) for each in work]
                self._channel.call("ready")  # once there are tasks: without its parent it drains in one
                await self._ended.wait()
                for task in lasting:
                    task.cancel()
        finally:
            self._proxy.close()
            if self._events is not None:
                self._events.close()
            self._channel.close()

    # What the parent calls.

    def _called(self, name: str, *arguments: Any) -> None:
        work = getattr(self, f"_on_{name}")(*arguments)
        if work is not None:
            self._tasks.create_task(work)

    def _on_charges(self, taken: list[tuple[int, list[SharedCharge]]]) -> None:
        now_ms, began_s = self._clock.now_ms(), time.thread_time()
        for worker, charges in taken:
            if worker == self._number:
                self._shared.echoed(charges)
            else:
                self._shared.record(charges, now_ms)
        self._recording_s += time.thread_time() - began_s

    def _on_change_store(self, snapshot: ChangedSnapshot, store_url: str) -> None:
        self._quotas.apply(snapshot, store_url)

    def _on_meet(self, route: Route) -> None:
        self._proxy.meet(route)

    def _on_serve(self, number: int, shared: Route, source: Address, client: socket.socket) -> None:
        client.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
        listener = next(each for each in self._proxy.listeners if each.settings.name == shared.listener)
        try:
            route = listener.own_route(shared)
        except KafkaQuotasError as error:
            self._channel.call("log", LogEvent.failure("connection closed: its broker has no listener here", error))
            client.close()
            self._channel.call("closed", number)
            return
        connections = self._quotas.connections.broker(route.node_id)
        slot = connections.began(shared.listener, recorded=connections)
        slot.came_from(source.host)
        accepted = AcceptedConnection(
            listener=listener, number=number, client=client, route=route, source=source, slot=slot
        )
        self._proxy.serve(accepted)

    async def _on_answer(self, number: int, question: str, *arguments: Any) -> None:
        result: object = None
        try:
            match question:
                case "status":
                    result = await run_sliced(self._reporter.status())
                case "figures":
                    result = await run_sliced(self._reporter.figures())
                case "reload":
                    self._quotas.use_files()
                case "unmute":
                    result = self._proxy.unmute(*arguments)
        except Exception as error:  # noqa: BLE001 - the parent gets an answer in any case
            result = KafkaQuotasError(error_text(error))
        self._channel.call("answer", number, result)

    async def _on_drain(self, timeout_s: float) -> None:
        self._reporter.draining = True
        cut = await self._proxy.drain(timeout_s)
        self._send_charges(whole=True)
        if self._events is not None:
            await asyncio.to_thread(self._events.close)
        self._send_totals()
        self._channel.call("drained", cut)
        self._ended.set()

    # What happens by the clock.

    async def _share(self) -> None:
        while True:
            began_s = time.thread_time()  # a busy machine, which takes the processor away, must not make it longer
            pause_s = TICK_S if self._send_charges() else IDLE_TICK_S
            spent_s, self._recording_s = time.thread_time() - began_s + self._recording_s, 0.0
            await asyncio.sleep(max(pause_s, BUSY_PART * spent_s))

    def _send_charges(self, *, whole: bool = False) -> bool:
        charges = self._shared.take(self._clock.now_ms(), whole=whole)
        if charges:
            self._channel.call("charges", charges)
        return bool(charges)

    async def _report_waiting(self) -> None:
        """Send the parent how many clients wait, which the fleet's other members hear from it."""
        before: Mapping[BucketId, int] = {}
        while True:
            await asyncio.sleep(ADJUST_MS / 1000.0)
            counts = waiting_clients(self._quotas.registry, self._proxy.throttled(), self._clock.now_ms())
            if counts != before:
                self._channel.call("waiting", counts)
                before = counts

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(TOTALS_S)
            self._send_totals()

    def _send_totals(self) -> None:
        totals = WorkerTotals(counters=self._reporter.totals(), quota_totals=self._reporter.quota_totals())
        self._channel.call("totals", totals)


def main(loop_factory: Callable[[], asyncio.AbstractEventLoop] | None, on_started: Callable[[], None]) -> None:
    """Run a worker whose sockets are the descriptors that the command line names.

    `on_started` is called when everything that lives as long as the worker is made.
    """
    events, questions = (socket.socket(fileno=int(each)) for each in sys.argv[1:3])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # its parent decides when it ends

    async def run() -> None:
        (start,) = receive_blocking(events)
        try:
            worker = Worker(start, events, questions)
        except KafkaQuotasError as error:
            sys.stderr.write(f"a worker can't start: {error.message}\n")
            sys.exit(1)
        del start  # the text of all that was measured
        on_started()
        await worker.run()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())
