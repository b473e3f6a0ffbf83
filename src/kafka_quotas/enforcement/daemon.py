"""The daemon as a whole: its start, its signals, and an end that cuts off no request under way.

SIGTERM and SIGINT drain: no new connection, no new request, every request under way is answered; a second one ends at
once. SIGHUP reads the store and the files of quotas anew.
"""

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit
from typing import Final, TextIO

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.quotas.bucket_pool import BucketPool
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.cost_model_file import read_cost_model
from kafka_quotas.enforcement.config.listener_file import ListenerFiles, refuse_restart
from kafka_quotas.enforcement.config.policy_file import read_policy_file
from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.control.client import control_path
from kafka_quotas.enforcement.control.decision_service import DecisionService
from kafka_quotas.enforcement.control.handler import ControlHandler
from kafka_quotas.enforcement.control.server import ControlServer
from kafka_quotas.enforcement.event_log.writer import EventLogWriter
from kafka_quotas.enforcement.fleet.daemon_buckets import DaemonBuckets
from kafka_quotas.enforcement.fleet.membership import FleetMembership
from kafka_quotas.enforcement.monitoring.http_server import MetricsServer
from kafka_quotas.enforcement.monitoring.metrics import exposition
from kafka_quotas.enforcement.monitoring.status_reporter import Reporter
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas, connections_for
from kafka_quotas.enforcement.proxy.proxied_connection import ProxyContext
from kafka_quotas.enforcement.proxy.proxy_server import ProxyServer
from kafka_quotas.enforcement.proxy.quiet_connections import QuietConnections
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.enforcement.quotas.reload import ReloadedFile, Reloader, Use
from kafka_quotas.enforcement.quotas.store_changes import ChangedSnapshot
from kafka_quotas.enforcement.quotas.store_watcher import OpenStore, StoreWatcher
from kafka_quotas.enforcement.state.snapshotter import StateSnapshotter
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import Log, LogEvent
from kafka_quotas.enforcement.telemetry.status import run_sliced
from kafka_quotas.enforcement.telemetry.throttle_stats import ThrottleStats
from kafka_quotas.enforcement.topics.filters import TopicFilters
from kafka_quotas.stores.static import read_static_quotas
from kafka_quotas.system_clock import MonotonicClock

EXPIRY_S: Final = 60.0
"""Seconds between two searches for idle buckets."""
RESTART_S: Final = 5.0
"""Seconds before work that a defect ended begins again."""
STATIC_SCHEME: Final = "static:"
GC_THRESHOLD: Final = 50_000
"""Objects made before the collector looks at them: its default of 700 is reached within a few hundred requests."""
# With the default of 5 ms the threads of store and event log cost more than they do: until one of them gets the
# interpreter, every wait of the event loop costs a wake-up.
SWITCH_S: Final = 0.0005
"""Longest time that a thread waits for the interpreter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonResult:
    """The signal that ended a daemon, and what it left undone."""

    signal_name: str
    cut_connections: int
    """Connections cut off before they were drained."""


def run_daemon(settings: DaemonSettings, open_store: OpenStore, *, log: TextIO) -> DaemonResult:
    """Run a daemon until a signal ends it, and return how it ended.

    Raises:
        KafkaQuotasError: Store, quotas, an address, the control socket or prometheus-client is not available.
    """

    async def daemon() -> DaemonResult:
        return await _Daemon(settings, open_store, log).run()

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(daemon())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory of event loops where it is installed, None for asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - an optional dependency
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _make_collections_rare() -> None:
    """Freeze all objects of the start and make garbage collections rare, because requests make no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    sys.setswitchinterval(SWITCH_S)


