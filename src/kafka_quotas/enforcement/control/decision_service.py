"""Requests of other programs for decisions, answered from the very buckets, rates and meters that the proxy charges.

A connection, or data for a topic, that has to wait is not there yet, so it is charged only if there is nothing to
wait for.
**Source:** KIP-612 for connections; "Broker-side quota V1" for topics.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from kafka_quotas.core.groups.membership import Peer
from kafka_quotas.core.metrics.throttle_time import nanos_to_percentage
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import ResourceQuota, unmeant_threshold_entity
from kafka_quotas.core.quotas.quota_manager import Limiter, QuotaType
from kafka_quotas.core.resolution.quota_resolver import is_address
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.decisions import Decision, DecisionError, DecisionRequest, Operation
from kafka_quotas.enforcement.event_log.charges import Charge
from kafka_quotas.enforcement.filters.thresholds import BrokerThresholds
from kafka_quotas.enforcement.proxy.connection_quotas import RateOf
from kafka_quotas.enforcement.proxy.proxy_quotas import ProxyQuotas
from kafka_quotas.enforcement.quotas.quota_registry import NodeId

NO_API: Final = -1
"""API key, in the event log, of charges that other programs requested."""
_NANOS_PER_MS: Final = 1_000_000

OnCharged: TypeAlias = Callable[[DecisionRequest, NodeId, Charge], None]
"""Records a charge that another program requested."""


class DecisionService:
    """The decisions on requests of other programs about clients, addresses and topics.

    Args:
        bootstrap: Returns the node id of requests that name no broker.
        on_charged: Records each charge of a client, None without an event log.
    """

    def __init__(
        self, quotas: ProxyQuotas, *, bootstrap: Callable[[], NodeId], on_charged: OnCharged | None = None
    ) -> None:
        self._policy = quotas.registry
        self._now_ms = quotas.clock.now_ms
        self._connections = quotas.connections
        self._thresholds = quotas.topics.thresholds
        self._bootstrap = bootstrap
        self._on_charged = on_charged

    def decide(self, request: DecisionRequest) -> Decision | DecisionError:
        """Apply a request and return the decision, or why there is none."""
        node_id = self._bootstrap() if request.broker is None else request.broker
        if request.broker is not None and node_id not in self._policy.brokers:
            return DecisionError(f"no broker {node_id} is known here")
        if request.quota_type is ResourceQuota.CONNECTION:
            return self._of_address(request, node_id, self._now_ms())
        if request.quota_type is ResourceQuota.TOPIC:
            return self._of_topic(request, node_id, self._now_ms())
        return self._of_client(request, request.quota_type, node_id, self._now_ms())

    def _of_client(self, request: DecisionRequest, quota_type: QuotaType, node_id: NodeId, now_ms: int) -> Decision:
        client = self._policy.broker(node_id).client(request.user, request.client_id, Peer(address=request.ip))
        limiter = client.limiters[quota_type]
        delay_ms = self._apply(request, node_id, limiter, now_ms)
        if client.max_throttle_ms is not None:
            delay_ms = min(delay_ms, client.max_throttle_ms)
        entity, observed = str(limiter.entity or ""), limiter.peek(now_ms) or 0.0
        return Decision(delay_ms, quota_type.key.name, entity, limiter.bound or 0.0, observed, client.is_shadow)

    def _apply(self, request: DecisionRequest, node_id: NodeId, limiter: Limiter, now_ms: int) -> int:
        amount = value = request.amount
        if request.quota_type is QuotaType.REQUEST:
            value = nanos_to_percentage(round(amount * _NANOS_PER_MS))  # of one thread's second, as its bucket counts
        if request.op is Operation.CHECK:
            return limiter.would_throttle_ms(value, now_ms)
        delay_ms = 0
        if request.op is Operation.RECORD:
            delay_ms = limiter.record(value, now_ms)
        else:
            limiter.unrecord(value, now_ms)
            amount = -amount
        if self._on_charged is not None:
            charge = (now_ms, request.user, request.client_id, limiter.quota_type, NO_API, amount, delay_ms, False)
            self._on_charged(request, node_id, charge)
        return delay_ms

    def _of_address(self, request: DecisionRequest, node_id: NodeId, now_ms: int) -> Decision | DecisionError:
        if not is_address(request.ip):
            return DecisionError(f"ip is the address that connects, not {request.ip!r}")
        rates, amount = self._connections.broker(node_id), request.amount
        delay_ms, limit = rates.asked_ip(request.ip, amount, now_ms)
        if request.op is Operation.RECORD:
            delay_ms = rates.record_ip(request.ip, amount, now_ms)
        elif request.op is Operation.UNRECORD:
            rates.unrecord_ip(request.ip, amount, now_ms)
            delay_ms = 0
        key, is_shadow = ResourceQuota.CONNECTION.key.name, self._policy.default_policy.mode is Mode.SHADOW
        if limit is None:
            return Decision(0, key, "", 0.0, 0.0, is_shadow)
        of, name, rate = limit
        match = self._connections.ip_limits.match(request.ip)
        entity = match.entity if of is RateOf.IP and match is not None else Entity.of(group=name)
        return Decision(delay_ms, key, str(entity), rate, rates.observed(of, name, now_ms), is_shadow)

    def _of_topic(self, request: DecisionRequest, node_id: NodeId, now_ms: int) -> Decision | DecisionError:
        refused = unmeant_threshold_entity(Entity.of(topic=request.topic))
        if refused is not None:
            return DecisionError(f"topic is the one that data is for: {refused.message}")
        thresholds = self._thresholds.broker(node_id)
        key = ResourceQuota.TOPIC.key.name
        is_shadow = self._policy.broker(node_id).client(request.user, request.client_id).is_shadow
        if not thresholds.is_active:
            return Decision(0, key, "", 0.0, 0.0, is_shadow)
        if request.op is Operation.RECORD:
            _record(thresholds, request, now_ms, is_shadow=is_shadow)
        elif request.op is Operation.UNRECORD:
            thresholds.topics.record(request.topic, -request.amount, now_ms)
        delay_ms = 0 if request.op is Operation.UNRECORD else thresholds.topics.admitted_in_ms(request.topic, now_ms)
        found = thresholds.topics.look(request.topic, now_ms)
        entity = "" if found.topic_threshold is None else str(Entity.of(topic=found.topic))
        return Decision(delay_ms, key, entity, found.topic_threshold or 0.0, found.topic_rate, is_shadow)


def _record(thresholds: BrokerThresholds, request: DecisionRequest, now_ms: int, *, is_shadow: bool) -> None:
    """Count data that is admitted as taken in, and count and log data that is not as rejected."""
    decision = thresholds.decide(request.topic, now_ms)
    if not decision.admitted:
        thresholds.rejected(decision, round(request.amount), now_ms, dropped=not is_shadow)
    if decision.admitted or is_shadow:
        thresholds.topics.record(request.topic, request.amount, now_ms)
