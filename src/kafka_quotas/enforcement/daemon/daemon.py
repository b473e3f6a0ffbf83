"""The parts of a daemon put together: its start, its signals, its operators, and an end that cuts off no request.

SIGTERM and SIGINT drain: no new connection, no new request, every request under way is answered; a second one ends at
once. SIGHUP reads the store and the files of quotas anew. Operators see the daemon and its workers as one.
"""

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from resource import RLIMIT_NOFILE, getrlimit
from typing import Final, TextIO

from kafka_quotas.core.clock import MonotonicClock
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.resolution.effective import QuotaClient
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.control.client import control_path
from kafka_quotas.enforcement.control.decision_service import DecisionService
from kafka_quotas.enforcement.control.server import ControlHandler, ControlServer
from kafka_quotas.enforcement.event_log.charges import start_event_log
from kafka_quotas.enforcement.monitoring.endpoints import DaemonView, Pages, daemon_server
from kafka_quotas.enforcement.monitoring.status_reporter import Reporter
from kafka_quotas.enforcement.proxy.brokers import UpstreamHealth
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas, connections_for
from kafka_quotas.enforcement.proxy.context import ServerContext
from kafka_quotas.enforcement.proxy.proxy_quotas import ProxyQuotas
from kafka_quotas.enforcement.proxy.proxy_server import ProxyServer, Unmuted
from kafka_quotas.enforcement.quotas.quota_registry import BucketId
from kafka_quotas.enforcement.quotas.store_watcher import ChangedSnapshot, OpenStore, Reloaded, StoreWatcher
from kafka_quotas.enforcement.sharing.buckets import waiting_clients
from kafka_quotas.enforcement.sharing.membership import FleetMembership
from kafka_quotas.enforcement.sharing.pool import WorkerPool, merged
from kafka_quotas.enforcement.sharing.state import MeasuredState, SavedState, StateSnapshotter, saved_state
from kafka_quotas.enforcement.sharing.worker import main
from kafka_quotas.enforcement.telemetry.log import Log, LogEvent, LogLevel, Notify
from kafka_quotas.enforcement.telemetry.status import DaemonStatus, run_sliced

RESTART_S: Final = 5.0
"""Seconds before work that a defect ended begins again."""
RETRY_S: Final = 2.0
"""Seconds between two attempts to reach a broker, as long as none was reached."""
GC_THRESHOLD: Final = 50_000
"""Objects made before the collector looks at them: its default of 700 is reached within a few hundred requests."""
# With the default of 5 ms the threads of store and event log cost more than they do: until one of them gets the
# interpreter, every wait of the event loop costs a wake-up.
SWITCH_S: Final = 0.0005
"""Longest time that a thread waits for the interpreter."""
_HANGUP: Final = signal.SIGHUP.name


def run_daemon(
    settings: DaemonSettings, open_store: OpenStore, *, log: TextIO, pages: Pages = lambda _: {}
) -> tuple[str, int]:
    """Run a daemon until a signal, and return its name and how many connections were cut off.

    Args:
        settings: The settings.
        open_store: Opens the store, in any thread.
        log: The log.
        pages: Makes the pages for browsers.

    Raises:
        KafkaQuotasError: Store, quotas, an address, the control socket or prometheus-client is not available.
    """

    async def daemon() -> tuple[str, int]:
        return await _Daemon(settings, open_store, log, pages).run()

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(daemon())


