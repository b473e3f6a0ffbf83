"""Every line of validation.jsonl: both verdicts on one alteration, and what KRaft would write."""

import pytest
from tests.conformance.lines import Line, number, only_localhost, require_verdict
from tests.support.stores.alteration_oracle import kraft_alteration, zookeeper_alteration

from kafka_quotas.core.changes.validation import kraft_verdict, zookeeper_verdict
from kafka_quotas.core.java import double_text


@pytest.mark.conformance("validation.jsonl")
def test_validation(line: Line) -> None:
    pairs = [(kind, name) for kind, name in line["entity"]]
    changes = [(key, number(value)) for key, value in line["ops"]]

    require_verdict(kraft_verdict(pairs, changes, resolves=only_localhost), line["kraft"])
    require_verdict(zookeeper_verdict(pairs, changes, resolves=only_localhost), line["zk"])

    kraft = kraft_alteration({}, pairs, changes, resolves=only_localhost)
    require_verdict(kraft.error, line["kraft"])
    if line["kraft"]["ok"]:
        expect = [(key, _written(number(value))) for key, value in line["kraft"]["records"]]
        assert sorted((record.key, _written(record.value)) for record in kraft.records) == sorted(expect)
    outcome = zookeeper_alteration({}, pairs, changes, resolves=only_localhost, validate_only=line["validate_only"])
    require_verdict(outcome.error, line["zk"])


def _written(value: float | None) -> str:
    """A value of a record as a text, for NaN is not equal to itself."""
    return "removed" if value is None else double_text(value)
