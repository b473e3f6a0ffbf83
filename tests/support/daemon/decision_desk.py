"""A daemon's answers to other programs, on a virtual clock and without a socket."""

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

from tests.support.core.virtual_clock import VirtualClock
from tests.support.daemon.proxy_quotas import proxy_quotas

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.control.decision_service import DecisionService
from kafka_quotas.enforcement.control.server import ControlHandler
from kafka_quotas.enforcement.decisions import Decision, DecisionRequest, Operation
from kafka_quotas.enforcement.telemetry.log import LogEvent

START_MS = 1_700_000_000_000
APP = Entity.of(client_id="app")


class Desk:
    """A decider over one limit of 1000 bytes/s (or another), with its clock and a control desk in front."""

    def __init__(self, *, limits: dict[QuotaType, float] | None = None, **settings: Any) -> None:
        self.clock = VirtualClock(START_MS)
        self.notices: list[LogEvent] = []
        self.charged: list[tuple[object, ...]] = []
        limits = limits or {QuotaType.PRODUCE: 1000.0}
        byte_rates = {APP: {quota_type.key.name: limit for quota_type, limit in limits.items()}}
        quotas = proxy_quotas(byte_rates, clock=self.clock, said=self.notices, **settings)
        self.policy, self.connections, self.counters = quotas.registry, quotas.connections, quotas.counters
        self.thresholds = quotas.topics.thresholds
        self.decider = DecisionService(
            quotas, bootstrap=lambda: None, on_charged=lambda *told: self.charged.append(told)
        )
        self.desk = ControlHandler(
            status=_never, decide=self.decider.decide, reload=_never, unmute=_never, groups=self.policy.groups_of
        )

    def decide(
        self, op: Operation, amount: float, quota_type: QuotaType = QuotaType.PRODUCE, **who: object
    ) -> Decision:
        decided = self.decider.decide(DecisionRequest(op, quota_type, amount, client_id="app", **who))
        assert isinstance(decided, Decision), decided
        return decided

    def line(self, message: object) -> dict[str, object]:
        answer = self.desk.answer_line(json.dumps(message).encode(), may_reload=False)
        data: dict[str, object] = json.loads(asyncio.run(answer))
        return data


def _never() -> Awaitable[object]:
    raise AssertionError("nobody asked for that")
