"""The status of a running daemon, gathered from its parts.

Of all buckets, it has those that use most of their limit, and those of named clients. A walk looks at every bucket, a
slice at a time, and keeps no more than the number asked for. Long idle buckets cost it next to nothing: none of their
records counts any more, so it measures no share.
Invariants: the rows are the same as those of a sort by `share_used` over all buckets, cut at the number asked for.
"""

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from heapq import heappush, heapreplace, nlargest
from itertools import count
from typing import Final

from kafka_quotas.core.model.quota_key import CONNECTION_CREATION_RATE
from kafka_quotas.core.quotas.bucket_pool import SLICE
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.core.resolution.quota_resolver import GROUP_LEVELS, bucket_tags
from kafka_quotas.enforcement.config.settings import MetricsChoice
from kafka_quotas.enforcement.monitoring.endpoints import Readiness, readiness
from kafka_quotas.enforcement.proxy.connection_quotas import RateOf
from kafka_quotas.enforcement.proxy.proxy_server import ProxyServer, by_client
from kafka_quotas.enforcement.quotas.broker_quotas import ENFORCED
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry, broker_name
from kafka_quotas.enforcement.quotas.store_watcher import StoreState
from kafka_quotas.enforcement.session.state import ThrottledChannel
from kafka_quotas.enforcement.telemetry.status import (
    ESTIMATED,
    MAX_ROWS,
    BucketRow,
    DaemonStatus,
    FleetRow,
    ListenerRow,
    QuotaTotals,
    StoreRow,
    ThresholdRow,
    ThrottledClient,
    ThrottleRow,
    share_used,
)
from kafka_quotas.enforcement.telemetry.throttle_stats import OTHERS, ThrottleCount, Throttled

_NEVER = ThrottleCount()
_SLICE: Final = 1000


