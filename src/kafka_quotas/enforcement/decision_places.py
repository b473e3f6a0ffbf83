"""Questions of other programs about addresses and topics, answered from what the proxy counts its own clients in.

A connection or data that has to wait is not there yet, so it is charged only where there is nothing to wait for.
**Source:** KIP-612 for connections; "Broker-side quota V1" for topics.
"""

from kafka_quotas.core.entity import Entity
from kafka_quotas.core.ip_resolution import is_address
from kafka_quotas.core.threshold_entity import unmeant_threshold_entity
from kafka_quotas.core.thresholds import ThresholdDecision
from kafka_quotas.enforcement.broker_thresholds import BrokerThresholds
from kafka_quotas.enforcement.connections import ConnectionBook
from kafka_quotas.enforcement.decision import Ask, Decision, DecisionError, Op, PlaceQuota
from kafka_quotas.enforcement.policy import NodeId, Policy
from kafka_quotas.enforcement.terms import Mode
from kafka_quotas.enforcement.threshold_board import ThresholdBoard


class PlaceDecider:
    """Answers from the connection rates and the thresholds of brokers."""

    def __init__(self, policy: Policy, connections: ConnectionBook, thresholds: ThresholdBoard) -> None:
        self._policy = policy
        self._connections = connections
        self._thresholds = thresholds

    def decide(self, ask: Ask, node_id: NodeId, now_ms: int) -> Decision | DecisionError:
        """The decision on a question about a `PlaceQuota`, or why there can be none."""
        if ask.quota_type is PlaceQuota.CONNECTION:
            return self._of_address(ask, node_id, now_ms)
        return self._of_topic(ask, node_id, now_ms)

    def _of_address(self, ask: Ask, node_id: NodeId, now_ms: int) -> Decision | DecisionError:
        if not is_address(ask.ip):
            return DecisionError(f"ip is the address that connects, not {ask.ip!r}")
        rates = self._connections.broker(node_id).rates
        delay_ms = 0
        if ask.op is Op.CHECK:
            delay_ms = rates.would_delay_ip_ms(ask.ip, ask.amount, now_ms)
        elif ask.op is Op.RECORD:
            delay_ms = rates.record_ip(ask.ip, ask.amount, now_ms)
        else:
            rates.unrecord_ip(ask.ip, ask.amount, now_ms)
        match = rates.match_ip(ask.ip)
        key, is_shadow = PlaceQuota.CONNECTION.key.name, self._policy.default_terms.mode is Mode.SHADOW
        if match is None:
            return Decision(0, key, "", 0.0, 0.0, is_shadow)
        return Decision(delay_ms, key, str(match.entity), match.limit, rates.observed_ip(ask.ip, now_ms), is_shadow)

    def _of_topic(self, ask: Ask, node_id: NodeId, now_ms: int) -> Decision | DecisionError:
        refused = unmeant_threshold_entity(Entity.of(topic=ask.topic))
        if refused is not None:
            return DecisionError(f"topic is the one that data is for: {refused.message}")
        thresholds = self._thresholds.broker(node_id)
        is_shadow = self._policy.broker(node_id).client(ask.user, ask.client_id).is_shadow
        if not thresholds.is_active:
            return Decision(0, PlaceQuota.TOPIC.key.name, "", 0.0, 0.0, is_shadow)
        if ask.op is Op.RECORD:
            _record(thresholds, ask, now_ms, is_shadow=is_shadow)
        elif ask.op is Op.UNRECORD:
            thresholds.took(ask.topic, -ask.amount, now_ms)
        delay_ms = 0 if ask.op is Op.UNRECORD else thresholds.admitted_in_ms(ask.topic, now_ms)
        return _told(thresholds.look(ask.topic, now_ms), delay_ms, is_shadow=is_shadow)


def _record(thresholds: BrokerThresholds, ask: Ask, now_ms: int, *, is_shadow: bool) -> None:
    """Nothing; what is admitted counts as taken in, what is not is counted and said as rejected."""
    decision = thresholds.decide(ask.topic, now_ms)
    if not decision.admitted:
        thresholds.rejected(decision, round(ask.amount), now_ms, dropped=not is_shadow)
    if decision.admitted or is_shadow:
        thresholds.took(ask.topic, ask.amount, now_ms)


def _told(decision: ThresholdDecision, delay_ms: int, *, is_shadow: bool) -> Decision:
    key, limit = PlaceQuota.TOPIC.key.name, decision.topic_threshold
    entity = "" if limit is None else str(Entity.of(topic=decision.topic))
    return Decision(delay_ms, key, entity, limit or 0.0, decision.topic_rate, is_shadow)
