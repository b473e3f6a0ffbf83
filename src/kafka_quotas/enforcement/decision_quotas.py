"""Questions of other programs, answered from the very buckets that the proxy charges."""

import copy
from collections.abc import Callable
from typing import Final, TypeAlias

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.quota_manager import ClientQuotaManager, Limiter, QuotaType
from kafka_quotas.core.throttle_time import nanos_to_percentage
from kafka_quotas.enforcement.broker_quotas import ENFORCED
from kafka_quotas.enforcement.decision import Ask, Decision, DecisionError, Op
from kafka_quotas.enforcement.event_log import Charge
from kafka_quotas.enforcement.policy import NodeId, Policy

NO_API: Final = -1
"""The API key of charges that came from other programs, in the event log."""
_NANOS_PER_MS: Final = 1_000_000

OnAsked: TypeAlias = Callable[[Ask, NodeId, Charge], None]
"""Takes note of a charge that another program asked for."""


class Decider:
    """Answers from the buckets of a policy; `bootstrap` tells the node id that is meant where none is named."""

    def __init__(
        self, policy: Policy, clock: Clock, *, bootstrap: Callable[[], NodeId], on_asked: OnAsked | None = None
    ) -> None:
        self._policy = policy
        self._now_ms = clock.now_ms
        self._bootstrap = bootstrap
        self._on_asked = on_asked

    def decide(self, ask: Ask) -> Decision | DecisionError:
        """The decision, or why there can be none."""
        node_id = self._bootstrap() if ask.broker is None else ask.broker
        if ask.broker is not None and node_id not in self._policy.brokers:
            return DecisionError(f"no broker {node_id} is known here")
        if ask.quota_type not in ENFORCED:
            return DecisionError(f"no {ask.quota_type.value} quotas are enforced here")
        manager = self._policy.broker(node_id).manager(ask.quota_type)
        limiter, now_ms = manager.limiter(ask.user, ask.client_id), self._now_ms()
        delay_ms = self._apply(ask, node_id, manager, limiter, now_ms)
        return Decision(
            delay_ms,
            ask.quota_type.key.name,
            str(limiter.entity or ""),
            limiter.bound or 0.0,
            limiter.peek(now_ms) or 0.0,
        )

    def _apply(self, ask: Ask, node_id: NodeId, manager: ClientQuotaManager, limiter: Limiter, now_ms: int) -> int:
        """The throttle time in ms; what was asked for is done."""
        value = _recorded(ask)
        if ask.op is Op.CHECK:
            bucket, _ = manager.resolve(ask.user, ask.client_id)
            return 0 if bucket is None else copy.deepcopy(bucket).record_and_throttle_ms(value, now_ms)
        delay_ms, amount = 0, ask.amount
        if ask.op is Op.RECORD:
            delay_ms = limiter.record(value, now_ms)
        else:
            limiter.unrecord(value, now_ms)
            amount = -amount
        if self._on_asked is not None:
            charge = (now_ms, ask.user, ask.client_id, ask.quota_type, NO_API, amount, delay_ms, False)
            self._on_asked(ask, node_id, charge)
        return delay_ms


def _recorded(ask: Ask) -> float:
    """The amount as buckets count it: request time is a share of a thread's second there, in per cent."""
    if ask.quota_type is QuotaType.REQUEST:
        return nanos_to_percentage(round(ask.amount * _NANOS_PER_MS))
    return ask.amount
