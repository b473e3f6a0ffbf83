"""The parts of every process of a daemon: of the main one, and of a worker, which has neither store nor endpoints."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final

from kafka_quotas.core.clock import MonotonicClock
from kafka_quotas.core.quotas.bucket_pool import BucketPool
from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.event_log.charges import EventLogWriter, start_event_log
from kafka_quotas.enforcement.filters.topic_filters import TopicFilters
from kafka_quotas.enforcement.monitoring.status_reporter import Reporter
from kafka_quotas.enforcement.proxy.admission import AcceptedConnection
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas
from kafka_quotas.enforcement.proxy.context import BindRole, ServerContext, bind_here
from kafka_quotas.enforcement.proxy.listener import Listener
from kafka_quotas.enforcement.proxy.proxy_server import ProxyServer
from kafka_quotas.enforcement.proxy.quota_content import QuotaContent
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry, Route
from kafka_quotas.enforcement.quotas.store_watcher import StoreState
from kafka_quotas.enforcement.sharing.state import MeasuredState
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify
from kafka_quotas.enforcement.telemetry.status import FleetRow, run_sliced
from kafka_quotas.enforcement.telemetry.throttle_stats import ThrottleStats

EXPIRY_S: Final = 60.0


class Parts:
    """The parts of one process of a daemon, in its event loop."""

    def __init__(
        self,
        settings: DaemonSettings,
        connections: ConnectionQuotas,
        clock: MonotonicClock,
        *,
        notify: Notify,
        is_worker: bool = False,
    ) -> None:
        """Make the parts that need no listener. The main process has logged what a worker reads and restores."""
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.clock = clock
        self.notify = notify
        self.counters = Counters()
        rules = settings.rules
        self.policy = QuotaRegistry(
            rules.window,
            mutation_window=rules.mutation_window,
            policies=rules.policies,
            pool=BucketPool(settings.max_bucket_bytes, clock),
        )
        self.topics = TopicFilters(rules, counters=self.counters, notify=notify, clock=clock)
        self.connections = connections
        self.events: EventLogWriter | None = None
        self.proxy: ProxyServer | None = None
        self._is_worker = is_worker
        self._notify_once = _ignore if is_worker else notify
        self.content = QuotaContent(
            settings,
            self.policy,
            connections=connections,
            topics=self.topics,
            notify=self._notify_once,
        )

    def start_event_log(self) -> EventLogWriter | None:
        """Start the event log, if there is one."""
        self.events = start_event_log(self.settings.event_log, self.loop, self.notify)
        return self.events

    def listen(
        self,
        *,
        bind: BindRole = bind_here,
        dispatch: Callable[[Listener, AcceptedConnection, int], None] | None = None,
        on_closed: Callable[[int], None] | None = None,
        on_route: Callable[[Listener, Route], None] | None = None,
    ) -> ProxyServer:
        """Open the listeners, as `ProxyServer` describes.

        Raises:
            ListenError: An address can't be listened on.
        """
        context = ServerContext(
            loop=self.loop,
            clock=self.clock,
            counters=self.counters,
            notify=self.notify,
            settings=self.settings,
            connections=self.connections,
            bind=bind,
            accepts=not self._is_worker,
        )
        self.proxy = self.content.proxy = ProxyServer(
            context,
            registry=self.policy,
            throttle_stats=ThrottleStats(self.notify),
            topics=self.topics,
            charges=None if self.events is None else self.events.charges,
            dispatch=dispatch,
            on_closed=on_closed,
            on_route=on_route,
        )
        return self.proxy

    def measured(self, proxy: ProxyServer) -> MeasuredState:
        """Return the state of all that this process measures."""
        rules = self.settings.rules
        return MeasuredState(
            self.policy,
            connections=self.connections,
            thresholds=self.topics.thresholds,
            clock=self.clock,
            settings=tuple(f"{each.samples} x {each.window_s} s" for each in (rules.window, rules.mutation_window)),
            bootstrap=lambda: proxy.listeners[0].brokers.routes[0].node_id,
            notify=self._notify_once,
        )

    def reporter(
        self, proxy: ProxyServer, store: Callable[[], StoreState], fleet: Callable[[], FleetRow] | None = None
    ) -> Reporter:
        """Return the reporter of this process's status."""
        return Reporter(proxy, store=store, events=self.events, fleet=fleet)

    def background(self, proxy: ProxyServer) -> tuple[Callable[[], Coroutine[object, object, None]], ...]:
        """Return the work that never ends: over connections that say nothing, and buckets that nobody uses."""
        return proxy.watch_quiet, proxy.watch_gathering, self._expire

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_S)
            await run_sliced(self.policy.expiry(self.clock.now_ms()))
            await run_sliced(self.connections.expiry(self.clock.now_ms()))


def _ignore(event: LogEvent) -> None:
    """Log nothing: the main process has logged the same."""
