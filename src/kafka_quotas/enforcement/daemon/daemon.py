"""The parts of a daemon put together: its start, its signals, and an end that cuts off no request under way.

SIGTERM and SIGINT drain: no new connection, no new request, every request under way is answered; a second one ends at
once. SIGHUP reads the store and the files of quotas anew.
"""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from resource import RLIMIT_NOFILE, getrlimit
from typing import Final, TextIO

from kafka_quotas.core.clock import MonotonicClock
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.control.decision_service import DecisionService
from kafka_quotas.enforcement.control.server import ControlHandler
from kafka_quotas.enforcement.daemon.endpoints import Endpoints, OperatorView
from kafka_quotas.enforcement.daemon.start_log import log_listening, log_reaching, log_rules
from kafka_quotas.enforcement.event_log.writer import EventLogWriter
from kafka_quotas.enforcement.monitoring.daemon_view import Pages
from kafka_quotas.enforcement.monitoring.status_reporter import Reporter
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas, connections_for
from kafka_quotas.enforcement.proxy.proxy_server import ProxyServer
from kafka_quotas.enforcement.quotas.reload import Reloader
from kafka_quotas.enforcement.quotas.store_watcher import ChangedSnapshot, OpenStore, StoreWatcher
from kafka_quotas.enforcement.sharing.buckets import DaemonBuckets, SharedBucket
from kafka_quotas.enforcement.sharing.charges import SharedCharges
from kafka_quotas.enforcement.sharing.membership import FleetMembership, waiting_clients
from kafka_quotas.enforcement.sharing.parts import Parts
from kafka_quotas.enforcement.sharing.pool import WorkerPool
from kafka_quotas.enforcement.sharing.state import MeasuredState, SavedState, StateSnapshotter, saved_state
from kafka_quotas.enforcement.telemetry.log import Log, LogEvent

RESTART_S: Final = 5.0
"""Seconds before work that a defect ended begins again."""
_HANGUP: Final = signal.SIGHUP.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonResult:
    """The signal that ended a daemon, and what it left undone."""

    signal_name: str
    cut_connections: int
    """Connections cut off before they were drained."""


