"""Every line of describe.jsonl: which of the stored entities a filter finds, in both modes."""

from pathlib import Path
from typing import Any

import pytest
from tests.conformance.lines import Line, conformance_lines, entity_of

from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.model.entity import (
    Entity,
    FilterComponent,
    Match,
    QuotaFilter,
    entity_filter,
    filter_verdict_kraft,
    filter_verdict_zk,
    matches,
)

_FILE = "describe.jsonl"


@pytest.mark.conformance(_FILE)
def test_describe(line: Line, conformance_folder: Path) -> None:
    if "components" not in line:
        _check_stored(line)
        return
    stored = _stored(line.get("stored", "@stored"), conformance_folder / _FILE)
    quota_filter = _filter(line)
    for verdict, expect in ((filter_verdict_kraft, line["kraft"]), (filter_verdict_zk, line["zk"])):
        _check(verdict(quota_filter), quota_filter, stored, expect)


def _check(verdict: InvalidQuotaError | None, quota_filter: QuotaFilter, stored: list[Entity], expect: Any) -> None:
    if isinstance(expect, dict):
        assert verdict is not None
        assert (verdict.code, verdict.message) == (expect["error"], expect["message"])
        return
    assert verdict is None
    found = {entity for entity in stored if matches(quota_filter, entity)}
    assert found == {entity_of(entity) for entity in expect}


def _check_stored(line: Line) -> None:
    """A line that only holds entities: each is found by the strict filter that spells it out, and by nothing less."""
    stored = [entity_of(entry["entity"]) for entry in line["stored"]]
    for entity in stored:
        assert [other for other in stored if matches(entity_filter(entity), other)] == [entity]


def _stored(reference: Any, file: Path) -> list[Entity]:
    """The entities a line is asked of: its own, or those of the line it refers to."""
    if isinstance(reference, str):
        reference = next(line["stored"] for line in conformance_lines(file) if line["id"] == reference)
    return [entity_of(entry["entity"]) for entry in reference]


def _filter(line: Line) -> QuotaFilter:
    components = tuple(
        FilterComponent(entity_type=kind, match=Match(match), name=name[0] if name else None)
        for kind, match, *name in line["components"]
    )
    return QuotaFilter(components=components, strict=line["strict"])
