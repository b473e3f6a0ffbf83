"""Every line of spread.jsonl: the two variants that spread a burst."""

import pytest
from tests.conformance.lines import Line, agrees, number

from kafka_quotas.core.quotas.simulation import Algorithm, EventOperation, new_limiter

_KINDS = {"rate_spread_even": Algorithm.SPREAD_EVEN, "rate_spread_fill": Algorithm.SPREAD_FILL}


@pytest.mark.conformance("spread.jsonl")
def test_spread(line: Line) -> None:
    config = {**line["config"], "bound": number(line["config"]["bound"])}
    limiter = new_limiter(_KINDS[line["kind"]], **config)
    for index, ((now_ms, amount), expected) in enumerate(zip(line["events"], line["expect"], strict=True)):
        outcome = limiter.apply(EventOperation.STRICT, number(amount), now_ms)
        assert [outcome.admitted, outcome.throttle_ms] == [expected[0], expected[2]], f"event {index}"
        assert agrees(outcome.level, expected[1]), f"event {index}"
