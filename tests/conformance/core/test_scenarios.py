"""Every line of scenarios.jsonl: one sensor with one stat, event by event."""

from typing import Any

import pytest
from tests.conformance.lines import Line, agrees, number

from kafka_quotas.core.metrics.rate import CountRate, Rate, SimpleRate, WindowedCount, WindowedSum
from kafka_quotas.core.metrics.sensor import Quota, Sensor, Stat, TokenBucket, Violation

_WINDOWED = {
    "rate": Rate,
    "bounded": Rate,
    "count_rate": CountRate,
    "simple_rate": SimpleRate,
    "token_bucket": TokenBucket,
    "windowed_sum": WindowedSum,
    "windowed_count": WindowedCount,
}
Row = tuple[float | None, int | None, bool | None, int | None, bool | None]
"""What a line expects of an event: measured value, window, violated, throttle time, and whether the op was refused."""


@pytest.mark.conformance("scenarios.jsonl")
def test_scenario(line: Line) -> None:
    runner = _Runner(line)
    for index, ((now_ms, op, *value), expected) in enumerate(zip(line["events"], line["expect"], strict=True)):
        row = runner.step(now_ms, op, value[0] if value else None)
        assert agrees(row[0], expected[0]), f"event {index} measured {row[0]}, expected {expected}"
        assert list(row[1:]) == expected[1:], f"event {index}"
        for asserted, column, wanted, tolerance in line.get("asserts", ()):
            if asserted == index:
                assert row[column] == pytest.approx(wanted, abs=tolerance)


class _Runner:
    """A sensor under the configuration of a line."""

    def __init__(self, line: Line) -> None:
        self.config = dict(line["config"])
        self.each = line["observe"] == "each"
        self.sensor = Sensor(self._stat(line["kind"]))
        self._configure()

    def _stat(self, kind: str) -> Stat:
        if kind == "cumulative_sum":
            return _CumulativeSum()
        return _WINDOWED[kind](self.config["samples"], self.config["window_ms"])

    def _configure(self) -> None:
        bound = number(self.config["bound"])
        self.sensor.stat.reconfigure(self.config["samples"], self.config["window_ms"])
        self.sensor.quota = None if bound is None else Quota(bound, self.config.get("upper", True))
        self.sensor.max_throttle_ms = self.config.get("max_throttle_ms")

    def step(self, now_ms: int, op: str, value: Any) -> Row:
        own = self._apply(now_ms, op, value)
        if not self.each:
            return own
        measured, window_ms = self._measure(now_ms)
        violation = self.sensor.check(now_ms)
        return (measured, window_ms, violation is not None, _throttle_ms(violation), own[4])

    def _apply(self, now_ms: int, op: str, value: Any) -> Row:
        sensor = self.sensor
        match op:
            case "record":
                return _verdict(sensor.record(number(value), now_ms))
            case "strict":
                refusal = sensor.check(now_ms)
                if refusal is None:
                    sensor.stat.record(number(value), now_ms)
                return _verdict(refusal)
            case "check":
                return _verdict(sensor.check(now_ms))
            case "measure":
                return (*self._measure(now_ms), None, None, None)
            case "record_nocheck":
                sensor.stat.record(number(value), now_ms)
            case "unrecord":
                sensor.stat.record(-number(value), now_ms)
            case "reconfigure":
                self.config.update(value)
                self._configure()
            case _:
                pytest.fail(f"unknown op {op}")
        return (None, None, None, None, None)

    def _measure(self, now_ms: int) -> tuple[float, int | None]:
        measured = self.sensor.stat.measure(now_ms)
        return measured, self.sensor.window_ms(now_ms) if isinstance(self.sensor.stat, Rate) else None


class _CumulativeSum:
    """Kafka's third stat, which no quota uses: the sum of everything, without a window."""

    def __init__(self) -> None:
        self._total = 0.0

    def record(self, value: float, now_ms: int) -> None:
        self._total += value

    def measure(self, now_ms: int) -> float:
        return self._total

    def reconfigure(self, samples: int, window_ms: int) -> None:
        pass


def _verdict(violation: Violation | None) -> Row:
    if violation is None:
        return (None, None, False, 0, False)
    return (violation.value, violation.window_ms, True, violation.throttle_ms, True)


def _throttle_ms(violation: Violation | None) -> int | None:
    return 0 if violation is None else violation.throttle_ms
