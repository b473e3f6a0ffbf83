"""Every line of functions.jsonl: single functions."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.lines import Line, agrees, number

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.java import double_text
from kafka_quotas.core.metrics.rate import WindowedSum
from kafka_quotas.core.metrics.sensor import Quota, Sensor
from kafka_quotas.core.metrics.throttle_time import (
    bounded_throttle_time_ms,
    mutation_throttle_time_ms,
    nanos_to_percentage,
    narrow_to_int32,
    round_half_up,
    throttle_time_ms,
)

_EXACT: dict[str, Callable[..., Any]] = {
    "throttle_time": throttle_time_ms,
    "bounded_throttle_time": bounded_throttle_time_ms,
    "mutation_throttle_time": mutation_throttle_time_ms,
    "acceptable": lambda bound, upper, value: Quota(bound, upper).acceptable(value),
    "quota_equal": lambda a, b: Quota(number(a[0]), a[1]) == Quota(number(b[0]), b[1]),
    "java_round": lambda value: round_half_up(float(value)),
    "long_to_int": narrow_to_int32,
    "java_double_to_string": lambda value: double_text(float(value)),
}


@pytest.mark.conformance("functions.jsonl")
def test_function(line: Line) -> None:
    fn, expected = line["fn"], line["expect"]
    args = {name: number(value) for name, value in line["args"].items() if name != "stat"}
    if isinstance(expected, dict):
        assert expected["error"] == "IllegalArgumentException"
        with pytest.raises(UsageError) as refused:
            Sensor(WindowedSum(2, args["window_ms"])).window_ms(0)
        assert all(piece in str(refused.value) for piece in expected["message_contains"])
    elif fn == "nanos_to_percentage":
        assert agrees(nanos_to_percentage(**args), expected)
    else:
        assert _EXACT[fn](**args) == expected
