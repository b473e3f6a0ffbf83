"""Every line of scenarios.jsonl and manager.jsonl that is about a quota, through the pipeline's kernels."""

from typing import Any

import numpy as np
import pytest
from tests.conformance.core.test_manager import _Runner as ManagerRunner
from tests.conformance.core.test_scenarios import _Runner as ScenarioRunner
from tests.conformance.lines import Line, agrees, number

from kafka_quotas.core.metrics.throttle_time import narrow_to_int32
from kafka_quotas.core.model.quota_key import LONG_MAX, UNLIMITED
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.kernels import admission, limiters
from kafka_quotas.pipeline.kernels.limiters import LimiterRule, Limiters

NO_KERNEL = {
    "simple_rate": "no client quota goes by a rate over the time since the first sample",
    "cumulative_sum": "no client quota goes by a sum without a window",
}
"""Statistics that the kernels do not have, and why."""
COUNTED = {"count_rate", "windowed_count"}
SUMMED = {"windowed_sum", "windowed_count"}
"""Of the ring of a rate: every record counts as 1, and what is measured is the sum that the rate is made of."""
WINDOW_SETTINGS = {"samples", "window_ms"}
OPERATIONS = {
    "record": admission.RECORD,
    "record_nocheck": admission.NOCHECK,
    "unrecord": admission.NOCHECK,
    "strict": admission.STRICT,
    "check": admission.CHECK,
}


def why_not(line: Line) -> str | None:
    """Why no kernel takes this line, None for one that it takes."""
    changed = {name for _, op, *value in line["events"] if op == "reconfigure" for name in value[0]}
    if changed & WINDOW_SETTINGS:
        return "a limiter keeps its window"
    return NO_KERNEL.get(line["kind"])


@pytest.mark.conformance("scenarios.jsonl", left_out=why_not)
def test_scenario_through_a_kernel(line: Line) -> None:
    sensor = _KernelSensor(line)
    for index, ((now_ms, op, *value), expected) in enumerate(zip(line["events"], line["expect"], strict=True)):
        row = sensor.step(now_ms, op, value[0] if value else None)
        assert agrees(row[0], expected[0]), f"event {index} measured {row[0]}, expected {expected}"
        assert list(row[1:]) == expected[1:], f"event {index}"


class _KernelSensor:
    """One limiter on flat arrays under the configuration of a line."""

    def __init__(self, line: Line) -> None:
        self.config = dict(line["config"])
        self.each = line["observe"] == "each"
        self.tokens = line["kind"] == "token_bucket"
        self.counted, self.summed = line["kind"] in COUNTED, line["kind"] in SUMMED
        self.clocks = limiters.fresh_clocks(self.config["samples"])
        self.sums = np.zeros(limiters.sums_width(self.config["samples"]))

    def step(self, now_ms: int, op: str, value: Any) -> tuple[Any, ...]:
        own = self.apply(now_ms, op, value)
        if not self.each:
            return own
        level, window_ms, *_ = self.judge(admission.CHECK, 0.0, now_ms)
        _, _, violated, throttle_ms, _ = self.apply(now_ms, "check", None)
        return (level, window_ms, violated, throttle_ms, own[4])

    def apply(self, now_ms: int, op: str, value: Any) -> tuple[Any, ...]:
        if op == "reconfigure":
            self.config.update(value)
            return (None, None, None, None, None)
        if op == "measure":
            level, window_ms, *_ = self.judge(admission.CHECK, 0.0, now_ms)
            if self.summed:
                return (level * window_ms / 1000, None, None, None, None)
            return (level, window_ms, None, None, None)
        amount = 0.0 if value is None else 1.0 if self.counted else float(number(value))
        outcome = self.judge(OPERATIONS[op], -amount if op == "unrecord" else amount, now_ms)
        if OPERATIONS[op] == admission.NOCHECK:
            return (None, None, None, None, None)
        level, window_ms, held, throttle_ms = outcome
        return (None, None, False, 0, False) if held else (level, window_ms, True, throttle_ms, True)

    def judge(self, op: int, value: float, now_ms: int) -> tuple[Any, ...]:
        bound, window = number(self.config["bound"]), (self.config["samples"], self.config["window_ms"])
        if self.tokens and bound is None:
            return float(LONG_MAX), None, True, 0  # a bucket that nothing fills is not asked
        limit = UNLIMITED if bound is None else float(bound)
        state = (self.clocks, self.sums, 0, 0, op, value, limit, now_ms, *window)
        if self.tokens:
            _, held, throttle_ms, _, level = admission.admit_tokens(*state)
            return level, None, held, throttle_ms
        longest_ms = self.config.get("max_throttle_ms")
        outcome = admission.admit_rate(*state, LONG_MAX if longest_ms is None else longest_ms)
        _, held, throttle_ms, window_ms, level = outcome
        return level, window_ms, held, throttle_ms


