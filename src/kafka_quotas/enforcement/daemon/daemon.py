"""The parts of a daemon put together: its start, its signals, and an end that cuts off no request under way.

SIGTERM and SIGINT drain: no new connection, no new request, every request under way is answered; a second one ends at
once. SIGHUP reads the store and the files of quotas anew. A successor (`upgrade`) has it drain as well.
"""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from resource import RLIMIT_NOFILE, getrlimit
from typing import Final, TextIO

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.quotas.bucket_pool import BucketPool
from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.control.decision_service import DecisionService
from kafka_quotas.enforcement.control.server import ControlHandler
from kafka_quotas.enforcement.daemon.endpoints import Endpoints, OperatorView
from kafka_quotas.enforcement.daemon.start_log import log_listening, log_reaching, log_rules
from kafka_quotas.enforcement.event_log.writer import EventLogWriter, start_event_log
from kafka_quotas.enforcement.filters.topic_filters import TopicFilters
from kafka_quotas.enforcement.fleet.daemon_buckets import DaemonBuckets
from kafka_quotas.enforcement.fleet.membership import FleetMembership, waiting_clients
from kafka_quotas.enforcement.fleet.usage import SharedBucket
from kafka_quotas.enforcement.monitoring.daemon_view import Pages
from kafka_quotas.enforcement.monitoring.status_reporter import Reporter
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas, connections_for
from kafka_quotas.enforcement.proxy.context import ProxyContext
from kafka_quotas.enforcement.proxy.proxy_server import ProxyServer
from kafka_quotas.enforcement.proxy.quota_content import QuotaContent
from kafka_quotas.enforcement.proxy.sockets import InheritedSockets
from kafka_quotas.enforcement.quotas.quota_registry import registry_of
from kafka_quotas.enforcement.quotas.reload import Reloader
from kafka_quotas.enforcement.quotas.store_watcher import ChangedSnapshot, OpenStore, StoreWatcher
from kafka_quotas.enforcement.state.measured_state import MeasuredState, measured_state
from kafka_quotas.enforcement.state.snapshotter import StateSnapshotter, saved_state
from kafka_quotas.enforcement.state.state_file import SavedState
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import Log, LogEvent
from kafka_quotas.enforcement.telemetry.status import run_sliced
from kafka_quotas.enforcement.telemetry.throttle_stats import ThrottleStats
from kafka_quotas.enforcement.upgrade.charges_since import record_charged
from kafka_quotas.enforcement.upgrade.handover import Handover
from kafka_quotas.enforcement.upgrade.takeover import Takeover
from kafka_quotas.enforcement.workers.pool import WorkerPool
from kafka_quotas.enforcement.workers.shared_charges import SharedCharges
from kafka_quotas.system_clock import MonotonicClock