class Reporter:
    """The status of the daemon on request, gathered a slice at a time, between which clients are served."""

    def __init__(
        self, proxy: ProxyServer, *, store: Callable[[], StoreState], fleet: Callable[[], FleetRow] | None = None
    ) -> None:
        self._proxy = proxy
        self._settings = proxy.context.settings
        self._now_ms = proxy.context.clock.now_ms
        self._quotas = quotas = proxy.quotas
        self._registry = quotas.registry
        self._throttle_stats = quotas.throttle_stats
        self._store = store
        self._fleet = fleet
        self._started_ms = self._now_ms()
        self.draining = False

    def status(self) -> Generator[None, None, DaemonStatus]:
        """Return the status with at most `MAX_ROWS` buckets, clients and throttle counts each."""
        buckets = yield from top_buckets(
            self._registry, replace(self._settings.metrics_choice, top=MAX_ROWS), self._now_ms()
        )
        throttles = yield from self._throttle_rows()
        last_hour = yield from self._throttle_stats.last_hour.rows(self._now_ms())
        return replace(self._status(buckets=buckets, throttles=throttles), last_hour=last_hour)

    def figures(self) -> Generator[None, None, DaemonStatus]:
        """Return the part of the status that metrics need, without throttle counts and buckets without series."""
        buckets = yield from top_buckets(self._registry, self._settings.metrics_choice, self._now_ms())
        return self._status(buckets=buckets, throttles=())

    def _status(self, *, buckets: tuple[BucketRow, ...], throttles: tuple[ThrottleRow, ...]) -> DaemonStatus:
        now_ms, rules = self._now_ms(), self._settings.rules
        throttled = self._throttled(now_ms)
        return DaemonStatus(
            pid=os.getpid(),
            uptime_ms=now_ms - self._started_ms,
            event_loop=type(self._proxy.context.loop).__module__.partition(".")[0],
            upstream=",".join(map(str, self._settings.upstreams)),
            throttle_style=rules.throttle_style.value,
            fetch_over_quota=rules.fetch_over_quota.value,
            window_num=rules.window.samples,
            window_size_seconds=rules.window.window_s,
            max_throttle_ms=rules.max_throttle_ms,
            draining=self.draining,
            connections=len(self._proxy.connections),
            store=self._store_row(now_ms),
            listeners=self._listener_rows(),
            throttled=tuple(nlargest(MAX_ROWS, throttled, key=lambda row: row.remaining_ms)),
            buckets=(*self._connection_rows(now_ms), *buckets),
            throttles=throttles,
            counters=self.totals(),
            mode=rules.mode.value,
            scope=rules.scope.value,
            on_violation=rules.on_violation.value,
            cost_model=self._registry.costs.source,
            thresholds=self._threshold_rows(now_ms),
            quota_totals=self.quota_totals(throttled),
            bucket_count=len(self._registry.pool),
            longest_stall_ms=self._proxy.context.stalls.longest_ms,
            fleet=None if self._fleet is None else self._fleet(),
        )

    async def readiness(self) -> Readiness:
        """Return whether load balancers should send clients to this daemon at this moment."""
        store = self._store_row(self._now_ms())
        return await readiness(self._proxy.upstreams(), self._proxy.context.health, store, draining=self.draining)

    def _store_row(self, now_ms: int) -> StoreRow:
        state = self._store()
        return StoreRow(
            url=state.url,
            revision=state.revision,
            age_ms=max(0, now_ms - state.confirmed_ms),
            trouble=state.trouble,
            limits=self._registry.limit_count,
        )

    def _listener_rows(self) -> tuple[ListenerRow, ...]:
        connections = Counter(map(id, self._proxy.connections.values()))
        return tuple(
            ListenerRow(
                broker=broker_name(route.node_id),
                listen=str(address),
                upstream=str(route.upstream),
                connections=connections[id(route)],
            )
            for address, route in self._proxy.routes()
        )

    def _throttled(self, now_ms: int) -> list[ThrottledClient]:
        mutes = (
            (route.node_id, mute)
            for connection, route in self._proxy.connections.items()
            if (mute := connection.session.state.mute) is not None and mute.until_ms > now_ms
        )
        found = by_client(mutes)
        return [_throttled_client(broker, channels, now_ms) for (_, _, broker, _), channels in found.items()]

    def _connection_rows(self, now_ms: int) -> Iterator[BucketRow]:
        connections = self._quotas.connections
        for group, key, mark, limit in connections.groups.tree.bounds():
            user, name = bucket_tags((mark, group))
            for node_id, rates in connections.brokers.items() if key == CONNECTION_CREATION_RATE.name else ():
                broker, observed = broker_name(node_id), rates.observed(RateOf(GROUP_LEVELS[mark]), group, now_ms)
                yield BucketRow(broker=broker, quota=key, user=user, client_id=name, limit=limit, observed=observed)

    def _threshold_rows(self, now_ms: int) -> tuple[ThresholdRow, ...]:
        """Return the thresholds of each broker that has some, topics by their rate in descending order."""
        rows = [
            ThresholdRow(broker=broker_name(node_id), topic=topic, threshold=threshold, observed=rate)
            for node_id, thresholds in self._quotas.topics.thresholds.brokers.items()
            if thresholds.is_active
            for topic, (rate, threshold) in thresholds.rates(now_ms).items()
        ]
        return tuple(sorted(rows, key=lambda row: (row.broker, row.topic != "", -row.observed, row.topic))[:MAX_ROWS])

    def _throttle_rows(self) -> Generator[None, None, tuple[ThrottleRow, ...]]:
        """Return the counts of the buckets throttled longest, and the sums of those no longer kept apart."""
        tables = self._throttle_stats.tables
        total_ms: Counter[Throttled] = Counter()
        for table in tables:
            keys = list(table.by_bucket)
            for start in range(0, len(keys), _SLICE):
                for key in keys[start : start + _SLICE]:
                    total_ms[key] += table.by_bucket.get(key, _NEVER).total_ms
                yield
        longest = nlargest(MAX_ROWS, total_ms, key=total_ms.__getitem__)
        rows = [_throttle_row(key, [table.by_bucket.get(key, _NEVER) for table in tables]) for key in longest]
        for quota_type in ENFORCED:
            others = [table.others[quota_type] for table in tables]
            if any(count.times for count in others):
                rows.append(_throttle_row((quota_type, OTHERS), others))
        return tuple(sorted(rows, key=lambda row: (row.user, row.client_id, row.quota)))

    def quota_totals(self, throttled: Iterable[ThrottledClient] = ()) -> tuple[QuotaTotals, ...]:
        """Return the throttle times of each quota, with the connections of these clients as those that wait."""
        waiting: Counter[str] = Counter()
        for each in throttled:
            waiting[each.quota] += each.connections
        rows = []
        for quota_type in ENFORCED:
            ours, theirs, shadows, refused = (table.totals[quota_type] for table in self._throttle_stats.tables)
            row = QuotaTotals(
                quota=quota_type.key.name,
                waiting=waiting[quota_type.key.name],
                times=ours.times,
                total_ms=ours.total_ms,
                upstream_times=theirs.times,
                shadow_times=shadows.times,
                refused_times=refused.times,
            )
            rows.append(row)
        return tuple(rows)

    def totals(self) -> dict[str, int]:
        """Return the counters since the start by name."""
        totals: dict[str, int] = asdict(self._proxy.context.counters)
        totals["requests"] += sum(each.session.state.request_count for each in self._proxy.connections)
        totals["buckets_evicted"] = self._registry.pool.evicted
        events = self._proxy.context.events
        if events is not None:
            totals["events_logged"], totals["events_dropped"] = events.written, events.dropped
        return totals