def test_a_line_may_ask_for_any_number_of_samples() -> None:
    samples = 200
    events = [[1000 * second, "record", second % 7] for second in range(3 * samples)]
    config = {"samples": samples, "window_ms": 1000, "bound": 3}
    line = {"kind": "rate", "observe": "each", "config": config, "events": events}
    core, kernel = ScenarioRunner(line), _KernelSensor(line)
    rows = [(core.step(*event), kernel.step(*event)) for event in events]
    assert [mine for _, mine in rows] == [expected for expected, _ in rows]
    assert {violated for (_, _, violated, *_), _ in rows} == {True, False}


@pytest.mark.conformance("manager.jsonl")
def test_manager_through_kernels(line: Line) -> None:
    runner = _KernelRunner(line)
    for index, (event, expected) in enumerate(zip(line["events"], line["expect"], strict=True)):
        assert runner.step(event) == expected, f"event {index}: {event}"


class _KernelRunner(ManagerRunner):
    """Buckets and limits as the manager has them.

    What is recorded, and what it costs, by the kernels.
    """

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        quota_type = QuotaType(line["quota_type"])
        self.mutations = quota_type is QuotaType.CONTROLLER_MUTATION
        rule = LimiterRule(tokens=self.mutations, bounded=quota_type is QuotaType.REQUEST, window=self.manager.window)
        self.limiters = Limiters(rule, np.empty((0, 1)))
        self.rows: dict[Any, int] = {}
        self.memories: dict[str, dict[str, Any]] = {}

    def record(self, event: dict[str, Any]) -> Any:
        bucket = self.manager.limiter(event["user"], event["client_id"]).bucket
        if bucket is None:
            return {"throttle_ms": 0, "bucket": None}
        operation = admission.STRICT if self.mutations else admission.RECORD
        throttle_ms, _ = self.happen(self.row(event), event, operation, number(event["value"]))
        return {"throttle_ms": narrow_to_int32(throttle_ms), "bucket": list(bucket)}

    def record_no_throttle(self, event: dict[str, Any]) -> None:
        self.happen(self.row(event), event, admission.NOCHECK, number(event["value"]))

    def unrecord(self, event: dict[str, Any]) -> None:
        self.happen(self.row(event), event, admission.NOCHECK, -number(event["value"]))

    def new_quota(self, event: dict[str, Any]) -> Any:
        kind = event["mode"] if self.manager.enabled else "unbounded"
        row = self.row(event) if self.manager.enabled else None
        self.memories[event["handle"]] = {"kind": kind, "row": row, "throttle_ms": 0, "at_ms": 0}
        return {"kind": kind}

    def quota_record(self, event: dict[str, Any]) -> Any:
        memory = self.memories[event["handle"]]
        admitted, throttle_ms = True, 0
        if memory["row"] is not None:
            operation = admission.STRICT if memory["kind"] == "strict" else admission.RECORD
            throttle_ms, held = self.happen(memory["row"], event, operation, number(event["value"]))
            admitted = held or memory["kind"] == "permissive"
            if not held:
                memory.update(throttle_ms=throttle_ms, at_ms=event["t"])
        state = self.quota_state(event)
        if admitted:
            return {"raised": False, **state}
        return {"raised": True, "exception_throttle_ms": narrow_to_int32(throttle_ms), **state}

    def quota_state(self, event: dict[str, Any]) -> Any:
        memory = self.memories[event["handle"]]
        left_ms = memory["throttle_ms"] - (event["t"] - memory["at_ms"])
        exceeded = memory["kind"] == "strict" and memory["throttle_ms"] > 0
        return {"is_exceeded": exceeded, "throttle_ms": max(0, left_ms) if memory["row"] is not None else 0}

    def row(self, event: dict[str, Any]) -> int:
        """The row of the client's bucket.

        The manager knows the bucket from now on, too.
        """
        bucket = self.manager._bucket_of(event["user"], event["client_id"])
        return self.rows.setdefault(bucket.name, len(self.rows))

    def happen(self, row: int, event: dict[str, Any], operation: int, value: float) -> tuple[int, bool]:
        limits = [self.manager.limits.limit(name) for name in self.rows]
        self.limiters.rebound(np.array([[UNLIMITED if each is None else each] for each in limits]))
        trace = self.limiters.trace(
            np.array([row], dtype=np.int32),
            np.array([event["t"]], dtype=np.int64),
            np.array([float(value)]),
            np.array([operation], dtype=np.int8),
        )
        return int(trace.throttle_ms[0, 0]), bool(trace.held[0, 0])
