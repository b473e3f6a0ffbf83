"""Every line of spread.jsonl: the two variants that spread a burst."""

import pytest
from tests.conformance.lines import Line, agrees, number

from kafka_quotas.core.quotas.simulation import SpreadEvenRate, SpreadFillRate

_KINDS = {"rate_spread_even": SpreadEvenRate, "rate_spread_fill": SpreadFillRate}


@pytest.mark.conformance("spread.jsonl")
def test_spread(line: Line) -> None:
    config = line["config"]
    spread = _KINDS[line["kind"]](config["samples"], config["window_ms"], number(config["bound"]))
    for index, ((now_ms, amount), expected) in enumerate(zip(line["events"], line["expect"], strict=True)):
        decision = spread.request(number(amount), now_ms)
        assert [decision.admitted, decision.throttle_ms] == [expected[0], expected[2]], f"event {index}"
        assert agrees(decision.rate, expected[1]), f"event {index}"