def _throttled_client(broker: str, channels: list[ThrottledChannel], now_ms: int) -> ThrottledClient:
    longest = max(channels, key=lambda channel: channel.until_ms)
    limiter = longest.limiter
    return ThrottledClient(
        broker=broker,
        user=limiter.user,
        client_id=limiter.client_id,
        quota=limiter.quota_type.key.name,
        entity=str(limiter.entity or ""),
        limit=limiter.bound or 0.0,
        observed=limiter.peek(now_ms) or 0.0,
        connections=len(channels),
        throttle_ms=longest.until_ms - longest.since_ms,
        remaining_ms=longest.until_ms - now_ms,
        estimated=limiter.quota_type.key.name == ESTIMATED,
    )


def _throttle_row(key: Throttled, counts: list[ThrottleCount]) -> ThrottleRow:
    quota_type, (user, client_id) = key
    ours, theirs, shadows, refused = counts
    return ThrottleRow(
        quota=quota_type.key.name,
        user=user,
        client_id=client_id,
        times=ours.times,
        total_ms=ours.total_ms,
        upstream_times=theirs.times,
        upstream_total_ms=theirs.total_ms,
        shadow_times=shadows.times,
        shadow_total_ms=shadows.total_ms,
        refused_times=refused.times,
    )


MAX_NAMED: Final = 1000
"""Most buckets of named clients that are reported: one user may have any number of client-ids."""


def top_buckets(
    registry: QuotaRegistry, choice: MetricsChoice, now_ms: int
) -> Generator[None, None, tuple[BucketRow, ...]]:
    """Return the rows of the chosen buckets that have a limit, by user, client-id, quota and broker."""
    top, named = _Largest(choice.top), _Largest(MAX_NAMED)
    for buckets in registry.pool.walk():
        for bucket in buckets:
            user, client_id = bucket.name
            largest = named if user in choice.users or client_id in choice.client_ids else top
            is_blank = bucket.is_blank(now_ms)
            if is_blank and largest.is_full:
                continue
            manager = bucket.owner
            limit = manager.limits.limit(bucket.name)
            if limit is not None and registry.id_of(bucket) is not None:
                measured = 0.0 if is_blank else manager.renewed(bucket).peek(now_ms)
                of_tokens = manager.quota_type is QuotaType.CONTROLLER_MUTATION
                largest.offer(share_used(measured, limit, of_tokens=of_tokens), bucket)
        yield
    rows = []
    for number, (_, _, bucket) in enumerate((*named.entries, *top.entries)):
        row = _bucket_row(registry, bucket, now_ms)
        if row is not None:
            rows.append(row)
        if number % SLICE == SLICE - 1:
            yield
    return tuple(sorted(rows, key=lambda row: (row.user, row.client_id, row.quota, row.broker, row.mode)))


@dataclass(slots=True)
class _Largest:
    """The buckets with the largest shares among those offered, at most `most` of them."""

    most: int
    entries: list[tuple[float, int, QuotaBucket]] = field(default_factory=list)
    """A heap by share, whose second figure keeps buckets of one share apart."""
    _number: "count[int]" = field(default_factory=count)

    @property
    def is_full(self) -> bool:
        return len(self.entries) >= self.most

    def offer(self, share: float, bucket: QuotaBucket) -> None:
        if not self.is_full:
            heappush(self.entries, (share, -next(self._number), bucket))
        elif self.entries and share > self.entries[0][0]:
            heapreplace(self.entries, (share, -next(self._number), bucket))


def _bucket_row(registry: QuotaRegistry, bucket: QuotaBucket, now_ms: int) -> BucketRow | None:
    """Return the row of a bucket, None if it no longer has a limit."""
    state, of = bucket.owner.state(bucket, now_ms), registry.id_of(bucket)
    if state.bound is None or of is None:
        return None
    quota = of.quota_type.key.name
    return BucketRow(
        broker=broker_name(of.broker),
        quota=quota,
        user=state.tags[0],
        client_id=state.tags[1],
        limit=state.bound,
        observed=state.measured,
        mode=of.mode.value,
        estimated=quota == ESTIMATED,
        throttle_ms=state.throttle_ms,
        last_minute_times=state.last_minute.times,
        last_minute_total_ms=state.last_minute.total_ms,
        last_minute_held_ms=state.last_minute.held_ms,
        mutation_rate=state.mutation_rate,
    )
