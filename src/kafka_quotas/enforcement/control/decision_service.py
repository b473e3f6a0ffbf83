"""Requests of other programs about addresses and topics, answered from what the proxy counts its own clients in.

A connection or data that has to wait is not there yet, so it is charged only where there is nothing to wait for.
**Source:** KIP-612 for connections; "Broker-side quota V1" for topics.

Requests of other programs about clients, answered from the very buckets that the proxy charges.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.metrics.throttle_time import nanos_to_percentage
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.threshold import unmeant_threshold_entity
from kafka_quotas.core.quotas.quota_manager import Limiter, QuotaType
from kafka_quotas.core.quotas.topic_thresholds import ThresholdDecision
from kafka_quotas.core.resolution.ip_resolver import is_address
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.decisions.messages import (
    Decision,
    DecisionError,
    DecisionRequest,
    Operation,
    ResourceQuota,
)
from kafka_quotas.enforcement.event_log.charges import Charge
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas
from kafka_quotas.enforcement.quotas.client_limits import ClientLimits
from kafka_quotas.enforcement.quotas.quota_registry import NodeId, QuotaRegistry
from kafka_quotas.enforcement.topics.thresholds import BrokerThresholds, ThresholdRegistry


class ResourceDecisionService:
    """The decisions on addresses and topics, from the connection rates and thresholds of brokers."""

    def __init__(self, policy: QuotaRegistry, connections: ConnectionQuotas, thresholds: ThresholdRegistry) -> None:
        self._policy = policy
        self._connections = connections
        self._thresholds = thresholds

    def decide(self, ask: DecisionRequest, node_id: NodeId, now_ms: int) -> Decision | DecisionError:
        """Return the decision on a request about a `ResourceQuota`, or why there is none."""
        if ask.quota_type is ResourceQuota.CONNECTION:
            return self._of_address(ask, node_id, now_ms)
        return self._of_topic(ask, node_id, now_ms)

    def _of_address(self, ask: DecisionRequest, node_id: NodeId, now_ms: int) -> Decision | DecisionError:
        if not is_address(ask.ip):
            return DecisionError(f"ip is the address that connects, not {ask.ip!r}")
        rates = self._connections.broker(node_id).rates
        delay_ms = 0
        if ask.op is Operation.CHECK:
            delay_ms = rates.would_delay_ip_ms(ask.ip, ask.amount, now_ms)
        elif ask.op is Operation.RECORD:
            delay_ms = rates.record_ip(ask.ip, ask.amount, now_ms)
        else:
            rates.unrecord_ip(ask.ip, ask.amount, now_ms)
        match = rates.match_ip(ask.ip)
        key, is_shadow = ResourceQuota.CONNECTION.key.name, self._policy.default_terms.mode is Mode.SHADOW
        if match is None:
            return Decision(0, key, "", 0.0, 0.0, is_shadow)
        return Decision(delay_ms, key, str(match.entity), match.limit, rates.observed_ip(ask.ip, now_ms), is_shadow)

    def _of_topic(self, ask: DecisionRequest, node_id: NodeId, now_ms: int) -> Decision | DecisionError:
        refused = unmeant_threshold_entity(Entity.of(topic=ask.topic))
        if refused is not None:
            return DecisionError(f"topic is the one that data is for: {refused.message}")
        thresholds = self._thresholds.broker(node_id)
        is_shadow = self._policy.broker(node_id).client(ask.user, ask.client_id).is_shadow
        if not thresholds.is_active:
            return Decision(0, ResourceQuota.TOPIC.key.name, "", 0.0, 0.0, is_shadow)
        if ask.op is Operation.RECORD:
            _record(thresholds, ask, now_ms, is_shadow=is_shadow)
        elif ask.op is Operation.UNRECORD:
            thresholds.took(ask.topic, -ask.amount, now_ms)
        delay_ms = 0 if ask.op is Operation.UNRECORD else thresholds.admitted_in_ms(ask.topic, now_ms)
        return _told(thresholds.look(ask.topic, now_ms), delay_ms, is_shadow=is_shadow)


def _record(thresholds: BrokerThresholds, ask: DecisionRequest, now_ms: int, *, is_shadow: bool) -> None:
    """Count data that is admitted as taken in, and count and log data that is not as rejected."""
    decision = thresholds.decide(ask.topic, now_ms)
    if not decision.admitted:
        thresholds.rejected(decision, round(ask.amount), now_ms, dropped=not is_shadow)
    if decision.admitted or is_shadow:
        thresholds.took(ask.topic, ask.amount, now_ms)


def _told(decision: ThresholdDecision, delay_ms: int, *, is_shadow: bool) -> Decision:
    key, limit = ResourceQuota.TOPIC.key.name, decision.topic_threshold
    entity = "" if limit is None else str(Entity.of(topic=decision.topic))
    return Decision(delay_ms, key, entity, limit or 0.0, decision.topic_rate, is_shadow)


NO_API: Final = -1
"""API key, in the event log, of charges that other programs requested."""
_NANOS_PER_MS: Final = 1_000_000

OnAsked: TypeAlias = Callable[[DecisionRequest, NodeId, Charge], None]
"""Records a charge that another program requested."""


class DecisionService:
    """The decisions on requests of other programs, from the buckets of a quota registry.

    Args:
        bootstrap: Returns the node id of requests that name no broker.
        on_asked: Records each charge, None where no event log takes it.
    """

    def __init__(
        self,
        policy: QuotaRegistry,
        clock: Clock,
        *,
        connections: ConnectionQuotas,
        thresholds: ThresholdRegistry,
        bootstrap: Callable[[], NodeId],
        on_asked: OnAsked | None = None,
    ) -> None:
        self._policy = policy
        self._now_ms = clock.now_ms
        self._places = ResourceDecisionService(policy, connections, thresholds)
        self._bootstrap = bootstrap
        self._on_asked = on_asked

    def decide(self, ask: DecisionRequest) -> Decision | DecisionError:
        """Apply a request and return the decision, or why there is none."""
        node_id = self._bootstrap() if ask.broker is None else ask.broker
        if ask.broker is not None and node_id not in self._policy.brokers:
            return DecisionError(f"no broker {node_id} is known here")
        if isinstance(ask.quota_type, ResourceQuota):
            return self._places.decide(ask, node_id, self._now_ms())
        return self._of_client(ask, ask.quota_type, node_id)

    def _of_client(self, ask: DecisionRequest, quota_type: QuotaType, node_id: NodeId) -> Decision:
        client = self._policy.broker(node_id).client(ask.user, ask.client_id)
        limiter, now_ms = _limiter(client, quota_type), self._now_ms()
        delay_ms = self._apply(ask, node_id, limiter, now_ms)
        if client.max_throttle_ms is not None:
            delay_ms = min(delay_ms, client.max_throttle_ms)
        return Decision(
            delay_ms,
            quota_type.key.name,
            str(limiter.entity or ""),
            limiter.bound or 0.0,
            limiter.peek(now_ms) or 0.0,
            client.is_shadow,
        )

    def _apply(self, ask: DecisionRequest, node_id: NodeId, limiter: Limiter, now_ms: int) -> int:
        """Apply a request to the bucket and return the throttle time in ms."""
        value = _recorded(ask)
        if ask.op is Operation.CHECK:
            return limiter.would_throttle_ms(value, now_ms)
        delay_ms, amount = 0, ask.amount
        if ask.op is Operation.RECORD:
            delay_ms = limiter.record(value, now_ms)
        else:
            limiter.unrecord(value, now_ms)
            amount = -amount
        if self._on_asked is not None:
            charge = (now_ms, ask.user, ask.client_id, limiter.quota_type, NO_API, amount, delay_ms, False)
            self._on_asked(ask, node_id, charge)
        return delay_ms


def _limiter(client: ClientLimits, quota_type: QuotaType) -> Limiter:
    limiters = {
        QuotaType.PRODUCE: client.produce,
        QuotaType.FETCH: client.fetch,
        QuotaType.REQUEST: client.request_time,
        QuotaType.REQUEST_RATE: client.request_rate,
        QuotaType.CONTROLLER_MUTATION: client.mutation,
    }
    return limiters[quota_type]


def _recorded(ask: DecisionRequest) -> float:
    """Return the amount in the unit of its bucket.

    The bucket of request time counts in per cent of one thread's second.
    """
    if ask.quota_type is QuotaType.REQUEST:
        return nanos_to_percentage(round(ask.amount * _NANOS_PER_MS))
    return ask.amount
