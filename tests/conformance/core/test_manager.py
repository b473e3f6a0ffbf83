"""Every line of manager.jsonl: one quota manager with many clients and changing quotas."""

from typing import Any

import pytest
from tests.conformance.lines import Line, entity_of, figure, number

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.mutation_quota import MutationQuota
from kafka_quotas.core.quotas.quota_bucket import UNLIMITED
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType


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

    def step(self, event: dict[str, Any]) -> Any:
        return getattr(self, event["op"])(event)

    def update(self, event: dict[str, Any]) -> None:
        self.manager.update_quota(entity_of(event["entity"]), number(event["bound"]))

    def record(self, event: dict[str, Any]) -> Any:
        client = event["user"], event["client_id"]
        throttle_ms = self.manager.record_and_throttle_ms(*client, number(event["value"]), event["t"])
        return {"throttle_ms": throttle_ms, "bucket": _listed(self.manager.bucket(*client))}

    def record_no_throttle(self, event: dict[str, Any]) -> None:
        self.manager.record_without_throttle(event["user"], event["client_id"], number(event["value"]), event["t"])

    def unrecord(self, event: dict[str, Any]) -> None:
        self.manager.unrecord(event["user"], event["client_id"], number(event["value"]), event["t"])

    def quota(self, event: dict[str, Any]) -> Any:
        return {"bound": _finite(self.manager.quota(event["user"], event["client_id"]))}

    def max_value(self, event: dict[str, Any]) -> Any:
        return {"max_value": figure(self.manager.max_value_in_window(event["user"], event["client_id"]))}

    def new_quota(self, event: dict[str, Any]) -> Any:
        new = self.manager.strict_quota if event["mode"] == "strict" else self.manager.permissive_quota
        quota = self.handles[event["handle"]] = new(event["user"], event["client_id"])
        return {"kind": quota.kind}

    def quota_record(self, event: dict[str, Any]) -> Any:
        quota = self.handles[event["handle"]]
        refusal = quota.record(number(event["value"]), event["t"])
        if refusal is None:
            return {"raised": False, **_state(quota, event["t"])}
        return {"raised": True, "exception_throttle_ms": refusal.throttle_ms, **_state(quota, event["t"])}

    def quota_state(self, event: dict[str, Any]) -> Any:
        return _state(self.handles[event["handle"]], event["t"])

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

    def max_value(self, event: dict[str, Any]) -> Any:
        limiter = self.manager.limiter(event["user"], event["client_id"])
        return {"max_value": figure(limiter.max_value_in_window)}


def _state(quota: MutationQuota, now_ms: int) -> dict[str, Any]:
    return {"is_exceeded": quota.is_exceeded, "throttle_ms": quota.throttle_ms(now_ms)}


def _listed(bucket: tuple[str, str] | None) -> list[str] | None:
    return None if bucket is None else list(bucket)


def _finite(bound: float | None) -> Any:
    """The bound as these lines give it: they do not tell the largest one from none."""
    return None if bound is None or bound >= UNLIMITED else figure(bound)
