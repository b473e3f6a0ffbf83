"""Every line of sanitize.jsonl."""

import pytest
from tests.conformance.lines import Line

from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.model.entity import desanitize, sanitize


@pytest.mark.conformance("sanitize.jsonl")
def test_sanitize(line: Line) -> None:
    name = line["name"]
    if line["fn"] == "sanitize":
        assert sanitize(name) == line["sanitized"]
        assert desanitize(line["sanitized"]) == name
    elif isinstance(line["expect"], dict):
        with pytest.raises(InvalidQuotaError):
            desanitize(name)
    else:
        assert desanitize(name) == line["expect"]