def run_worker() -> None:
    """Run a worker of the daemon that started this process."""
    main(_loop_factory(), _make_collections_rare)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory of event loops if it is installed, None for asyncio's own."""
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
    def __init__(self, settings: DaemonSettings, open_store: OpenStore, log: TextIO, pages: Pages) -> None:
        self._settings = settings
        self._pages = pages
        self._loop = asyncio.get_running_loop()
        clock = MonotonicClock()
        self._notify = Log(log, clock, log_format=settings.log_format).notify
        self._stack = contextlib.AsyncExitStack()
        by_descriptors = settings.workers * connections_for(getrlimit(RLIMIT_NOFILE)[0])
        self._max_connections = settings.max_connections or by_descriptors
        connections = ConnectionQuotas(
            settings.rules.window, broker_rate=settings.connection_rate, max_connections=self._max_connections
        )
        quotas = self._quotas = ProxyQuotas(settings, connections, clock, notify=self._notify)
        self._ends: asyncio.Queue[str] = asyncio.Queue()
        self._watcher = StoreWatcher(
            open_store,
            loop=self._loop,
            clock=clock,
            counters=quotas.counters,
            notify=self._notify,
            on_snapshot=self._apply,
        )
        self._reloading: asyncio.Task[None] | None = None
        self._proxy: ProxyServer | None = None
        self._snapshotter: StateSnapshotter | None = None
        self._workers = WorkerPool(quotas, clock)

    async def run(self) -> tuple[str, int]:
        """Run all parts until a signal ends the daemon, then stop them and return how it ended."""
        async with self._stack as stack:
            self._quotas.use_files()
            first = self._watcher.start()
            stack.callback(self._watcher.stop)
            self._apply(first)
            events = start_event_log(self._settings.event_log, self._loop, self._notify)
            if events is not None:
                stack.callback(events.close)
            fleet = await self._join_fleet()
            # Before a port opens: a large file takes its time, and a client that connects meanwhile would time out.
            saved = saved_state(self._settings.state_file, self._notify)
            proxy = self._proxy = ProxyServer(ServerContext(self._quotas, events=events))
            if self._workers.count:
                proxy.dispatch, proxy.on_route = self._workers.dispatch, self._workers.route_changed
            measured = MeasuredState(self._quotas, lambda: proxy.bootstrap)
            self._keep_state(measured, saved)
            del saved  # as large as all buckets, and this frame lives as long as the daemon
            stack.callback(proxy.close)
            self._reporter = Reporter(
                proxy, store=lambda: self._watcher.state, fleet=None if fleet is None else fleet.status
            )
            stack.push_async_callback(self._workers.close)
            await self._workers.start(proxy, measured)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                self._loop.add_signal_handler(number, self._ends.put_nowait, number.name)
                stack.callback(self._loop.remove_signal_handler, number)
            _make_collections_rare()
            endpoints = await self._serve_operators(proxy)
            self._log_listening(proxy, endpoints)
            reaching = log_reaching(proxy.upstreams(), proxy.context.health, self._notify)
            stack.callback(self._loop.create_task(reaching).cancel)
            for work in proxy.background():
                stack.callback(self._loop.create_task(self._restarted(work)).cancel)
            return await self._until_end()

    def _apply(self, snapshot: ChangedSnapshot) -> None:
        url = self._watcher.state.url
        self._quotas.apply(snapshot, url)
        self._workers.apply(snapshot, url)

    def _keep_state(self, measured: MeasuredState, saved: SavedState | None) -> None:
        """Restore what the state file has, if there is one, and keep saving it, the last time at the end."""
        path = self._settings.state_file
        if path is None:
            return
        keeper = self._snapshotter = StateSnapshotter(path, measured)
        keeper.restore(saved)
        keeping = self._loop.create_task(keeper.keep())

        async def end() -> None:
            keeper.end()
            await keeping

        self._stack.push_async_callback(end)

    async def _join_fleet(self) -> FleetMembership | None:
        settings = self._settings.fleet
        if settings is None:
            return None
        recorder = self._workers.shared if self._workers.count else None
        fleet = FleetMembership(self._quotas, settings, waiting=self._waiting_clients, recorder=recorder)
        self._stack.push_async_callback(fleet.close)
        await fleet.start()
        return fleet

    def _waiting_clients(self, now_ms: int) -> Mapping[BucketId, int]:
        if self._workers.count:
            return self._workers.waiting()
        throttled = () if self._proxy is None else self._proxy.throttled()
        return waiting_clients(self._quotas.registry, throttled, now_ms)

    async def _until_end(self) -> tuple[str, int]:
        """Wait for a signal that ends the daemon, drain, and return how it ended."""
        while (received := await self._ends.get()) == _HANGUP:
            self._reloading = self._loop.create_task(self._hang_up())
        self._reporter.draining = True
        self._notify(LogEvent.of("daemon draining", signal=received, connections=self._served))
        draining = self._loop.create_task(self._drain())
        again = self._loop.create_task(self._second_signal())
        await asyncio.wait((draining, again), return_when=asyncio.FIRST_COMPLETED)
        again.cancel()
        cut = draining.result() if draining.done() else self._served
        draining.cancel()
        self._notify(LogEvent.of("daemon stopped", signal=received, cut_connections=cut))
        return received, cut

    @property
    def _served(self) -> int:
        assert self._proxy is not None
        return len(self._proxy.connections) + self._workers.connections

    async def _drain(self) -> int:
        assert self._proxy is not None
        timeout_s = self._settings.drain_timeout_s
        return await self._proxy.drain(timeout_s) + await self._workers.drain(timeout_s)

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

    # What operators see and do.

    async def _serve_operators(self, proxy: ProxyServer) -> dict[str, str | float]:
        """Serve metrics and pages, if they are wanted, and the control socket, and return their addresses."""
        settings, quotas, events = self._settings, self._quotas, proxy.context.events
        addresses: dict[str, str | float] = {}
        if settings.metrics is not None:
            view = DaemonView(
                status=self._status,
                entries=quotas.entries,
                resolver=lambda: quotas.resolver,
                groups=lambda: quotas.registry.groups.tree,
                groups_of=quotas.registry.groups_of,
            )
            figures = partial(self._status, "figures")
            pages = self._pages(view)
            metrics = daemon_server(settings.metrics, figures, self._reporter.readiness, pages, notify=self._notify)
            self._stack.push_async_callback(metrics.close)
            address = Address(host=settings.metrics.host, port=await metrics.start())
            addresses["metrics"] = f"http://{address}/metrics"
        decisions = DecisionService(
            quotas,
            bootstrap=lambda: proxy.bootstrap,
            on_charged=None if events is None else events.charges.record_requested,
        )
        handler = ControlHandler(
            status=self._status,
            decide=decisions.decide,
            reload=partial(self._reload, "control socket"),
            unmute=partial(self._unmute, proxy),
            groups=quotas.registry.groups_of,
        )
        path = settings.control or control_path(proxy.routes()[0][0].port)
        control = ControlServer(path, handler, mode=settings.control_mode, users=settings.control_users)
        self._stack.push_async_callback(control.close)
        await control.start()
        return {"control": str(control.path), **addresses}

    async def _status(self, question: str = "status") -> DaemonStatus:
        """Return the status with as many rows as there may be, or the part of it that metrics need."""
        work = self._reporter.status() if question == "status" else self._reporter.figures()
        status = await run_sliced(work)
        if self._snapshotter is not None:
            status = replace(status, state_age_ms=self._snapshotter.age_ms())
        if not self._workers.count:
            return status
        answers = [each for each in await self._workers.ask(question) if isinstance(each, DaemonStatus)]
        return merged(status, answers, self._workers.rows(), self._workers.ended)

    async def _reload(self, asked_by: str) -> Reloaded:
        result = await self._quotas.reload(self._watcher, asked_by)
        for answer in await self._workers.ask("reload"):
            if isinstance(answer, KafkaQuotasError):
                raise answer
        return result

    async def _hang_up(self) -> None:
        with contextlib.suppress(Exception):  # in the log already
            await self._reload("SIGHUP")

    async def _unmute(self, proxy: ProxyServer, clients: QuotaClient) -> Unmuted:
        answers = await self._workers.ask("unmute", clients)
        every = [proxy.unmute(clients), *(each for each in answers if isinstance(each, Unmuted))]
        return Unmuted(unmuted=tuple(row for each in every for row in each.unmuted))

    def _log_listening(self, proxy: ProxyServer, endpoints: Mapping[str, str | float]) -> None:
        fields: dict[str, str | float] = {
            "listen": str(proxy.routes()[0][0]),
            "upstream": ",".join(map(str, self._settings.upstreams)),
            "store": self._watcher.state.url,
            "limits": self._quotas.registry.limit_count,
            "max_connections": self._max_connections,
            **endpoints,
        }
        log_rules(self._settings, self._notify)
        log_listening(fields, self._notify, enforces_nothing=self._quotas.limits_nobody)


