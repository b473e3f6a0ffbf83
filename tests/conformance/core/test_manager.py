"""Every line of manager.jsonl: one quota manager with many clients and changing quotas."""

from typing import Any

import pytest
from tests.conformance.lines import Line, entity_of, figure, number

from kafka_quotas.core.model.quota_key import UNLIMITED
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, MutationQuota, QuotaType


@pytest.mark.conformance("manager.jsonl")
def test_manager(line: Line) -> None:
    for runner in (_Runner(line), _HandleRunner(line)):
        for index, (event, expected) in enumerate(zip(line["events"], line["expect"], strict=True)):
            assert runner.step(event) == expected, f"event {index}: {event}, asked of {type(runner).__name__}"


class _Runner:
    """A manager that is asked by user and client-id."""

    def __init__(self, line: Line) -> None:
        config = line["config"]
        window = QuotaWindow(samples=config["samples"], window_s=config["window_s"])
        self.manager = ClientQuotaManager(QuotaType(line["quota_type"]), window)
        self.handles: dict[str, MutationQuota] = {}
        self.exceeded: dict[str, bool] = {}

    def step(self, event: dict[str, Any]) -> Any:
        return getattr(self, event["op"])(event)

    def update(self, event: dict[str, Any]) -> None:
        self.manager.limits.update(entity_of(event["entity"]), number(event["bound"]))

    def record(self, event: dict[str, Any]) -> Any:
        client = event["user"], event["client_id"]
        throttle_ms = self.manager.record_and_throttle_ms(*client, number(event["value"]), event["t"])
        return {"throttle_ms": throttle_ms, "bucket": _listed(self.manager.limiter(*client).bucket)}

    def record_no_throttle(self, event: dict[str, Any]) -> None:
        self.manager.record_without_throttle(event["user"], event["client_id"], number(event["value"]), event["t"])

    def unrecord(self, event: dict[str, Any]) -> None:
        self.manager.record_without_throttle(event["user"], event["client_id"], -number(event["value"]), event["t"])

    def quota(self, event: dict[str, Any]) -> Any:
        limits = self.manager.limits
        return {"bound": _finite(limits.limit(limits.bucket(event["user"], event["client_id"])))}

    def max_value(self, event: dict[str, Any]) -> Any:
        return {"max_value": figure(self.manager.limiter(event["user"], event["client_id"]).max_value(event["t"]))}

    def new_quota(self, event: dict[str, Any]) -> Any:
        quota = self.manager.limiter(event["user"], event["client_id"]).mutation_quota(strict=event["mode"] == "strict")
        self.handles[event["handle"]] = quota
        self.exceeded[event["handle"]] = False
        return {"kind": quota.kind}

    def quota_record(self, event: dict[str, Any]) -> Any:
        refusal = self.handles[event["handle"]].record(number(event["value"]), event["t"])
        if refusal is None:
            return {"raised": False, **self.quota_state(event)}
        self.exceeded[event["handle"]] = refusal.until_ms > event["t"]
        return {"raised": True, "exception_throttle_ms": refusal.throttle_ms, **self.quota_state(event)}

    def quota_state(self, event: dict[str, Any]) -> Any:
        throttle_ms = self.handles[event["handle"]].throttle_ms(event["t"])
        return {"is_exceeded": self.exceeded[event["handle"]], "throttle_ms": throttle_ms}

    def metrics(self, event: dict[str, Any]) -> Any:
        return [
            {"bucket": _listed(state.tags), "bound": _finite(state.bound)} for state in self.manager.buckets(event["t"])
        ]


class _HandleRunner(_Runner):
    """A manager that is asked through one handle per client, kept from first to last."""

    def record(self, event: dict[str, Any]) -> Any:
        limiter = self.manager.limiter(event["user"], event["client_id"])
        throttle_ms = limiter.record(number(event["value"]), event["t"])
        return {"throttle_ms": throttle_ms, "bucket": _listed(limiter.bucket)}

    def record_no_throttle(self, event: dict[str, Any]) -> None:
        if not self.manager.enabled:
            super().record_no_throttle(event)  # a handle records nothing before any configuration
        limiter = self.manager.limiter(event["user"], event["client_id"])
        limiter.record_without_throttle(number(event["value"]), event["t"])

    def unrecord(self, event: dict[str, Any]) -> None:
        if not self.manager.enabled:
            super().unrecord(event)
        self.manager.limiter(event["user"], event["client_id"]).unrecord(number(event["value"]), event["t"])


def _listed(bucket: tuple[str, str] | None) -> list[str] | None:
    return None if bucket is None else list(bucket)


def _finite(bound: float | None) -> Any:
    """The bound as these lines give it: they do not tell the largest one from none."""
    return None if bound is None or bound >= UNLIMITED else figure(bound)