class Daemon:
    """The parts of one daemon, in its event loop."""

    def __init__(
        self,
        settings: DaemonSettings,
        open_store: OpenStore,
        log: TextIO,
        *,
        pages: Pages,
        on_started: Callable[[], None],
    ) -> None:
        """Make the parts that need no other process.

        Args:
            settings: The settings.
            open_store: Opens the store, in any thread.
            log: The log.
            pages: Makes the pages for browsers.
            on_started: Called when everything that lives as long as the daemon is made.
        """
        self._settings = settings
        self._on_started = on_started
        self._loop = asyncio.get_running_loop()
        self._clock = MonotonicClock()
        self._notify = Log(log, self._clock, log_format=settings.log_format).notify
        by_descriptors = settings.workers * connections_for(getrlimit(RLIMIT_NOFILE)[0])
        self._max_connections = settings.max_connections or by_descriptors
        self._connections = ConnectionQuotas(
            settings.rules.window, broker_rate=settings.connection_rate, max_connections=self._max_connections
        )
        parts = self._parts = Parts(
            settings,
            self._connections,
            self._clock,
            store_url=lambda: self._watcher.state.url,
            notify=self._notify,
        )
        self._ends: asyncio.Queue[str] = asyncio.Queue()
        self._watcher = self._watcher_of(open_store)
        self._reloader = Reloader(
            files=list(parts.content.files()),
            watcher=self._watcher,
            limits=lambda: parts.policy.limit_count,
            changed=lambda: parts.content.changed,
            notify=self._notify,
        )
        self._reloading: asyncio.Task[None] | None = None
        self._fleet: FleetMembership | None = None
        self._snapshotter: StateSnapshotter | None = None
        self._endpoints = Endpoints(settings, parts.content, pages, notify=self._notify)
        self._workers: WorkerPool | None = None
        if settings.workers > 1:
            shared = SharedCharges(parts.policy, parts.topics.thresholds)
            self._workers = WorkerPool(settings, shared, clock=self._clock, notify=self._notify)

    def _watcher_of(self, open_store: OpenStore) -> StoreWatcher:
        return StoreWatcher(
            open_store,
            loop=self._loop,
            clock=self._clock,
            counters=self._parts.counters,
            notify=self._notify,
            on_snapshot=self._apply,
        )

    async def run(self) -> DaemonResult:
        """Run all parts until a signal ends the daemon, then stop them and return how it ended."""
        async with contextlib.AsyncExitStack() as stack:
            self._reloader.start()
            first = self._watcher.start()
            stack.callback(self._watcher.stop)
            self._apply(first)
            events = self._parts.start_event_log()
            if events is not None:
                stack.callback(events.close)
            self._fleet = await self._join_fleet(stack)
            # Before a port opens: a large file takes its time, and a client that connects meanwhile would time out.
            saved = saved_state(self._settings.state_file, self._notify)
            proxy = self._parts.listen(
                dispatch=None if self._workers is None else self._workers.dispatch,
                on_route=None if self._workers is None else self._workers.route_changed,
            )
            measured = self._parts.measured(proxy)
            self._keep_state(stack, measured, saved)
            stack.callback(proxy.close)
            fleet = None if self._fleet is None else self._fleet.status
            reporter = self._parts.reporter(proxy, lambda: self._watcher.state, fleet)
            if self._workers is not None:
                stack.push_async_callback(self._workers.close)
                await self._workers.start(proxy, measured)
            self._listen_to_signals(stack)
            self._on_started()
            stack.push_async_callback(self._endpoints.close)
            view = OperatorView(reporter, self._reloader, proxy, self._workers, self._snapshotter)
            await self._endpoints.serve_metrics(view.status, view.figures, reporter.readiness)
            handler = self._handler(proxy, view, events)
            port = proxy.routes()[0][0].port
            await self._endpoints.serve_control(handler, port)
            self._log_listening(proxy)
            reaching = log_reaching(proxy.upstreams(), proxy.health, self._notify)
            stack.callback(self._loop.create_task(reaching).cancel)
            for work in self._parts.background(proxy):
                stack.callback(self._loop.create_task(self._restarted(work)).cancel)
            return await self._until_end(proxy, reporter, view)

    def _apply(self, snapshot: ChangedSnapshot) -> None:
        """Put a content of the store in force, here and in all workers."""
        self._parts.content.apply(snapshot)
        if self._workers is not None:
            self._workers.apply(snapshot, self._watcher.state.url)

    def _keep_state(self, stack: contextlib.AsyncExitStack, measured: MeasuredState, saved: SavedState | None) -> None:
        """Restore what the state file has, if there is one, and keep saving it, the last time at the end."""
        path = self._settings.state_file
        if path is None:
            return
        keeper = StateSnapshotter(path, measured, self._parts.counters, notify=self._notify)
        keeper.restore(saved)
        self._snapshotter = keeper
        keeping = self._loop.create_task(keeper.keep())

        async def end() -> None:
            keeper.end()
            await keeping

        stack.push_async_callback(end)

    async def _join_fleet(self, stack: contextlib.AsyncExitStack) -> FleetMembership | None:
        """Join the fleet, if there is one, before the first client is served."""
        settings = self._settings.fleet
        if settings is None:
            return None
        recorder = None if self._workers is None else self._workers.shared
        fleet = FleetMembership(
            self._settings,
            settings,
            DaemonBuckets(self._parts.policy, self._connections, self._parts.topics.thresholds, recorder=recorder),
            clock=self._clock,
            notify=self._notify,
            waiting=self._waiting_clients,
            secrets=lambda: self._parts.content.fleet_secrets,
        )
        stack.push_async_callback(fleet.close)
        await fleet.start()
        return fleet

    def _waiting_clients(self, now_ms: int) -> Mapping[SharedBucket, int]:
        if self._workers is not None:
            return self._workers.waiting()
        proxy = self._parts.proxy
        return {} if proxy is None else waiting_clients(proxy.throttled(), now_ms)

    def _handler(self, proxy: ProxyServer, view: OperatorView, events: EventLogWriter | None) -> ControlHandler:
        _, bootstrap = proxy.routes()[0]
        decisions = DecisionService(
            self._parts.policy,
            self._clock,
            connections=self._connections,
            thresholds=self._parts.topics.thresholds,
            bootstrap=lambda: bootstrap.node_id,
            on_charged=None if events is None else events.charges.record_requested,
        )
        return ControlHandler(
            status=view.status,
            decide=decisions.decide,
            reload=partial(view.reload, "control socket"),
            unmute=view.unmute,
        )

    def _log_listening(self, proxy: ProxyServer) -> None:
        fields: dict[str, str | float] = {
            "listen": str(proxy.routes()[0][0]),
            "upstream": ",".join(map(str, self._settings.upstreams)),
            "store": self._watcher.state.url,
            "limits": self._parts.policy.limit_count,
            "max_connections": self._max_connections,
            **self._endpoints.fields(),
        }
        log_rules(self._settings, self._notify)
        log_listening(fields, self._notify, enforces_nothing=self._parts.content.limits_nobody)

    def _listen_to_signals(self, stack: contextlib.AsyncExitStack) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._ends.put_nowait, number.name)
            stack.callback(self._loop.remove_signal_handler, number)

    async def _until_end(self, proxy: ProxyServer, reporter: Reporter, view: OperatorView) -> DaemonResult:
        """Wait for a signal that ends the daemon, drain, and return how it ended."""
        while (received := await self._ends.get()) == _HANGUP:
            self._reloading = self._loop.create_task(self._reload(view))
        reporter.draining = True
        served = len(proxy.connections) if self._workers is None else self._workers.connections
        fields: dict[str, str | float] = {"signal": received, "connections": served}
        self._notify(LogEvent(event="daemon draining", fields=fields))
        draining = self._loop.create_task(self._drain(proxy))
        again = self._loop.create_task(self._second_signal())
        await asyncio.wait((draining, again), return_when=asyncio.FIRST_COMPLETED)
        again.cancel()
        left = len(proxy.connections) if self._workers is None else self._workers.connections
        cut = draining.result() if draining.done() else left
        draining.cancel()
        self._notify(LogEvent(event="daemon stopped", fields={"signal": received, "cut_connections": cut}))
        return DaemonResult(signal_name=received, cut_connections=cut)

    async def _drain(self, proxy: ProxyServer) -> int:
        timeout_s = self._settings.drain_timeout_s
        cut = await proxy.drain(timeout_s)
        if self._workers is not None:
            cut += await self._workers.drain(timeout_s)
        return cut

    async def _second_signal(self) -> None:
        while await self._ends.get() == _HANGUP:
            pass

    async def _restarted(self, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat work that should never end after each defect that ends it, and log the defect."""
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - clients are served without it until then
                self._notify(LogEvent.failure("work in the background failed; it is started again", error))
            await asyncio.sleep(RESTART_S)

    async def _reload(self, view: OperatorView) -> None:
        with contextlib.suppress(KafkaQuotasError):  # in the log already
            await view.reload("SIGHUP")