class _Daemon:
    """The parts of one daemon, in its event loop."""

    def __init__(self, settings: DaemonSettings, open_store: OpenStore, log: TextIO) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._clock = MonotonicClock()
        self._notify = Log(log, self._clock, log_format=settings.log_format).notify
        self._counters = Counters()
        rules = settings.rules
        self._policy = QuotaRegistry(
            rules.window,
            mutation_window=rules.mutation_window,
            mutations=rules.mutations.algorithm,
            policies=rules.policies,
            pool=BucketPool(settings.max_bucket_bytes, self._clock),
        )
        self._topics = TopicFilters(rules, counters=self._counters, notify=self._notify, clock=self._clock)
        self._max_connections = settings.max_connections or connections_for(getrlimit(RLIMIT_NOFILE)[0])
        self._connections = ConnectionQuotas(
            rules.window, broker_rate=settings.connection_rate, max_connections=self._max_connections
        )
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self._changed = 0
        self._proxy: ProxyServer | None = None
        self._applied: str | None = None
        self._watcher = StoreWatcher(
            open_store,
            loop=self._loop,
            clock=self._clock,
            counters=self._counters,
            notify=self._notify,
            on_snapshot=self._apply,
        )
        self._reloader = Reloader(
            files=list(self._files()),
            watcher=self._watcher,
            limits=lambda: self._policy.limit_count,
            changed=lambda: self._changed,
            notify=self._notify,
        )
        self._reloading: asyncio.Task[None] | None = None

    async def run(self) -> DaemonResult:
        """Run all parts until a signal ends the daemon, then stop them and return how it ended."""
        async with contextlib.AsyncExitStack() as stack:
            self._reloader.start()
            first = self._watcher.start()
            stack.callback(self._watcher.stop)
            self._apply(first)
            events = self._open_event_log(stack)
            fleet = await self._join_fleet(stack)
            proxy = self._proxy = ProxyServer(
                ProxyContext(loop=self._loop, clock=self._clock, counters=self._counters, notify=self._notify),
                settings=self._settings,
                registry=self._policy,
                throttle_stats=ThrottleStats(self._notify),
                connection_quotas=self._connections,
                topics=self._topics,
                charges=None if events is None else events.charges,
            )
            self._keep_state(stack, proxy)
            stack.callback(proxy.close)
            reporter = self._reporter(proxy, events, fleet)
            self._listen_to_signals(stack)
            _make_collections_rare()
            await self._serve_status(stack, proxy, reporter, events)
            quiet = QuietConnections(connections=lambda: proxy.connections, clock=self._clock, counters=self._counters)
            background: tuple[Callable[[], Awaitable[None]], ...] = (
                partial(quiet.watch, proxy.shortest_idle_ms),
                partial(quiet.watch_gathering, proxy.gathering),
                self._expire,
            )
            for work in background:
                stack.callback(self._loop.create_task(self._restarted(work)).cancel)
            return await self._until_signal(proxy, reporter)

    def _keep_state(self, stack: contextlib.AsyncExitStack, proxy: ProxyServer) -> None:
        """Restore the buckets from the state file and keep saving them, where there is such a file."""
        if self._settings.state_file is None:
            return
        rules = self._settings.rules
        snapshotter = StateSnapshotter(
            self._settings.state_file,
            self._policy,
            connections=self._connections,
            thresholds=self._topics.thresholds,
            clock=self._clock,
            settings=tuple(f"{each.samples} x {each.window_s} s" for each in (rules.window, rules.mutation_window)),
            bootstrap=lambda: proxy.listeners[0].brokers.routes[0].node_id,
            notify=self._notify,
        )
        snapshotter.restore()
        keeping = self._loop.create_task(snapshotter.keep())

        async def end() -> None:
            snapshotter.end()
            await keeping

        stack.push_async_callback(end)

    async def _join_fleet(self, stack: contextlib.AsyncExitStack) -> FleetMembership | None:
        """Join the fleet before the first client is served, where there is one."""
        settings = self._settings.fleet
        if settings is None:
            return None
        fleet = FleetMembership(
            self._settings,
            settings,
            DaemonBuckets(self._policy, self._connections, self._topics.thresholds),
            pool=self._policy.pool,
            clock=self._clock,
            notify=self._notify,
            throttled=lambda: () if self._proxy is None else self._proxy.throttled(),
        )
        stack.push_async_callback(fleet.close)
        await fleet.start()
        return fleet

    def _open_event_log(self, stack: contextlib.AsyncExitStack) -> EventLogWriter | None:
        if self._settings.event_log is None:
            return None

        def notify(event: LogEvent) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the log with it
                self._loop.call_soon_threadsafe(self._notify, event)

        events = EventLogWriter(self._settings.event_log, notify=notify)
        events.start()
        stack.callback(events.close)
        return events

    def _reporter(self, proxy: ProxyServer, events: EventLogWriter | None, fleet: FleetMembership | None) -> Reporter:
        return Reporter(
            settings=self._settings,
            clock=self._clock,
            counters=self._counters,
            proxy=proxy,
            policy=self._policy,
            throttle_stats=proxy.throttle_stats,
            store=lambda: self._watcher.state,
            events=events,
            fleet=fleet,
            event_loop=type(self._loop).__module__.partition(".")[0],
        )

    async def _serve_status(
        self, stack: contextlib.AsyncExitStack, proxy: ProxyServer, reporter: Reporter, events: EventLogWriter | None
    ) -> None:
        listen, bootstrap = proxy.routes()[0]
        decisions = DecisionService(
            self._policy,
            self._clock,
            connections=self._connections,
            thresholds=self._topics.thresholds,
            bootstrap=lambda: bootstrap.node_id,
            on_charged=None if events is None else events.charges.record_requested,
        )
        handler = ControlHandler(
            status=reporter.status,
            decide=decisions.decide,
            reload=lambda: self._reloader.reload("control socket"),
            unmute=proxy.unmute,
        )
        path = self._settings.control or control_path(listen.port)
        control = ControlServer(path, handler, access=self._settings.control_access)
        await control.start()
        stack.push_async_callback(control.close)
        fields: dict[str, str | float] = {
            "listen": str(listen),
            "upstream": ",".join(map(str, self._settings.upstreams)),
            "store": self._watcher.state.url,
            "limits": self._policy.limit_count,
            "max_connections": self._max_connections,
            "control": str(control.path),
        }
        if self._settings.metrics is not None:
            metrics = MetricsServer(self._settings.metrics, exposition(reporter.figures), reporter.readiness)
            port = await metrics.start()
            stack.push_async_callback(metrics.close)
            fields["metrics"] = f"http://{Address(host=self._settings.metrics.host, port=port)}/metrics"
        self._notify(LogEvent(event="daemon listening", fields=fields))

    def _listen_to_signals(self, stack: contextlib.AsyncExitStack) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._signals.put_nowait, number)
            stack.callback(self._loop.remove_signal_handler, number)

    async def _until_signal(self, proxy: ProxyServer, reporter: Reporter) -> DaemonResult:
        """Wait for a signal that ends the daemon, drain, and return how it ended."""
        while (received := await self._signals.get()) is signal.SIGHUP:
            self._reloading = self._loop.create_task(self._reload())
        reporter.draining = True
        fields: dict[str, str | float] = {"signal": received.name, "connections": len(proxy.connections)}
        self._notify(LogEvent(event="daemon draining", fields=fields))
        draining = self._loop.create_task(proxy.drain(self._settings.drain_timeout_s))
        again = self._loop.create_task(self._second_signal())
        await asyncio.wait((draining, again), return_when=asyncio.FIRST_COMPLETED)
        again.cancel()
        cut = len(proxy.connections) if not draining.done() else draining.result()
        draining.cancel()
        self._notify(LogEvent(event="daemon stopped", fields={"signal": received.name, "cut_connections": cut}))
        return DaemonResult(signal_name=received.name, cut_connections=cut)

    async def _second_signal(self) -> None:
        while await self._signals.get() is signal.SIGHUP:
            pass

    async def _restarted(self, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat work that should never end after each defect that ends it, and log the defect."""
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - clients are served without it until then
                self._notify(LogEvent.failure("work in the background failed; it is begun again", error))
            await asyncio.sleep(RESTART_S)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_S)
            await run_sliced(self._policy.expiry(self._clock.now_ms()))
            await run_sliced(self._connections.expiry(self._clock.now_ms()))

    # Quotas.

    def _apply(self, snapshot: ChangedSnapshot) -> None:
        """Put a store's content in force where it differs from what is."""
        url = self._watcher.state.url
        is_static = url.startswith(STATIC_SCHEME)
        if snapshot.since is not None and snapshot.since == self._applied:
            changed = self._policy.alter(snapshot.changed, static=is_static)
        else:
            changed = self._policy.apply(snapshot.entries, static=is_static)
        self._applied = None  # should the rest fail, all of the next content is applied
        self._changed += changed
        self._connections.ip_limits.apply(snapshot.other_entries)
        self._topics.apply_store((entry.entity, entry.quotas) for entry in snapshot.other_entries)
        self._applied = snapshot.revision
        fields: dict[str, str | float] = {"store": url, "changed": changed, "limits": self._policy.limit_count}
        self._notify(LogEvent(event="quotas applied", fields=fields))

    def _files(self) -> Iterator[ReloadedFile]:
        """Yield the files of quotas and rules that the start, and each reload, reads."""
        settings = self._settings
        for path, read in (
            (settings.static_quotas, self._read_static),
            (settings.policy_file, self._read_policy),
            (settings.cost_model, self._read_costs),
        ):
            if path is not None:
                yield ReloadedFile(path=path, read=partial(read, path))
        files = settings.listener_files
        if files is not None:
            for number, path in files.paths.items():
                yield ReloadedFile(path=path, read=partial(self._read_listener, files, number))

    def _read_listener(self, files: ListenerFiles, number: int) -> Use:
        settings = files.read(number)
        refuse_restart(self._settings.listeners[number], settings, files.paths[number])

        def use() -> int:
            if self._proxy is not None:
                self._proxy.follow(number, settings)
            return 0

        return use

    def _read_static(self, path: Path) -> Use:
        return partial(self._policy.apply, read_static_quotas(path), static=True)

    def _read_policy(self, path: Path) -> Use:
        file = read_policy_file(path)
        self._topics.thresholds.check_file(file.thresholds)

        def use() -> int:
            self._topics.thresholds.apply_file(file.thresholds)
            return self._policy.replace(file)

        return use

    def _read_costs(self, path: Path) -> Use:
        model = read_cost_model(path)

        def use() -> int:
            self._policy.costs = model
            return 0

        return use

    async def _reload(self) -> None:
        with contextlib.suppress(KafkaQuotasError):  # in the log already
            await self._reloader.reload("SIGHUP")