def log_rules(settings: DaemonSettings, notify: Notify) -> None:
    """Log the daemon's own rules, and the files beside the store."""
    rules = settings.rules
    files = {"policy": settings.policy_file, "static_quotas": settings.static_quotas, "cost_model": settings.cost_model}
    names = ("mode", "scope", "fetch_over_quota", "on_violation", "throttle_style")
    own = {name: getattr(rules, name).value for name in names}
    window = f"{rules.window.samples}x{rules.window.window_s}s"
    given = {name: str(path) for name, path in files.items() if path is not None}
    notify(LogEvent.of("rules in force", **own, window=window, **given))


def log_listening(fields: Mapping[str, str | float], notify: Notify, *, enforces_nothing: bool) -> None:
    """Log that clients may connect, and warn if no quota and no rule limits any of them."""
    notify(LogEvent.of("daemon listening", **fields))
    if enforces_nothing:
        event = "no quota is in force, no client is limited; the first quota in the store counts at once"
        notify(LogEvent.of(event, LogLevel.WARNING, store=fields["store"]))


async def log_reaching(upstreams: Iterable[Address], health: UpstreamHealth, notify: Notify) -> None:
    """Log the first broker that takes a connection, and before it a warning if none does at once."""
    addresses = list(upstreams)
    found = await health.first_answering(addresses)
    if found is None:
        event = "no broker takes connections; clients are closed until one does"
        notify(LogEvent.of(event, LogLevel.WARNING, upstream=",".join(map(str, addresses))))
    while found is None:
        await asyncio.sleep(RETRY_S)
        found = await health.first_answering(addresses)
    notify(LogEvent.of("a broker takes connections", upstream=str(found)))