EXPIRY_S: Final = 60.0
"""Seconds between two searches for idle buckets."""
RESTART_S: Final = 5.0
"""Seconds before work that a defect ended begins again."""
UPGRADE: Final = "upgrade"
"""End of a daemon whose successor serves, in place of a signal's name."""
_HANGUP: Final = signal.SIGHUP.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonResult:
    """The signal that ended a daemon, or `UPGRADE`, and what it left undone."""

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
        self._counters = Counters()
        rules = settings.rules
        self._policy = registry_of(rules, BucketPool(settings.max_bucket_bytes, self._clock))
        self._topics = TopicFilters(rules, counters=self._counters, notify=self._notify, clock=self._clock)
        by_descriptors = settings.workers * connections_for(getrlimit(RLIMIT_NOFILE)[0])
        self._max_connections = settings.max_connections or by_descriptors
        self._connections = ConnectionQuotas(
            rules.window, broker_rate=settings.connection_rate, max_connections=self._max_connections
        )
        self._ends: asyncio.Queue[str] = asyncio.Queue()
        self._proxy: ProxyServer | None = None
        self._content = QuotaContent(
            settings,
            self._policy,
            connections=self._connections,
            topics=self._topics,
            store_url=lambda: self._watcher.state.url,
            proxy=lambda: self._proxy,
            notify=self._notify,
        )
        self._watcher = self._watcher_of(open_store)
        self._reloader = Reloader(
            files=list(self._content.files()),
            watcher=self._watcher,
            limits=lambda: self._policy.limit_count,
            changed=lambda: self._content.changed,
            notify=self._notify,
        )
        self._reloading: asyncio.Task[None] | None = None
        self._fleet: FleetMembership | None = None
        self._snapshotter: StateSnapshotter | None = None
        self._endpoints = Endpoints(settings, self._content, pages, notify=self._notify)
        self._workers: WorkerPool | None = None
        if settings.workers > 1:
            shared = SharedCharges(self._policy, self._topics.thresholds)
            self._workers = WorkerPool(settings, shared, clock=self._clock, notify=self._notify)

    def _watcher_of(self, open_store: OpenStore) -> StoreWatcher:
        return StoreWatcher(
            open_store,
            loop=self._loop,
            clock=self._clock,
            counters=self._counters,
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
            events = start_event_log(self._settings.event_log, self._loop, self._notify)
            if events is not None:
                stack.callback(events.close)
            self._fleet = await self._join_fleet(stack)
            takeover = self._take_over(stack)
            sockets = InheritedSockets() if takeover is None else takeover.sockets
            saved = None if takeover is not None else saved_state(self._settings.state_file, self._notify)
            proxy = self._proxy = self._proxy_server(events, sockets)
            measured = measured_state(
                proxy, self._policy, self._connections, self._settings.rules, self._clock, notify=self._notify
            )
            self._keep_state(stack, proxy, measured, takeover or saved)
            stack.callback(proxy.close)
            reporter = self._reporter(proxy, events)
            if self._workers is not None:
                stack.push_async_callback(self._workers.close)
                await self._workers.start(proxy, measured)
            self._listen_to_signals(stack)
            self._on_started()
            handover = self._handover(stack, proxy, measured)
            stack.push_async_callback(self._endpoints.close)
            view = OperatorView(reporter, self._reloader, proxy, self._workers, self._snapshotter)
            await self._endpoints.serve_metrics(view.status, view.figures, reporter.readiness, sockets)
            handler = self._handler(proxy, view, events, handover)
            port = proxy.routes()[0][0].port
            await self._endpoints.serve_control(handler, port, replaces=takeover is not None)
            if takeover is not None:
                takeover.serving()
                stack.callback(self._loop.create_task(takeover.follow(self._record_charged, self._notify)).cancel)
            self._log_listening(proxy)
            reaching = log_reaching(proxy.upstreams(), proxy.health, self._notify)
            stack.callback(self._loop.create_task(reaching).cancel)
            background: tuple[Callable[[], Awaitable[None]], ...] = (
                proxy.watch_quiet,
                proxy.watch_gathering,
                self._expire,
            )
            for work in background:
                stack.callback(self._loop.create_task(self._restarted(work)).cancel)
            return await self._until_end(proxy, reporter, view)

    def _take_over(self, stack: contextlib.AsyncExitStack) -> Takeover | None:
        """Request the sockets of the running daemon if this one replaces it."""
        if not self._settings.takes_over:
            return None
        takeover = Takeover(self._endpoints.control_path())
        stack.callback(takeover.close)
        return takeover

    def _proxy_server(self, events: EventLogWriter | None, sockets: InheritedSockets) -> ProxyServer:
        context = ProxyContext(
            loop=self._loop, clock=self._clock, counters=self._counters, notify=self._notify, sockets=sockets
        )
        return ProxyServer(
            context,
            settings=self._settings,
            registry=self._policy,
            throttle_stats=ThrottleStats(self._notify),
            connection_quotas=self._connections,
            topics=self._topics,
            charges=None if events is None else events.charges,
            dispatch=None if self._workers is None else self._workers.dispatch,
            on_route=None if self._workers is None else self._workers.route_changed,
        )

    def _apply(self, snapshot: ChangedSnapshot) -> None:
        """Put a content of the store in force, here and in all workers."""
        self._content.apply(snapshot)
        if self._workers is not None:
            self._workers.apply(snapshot, self._watcher.state.url)

    def _keep_state(
        self,
        stack: contextlib.AsyncExitStack,
        proxy: ProxyServer,
        measured: MeasuredState,
        before: Takeover | SavedState | None,
    ) -> None:
        """Restore the usage of a predecessor or the state file, and keep saving it if there is a file."""
        path = self._settings.state_file
        keeper = None if path is None else StateSnapshotter(path, measured, self._counters, notify=self._notify)
        if isinstance(before, Takeover):
            before.meet_brokers(proxy)
            before.restore(measured, self._notify)
        elif keeper is not None:
            keeper.restore(before)
        if keeper is None:
            return
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
        carried = None if self._workers is None else self._workers.shared.carried
        fleet = FleetMembership(
            self._settings,
            settings,
            DaemonBuckets(self._policy, self._connections, self._topics.thresholds, carried=carried),
            clock=self._clock,
            notify=self._notify,
            waiting=self._waiting_clients,
            secrets=lambda: self._content.fleet_secrets,
        )
        stack.push_async_callback(fleet.close)
        await fleet.start()
        return fleet

    def _waiting_clients(self, now_ms: int) -> Mapping[SharedBucket, int]:
        if self._workers is not None:
            return self._workers.waiting()
        return {} if self._proxy is None else waiting_clients(self._proxy.throttled(), now_ms)

    def _reporter(self, proxy: ProxyServer, events: EventLogWriter | None) -> Reporter:
        return Reporter(
            settings=self._settings,
            clock=self._clock,
            counters=self._counters,
            proxy=proxy,
            policy=self._policy,
            throttle_stats=proxy.throttle_stats,
            store=lambda: self._watcher.state,
            events=events,
            fleet=self._fleet,
            event_loop=type(self._loop).__module__.partition(".")[0],
        )

    def _handover(self, stack: contextlib.AsyncExitStack, proxy: ProxyServer, measured: MeasuredState) -> Handover:
        handover = Handover(
            proxy=proxy,
            policy=self._policy,
            measured=measured,
            clock=self._clock,
            notify=self._notify,
            other_sockets=self._endpoints.sockets,
            on_given_up=self._endpoints.reclaim_control,
            on_taken_over=self._leave_to_successor,
        )
        stack.push_async_callback(handover.close)
        return handover

    async def _leave_to_successor(self) -> None:
        """Leave to a successor what only one process may do, and drain."""
        self._ends.put_nowait(UPGRADE)
        if self._snapshotter is not None:
            self._snapshotter.leave()
        await self._endpoints.close()
        if self._fleet is not None:
            await self._fleet.close()

    def _record_charged(self, rows: object) -> None:
        record_charged(self._policy, rows, self._clock.now_ms())

    def _handler(
        self, proxy: ProxyServer, view: OperatorView, events: EventLogWriter | None, handover: Handover
    ) -> ControlHandler:
        _, bootstrap = proxy.routes()[0]
        decisions = DecisionService(
            self._policy,
            self._clock,
            connections=self._connections,
            thresholds=self._topics.thresholds,
            bootstrap=lambda: bootstrap.node_id,
            on_charged=None if events is None else events.charges.record_requested,
        )
        return ControlHandler(
            status=view.status,
            decide=decisions.decide,
            reload=partial(view.reload, "control socket"),
            unmute=view.unmute,
            upgrade=handover.begin,
        )

    def _log_listening(self, proxy: ProxyServer) -> None:
        fields: dict[str, str | float] = {
            "listen": str(proxy.routes()[0][0]),
            "upstream": ",".join(map(str, self._settings.upstreams)),
            "store": self._watcher.state.url,
            "limits": self._policy.limit_count,
            "max_connections": self._max_connections,
            **self._endpoints.fields(),
        }
        log_rules(self._settings, self._notify)
        log_listening(fields, self._notify, enforces_nothing=self._content.limits_nobody)

    def _listen_to_signals(self, stack: contextlib.AsyncExitStack) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._ends.put_nowait, number.name)
            stack.callback(self._loop.remove_signal_handler, number)

    async def _until_end(self, proxy: ProxyServer, reporter: Reporter, view: OperatorView) -> DaemonResult:
        """Wait for a signal or a successor that ends the daemon, drain, and return how it ended."""
        while (received := await self._ends.get()) == _HANGUP:
            self._reloading = self._loop.create_task(self._reload(view))
        reporter.draining = True
        served = len(proxy.connections) if self._workers is None else self._workers.connections
        fields: dict[str, str | float] = {"signal": received, "connections": served}
        self._notify(LogEvent(event="daemon draining", fields=fields))
        # A client that connects to the successor must not escape its throttle time; to nobody it can't connect.
        outlasts_mutes = received == UPGRADE
        draining = self._loop.create_task(self._drain(proxy, outlasts_mutes=outlasts_mutes))
        again = self._loop.create_task(self._second_signal())
        await asyncio.wait((draining, again), return_when=asyncio.FIRST_COMPLETED)
        again.cancel()
        left = len(proxy.connections) if self._workers is None else self._workers.connections
        cut = draining.result() if draining.done() else left
        draining.cancel()
        self._notify(LogEvent(event="daemon stopped", fields={"signal": received, "cut_connections": cut}))
        return DaemonResult(signal_name=received, cut_connections=cut)

    async def _drain(self, proxy: ProxyServer, *, outlasts_mutes: bool) -> int:
        timeout_s = self._settings.drain_timeout_s
        cut = await proxy.drain(timeout_s, outlasts_mutes=outlasts_mutes)
        if self._workers is not None:
            cut += await self._workers.drain(timeout_s, outlasts_mutes=outlasts_mutes)
        return cut

    async def _second_signal(self) -> None:
        while await self._ends.get() in (_HANGUP, UPGRADE):
            pass

    async def _restarted(self, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat work that should never end after each defect that ends it, and log the defect."""
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - clients are served without it until then
                self._notify(LogEvent.failure("work in the background failed; it is started again", error))
            await asyncio.sleep(RESTART_S)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_S)
            await run_sliced(self._policy.expiry(self._clock.now_ms()))
            await run_sliced(self._connections.expiry(self._clock.now_ms()))

    async def _reload(self, view: OperatorView) -> None:
        with contextlib.suppress(KafkaQuotasError):  # in the log already
            await view.reload("SIGHUP")
