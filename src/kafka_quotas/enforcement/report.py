"""The status of a running daemon, gathered from its parts."""

import os
from collections.abc import Callable
from dataclasses import asdict

from kafka_quotas.core.clock import Clock
from kafka_quotas.enforcement.broker_quotas import ENFORCED, BrokerQuotas
from kafka_quotas.enforcement.counters import Counters
from kafka_quotas.enforcement.event_log_writer import EventLogWriter
from kafka_quotas.enforcement.gate import Gate
from kafka_quotas.enforcement.ledger import Ledger, ThrottleCount
from kafka_quotas.enforcement.mute import Mute
from kafka_quotas.enforcement.policy import NodeId, Policy, broker_name
from kafka_quotas.enforcement.settings import DaemonSettings
from kafka_quotas.enforcement.status import (
    ESTIMATED,
    MAX_ROWS,
    BucketRow,
    DaemonStatus,
    ListenerRow,
    StoreRow,
    ThresholdRow,
    ThrottledClient,
    ThrottleRow,
)
from kafka_quotas.enforcement.store_follower import StoreState

_NEVER = ThrottleCount()
CLUSTER = "cluster"
"""What stands in a broker's place for limits of all brokers together."""


class Reporter:
    """Tells the status whenever it is asked; asking changes nothing."""

    def __init__(
        self,
        *,
        settings: DaemonSettings,
        clock: Clock,
        counters: Counters,
        gate: Gate,
        policy: Policy,
        ledger: Ledger,
        store: Callable[[], StoreState],
        event_loop: str,
        events: EventLogWriter | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._counters = counters
        self._gate = gate
        self._policy = policy
        self._ledger = ledger
        self._store = store
        self._event_loop = event_loop
        self._events = events
        self._started_ms = clock.now_ms()
        self.draining = False

    def status(self) -> DaemonStatus:
        """The status at this moment."""
        now_ms, rules = self._clock.now_ms(), self._settings.rules
        return DaemonStatus(
            pid=os.getpid(),
            uptime_ms=now_ms - self._started_ms,
            event_loop=self._event_loop,
            upstream=",".join(map(str, self._settings.upstreams)),
            throttle_style=rules.throttle_style.value,
            fetch_over_quota=rules.fetch_over_quota.value,
            window_num=rules.window.samples,
            window_size_seconds=rules.window.window_s,
            max_throttle_ms=rules.max_throttle_ms,
            draining=self.draining,
            connections=len(self._gate.connections),
            store=self._store_row(now_ms),
            listeners=self._listener_rows(),
            throttled=self._throttled(now_ms),
            buckets=self._bucket_rows(now_ms),
            throttles=self._throttle_rows(),
            counters=self._totals(),
            mode=rules.mode.value,
            scope=rules.scope.value,
            on_violation=rules.on_violation.value,
            cost_model=self._policy.costs.source,
            thresholds=self._threshold_rows(now_ms),
        )

    def _store_row(self, now_ms: int) -> StoreRow:
        state = self._store()
        return StoreRow(
            url=state.url,
            revision=state.revision,
            age_ms=max(0, now_ms - state.confirmed_ms),
            trouble=state.trouble,
            limits=self._policy.limit_count,
        )

    def _listener_rows(self) -> tuple[ListenerRow, ...]:
        routes = list(self._gate.connections.values())
        return tuple(
            ListenerRow(
                broker=broker_name(route.node_id),
                listen=str(address),
                upstream=str(route.upstream),
                connections=sum(taken is route for taken in routes),
            )
            for address, route in self._gate.listeners()
        )

    def _throttled(self, now_ms: int) -> tuple[ThrottledClient, ...]:
        """Who waits now, one row per broker, quota and client, the longest wait first."""
        muted: dict[tuple[NodeId, str, str, str], list[Mute]] = {}
        for relay, route in self._gate.connections.items():
            mute = relay.session.mute
            if mute is not None and mute.until_ms > now_ms:
                name = (route.node_id, mute.quota_type.key.name, mute.limiter.user, mute.limiter.client_id)
                muted.setdefault(name, []).append(mute)
        rows = (_throttled_client(node_id, mutes, now_ms) for (node_id, *_), mutes in muted.items())
        return tuple(sorted(rows, key=lambda row: -row.remaining_ms)[:MAX_ROWS])

    def _bucket_rows(self, now_ms: int) -> tuple[BucketRow, ...]:
        rows = [
            BucketRow(
                broker=name,
                quota=quota_type.key.name,
                user=state.tags[0],
                client_id=state.tags[1],
                limit=state.bound,
                observed=state.measured,
                mode=mode.value,
                estimated=quota_type.key.name == ESTIMATED,
                throttle_ms=state.throttle_ms,
                mutation_rate=state.mutation_rate,
            )
            for name, quotas in self._bucket_owners()
            for quota_type in ENFORCED
            for mode, state in quotas.buckets(quota_type, now_ms)
            if state.bound is not None
        ]
        return tuple(sorted(rows, key=lambda row: (row.user, row.client_id, row.quota, row.broker))[:MAX_ROWS])

    def _bucket_owners(self) -> list[tuple[str, BrokerQuotas]]:
        """Whose buckets there are: those of each broker, and those of all together."""
        brokers = [(broker_name(node_id), quotas) for node_id, quotas in self._policy.brokers.items()]
        return [*brokers, (CLUSTER, self._policy.cluster)]

    def _threshold_rows(self, now_ms: int) -> tuple[ThresholdRow, ...]:
        """The brokers with a total, each with its topics that take in most of their thresholds."""
        rows = [
            ThresholdRow(broker=broker_name(node_id), topic=topic, threshold=threshold, observed=rate)
            for node_id, thresholds in self._gate.topics.thresholds.brokers.items()
            if thresholds.is_active
            for topic, (rate, threshold) in thresholds.rates(now_ms).items()
        ]
        return tuple(sorted(rows, key=lambda row: (row.broker, row.topic != "", -row.observed, row.topic))[:MAX_ROWS])

    def _throttle_rows(self) -> tuple[ThrottleRow, ...]:
        ours, theirs = self._ledger.throttles, self._ledger.upstream_throttles
        shadows, refused = self._ledger.shadow_throttles, self._ledger.refusals
        rows = [
            ThrottleRow(
                quota=quota_type.key.name,
                user=user,
                client_id=client_id,
                times=ours.get(key, _NEVER).times,
                total_ms=ours.get(key, _NEVER).total_ms,
                upstream_times=theirs.get(key, _NEVER).times,
                upstream_total_ms=theirs.get(key, _NEVER).total_ms,
                shadow_times=shadows.get(key, _NEVER).times,
                shadow_total_ms=shadows.get(key, _NEVER).total_ms,
                refused_times=refused.get(key, _NEVER).times,
            )
            for key in ours.keys() | theirs.keys() | shadows.keys() | refused.keys()
            for quota_type, (user, client_id) in (key,)
        ]
        return tuple(sorted(rows, key=lambda row: (row.user, row.client_id, row.quota))[:MAX_ROWS])

    def _totals(self) -> dict[str, int]:
        totals: dict[str, int] = asdict(self._counters)
        totals["requests"] += sum(relay.session.request_count for relay in self._gate.connections)
        if self._events is not None:
            totals["events_logged"], totals["events_dropped"] = self._events.written, self._events.dropped
        return totals


def _throttled_client(node_id: NodeId, mutes: list[Mute], now_ms: int) -> ThrottledClient:
    """One row for the connections of a client that wait for the same quota."""
    longest = max(mutes, key=lambda mute: mute.until_ms)
    limiter = longest.limiter
    return ThrottledClient(
        broker=broker_name(node_id),
        user=limiter.user,
        client_id=limiter.client_id,
        quota=longest.quota_type.key.name,
        entity=str(limiter.entity),
        limit=limiter.bound or 0.0,
        observed=limiter.peek(now_ms) or 0.0,
        connections=len(mutes),
        throttle_ms=longest.until_ms - longest.since_ms,
        remaining_ms=longest.until_ms - now_ms,
        estimated=longest.quota_type.key.name == ESTIMATED,
    )
