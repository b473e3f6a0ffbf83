"""Questions of other programs about clients, answered from the very buckets that the proxy charges."""

from collections.abc import Callable
from typing import Final, TypeAlias

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.quota_manager import Limiter, QuotaType
from kafka_quotas.core.throttle_time import nanos_to_percentage
from kafka_quotas.enforcement.client import Client
from kafka_quotas.enforcement.connections import ConnectionBook
from kafka_quotas.enforcement.decision import Ask, Decision, DecisionError, Op, PlaceQuota
from kafka_quotas.enforcement.decision_places import PlaceDecider
from kafka_quotas.enforcement.event_log import Charge
from kafka_quotas.enforcement.policy import NodeId, Policy
from kafka_quotas.enforcement.threshold_board import ThresholdBoard

NO_API: Final = -1
"""The API key of charges that came from other programs, in the event log."""
_NANOS_PER_MS: Final = 1_000_000

OnAsked: TypeAlias = Callable[[Ask, NodeId, Charge], None]
"""Takes note of a charge that another program asked for."""


class Decider:
    """Answers from the buckets of a policy; `bootstrap` tells the node id that is meant where none is named."""

    def __init__(
        self,
        policy: Policy,
        clock: Clock,
        *,
        connections: ConnectionBook,
        thresholds: ThresholdBoard,
        bootstrap: Callable[[], NodeId],
        on_asked: OnAsked | None = None,
    ) -> None:
        self._policy = policy
        self._now_ms = clock.now_ms
        self._places = PlaceDecider(policy, connections, thresholds)
        self._bootstrap = bootstrap
        self._on_asked = on_asked

    def decide(self, ask: Ask) -> Decision | DecisionError:
        """The decision, or why there can be none."""
        node_id = self._bootstrap() if ask.broker is None else ask.broker
        if ask.broker is not None and node_id not in self._policy.brokers:
            return DecisionError(f"no broker {node_id} is known here")
        if isinstance(ask.quota_type, PlaceQuota):
            return self._places.decide(ask, node_id, self._now_ms())
        return self._of_client(ask, ask.quota_type, node_id)

    def _of_client(self, ask: Ask, quota_type: QuotaType, node_id: NodeId) -> Decision:
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

    def _apply(self, ask: Ask, node_id: NodeId, limiter: Limiter, now_ms: int) -> int:
        """The throttle time in ms; what was asked for is done."""
        value = _recorded(ask)
        if ask.op is Op.CHECK:
            return limiter.would_throttle_ms(value, now_ms)
        delay_ms, amount = 0, ask.amount
        if ask.op is Op.RECORD:
            delay_ms = limiter.record(value, now_ms)
        else:
            limiter.unrecord(value, now_ms)
            amount = -amount
        if self._on_asked is not None:
            charge = (now_ms, ask.user, ask.client_id, limiter.quota_type, NO_API, amount, delay_ms, False)
            self._on_asked(ask, node_id, charge)
        return delay_ms


def _limiter(client: Client, quota_type: QuotaType) -> Limiter:
    limiters = {
        QuotaType.PRODUCE: client.produce,
        QuotaType.FETCH: client.fetch,
        QuotaType.REQUEST: client.request_time,
        QuotaType.REQUEST_RATE: client.request_rate,
        QuotaType.CONTROLLER_MUTATION: client.mutation,
    }
    return limiters[quota_type]


def _recorded(ask: Ask) -> float:
    """The amount as buckets count it: request time is a share of a thread's second there, in per cent."""
    if ask.quota_type is QuotaType.REQUEST:
        return nanos_to_percentage(round(ask.amount * _NANOS_PER_MS))
    return ask.amount
