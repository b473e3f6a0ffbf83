"""Every line of alter.jsonl: sequences of alterations, and what is stored after each."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.conformance.lines import Line, number, only_localhost, require_verdict
from tests.support.stores.alteration_oracle import kraft_alteration, zookeeper_alteration

Pair = tuple[str | None, str | None]


@pytest.mark.conformance("alter.jsonl")
def test_alter(line: Line) -> None:
    stored: dict[frozenset[Pair], Mapping[str, float]] = {}
    znodes: Mapping[str, bytes | None] = {}
    for step, expect in zip(line["steps"], line["expect"], strict=True):
        pairs = tuple((kind, name) for kind, name in step["entity"])
        entity = frozenset(pairs)
        stored[entity] = _alter_kraft(stored.get(entity, {}), pairs, step, expect["kraft"])
        znodes = _alter_zookeeper(znodes, pairs, step, expect["zk"])


def _alter_kraft(
    current: Mapping[str, float], pairs: tuple[Pair, ...], step: Line, expect: Line
) -> Mapping[str, float]:
    """The entity's quotas after a step that was checked against KRaft's part of the line."""
    outcome = kraft_alteration(
        current, pairs, _changes(step), resolves=only_localhost, validate_only=step["validate_only"]
    )
    require_verdict(outcome.error, expect)
    records = sorted((record.key, record.value) for record in outcome.records)
    assert records == sorted((key, number(value)) for key, value in expect.get("records", []))
    assert outcome.quotas == {key: number(value) for key, value in expect["quotas"].items()}
    return outcome.quotas


def _alter_zookeeper(
    znodes: Mapping[str, bytes | None], pairs: tuple[Pair, ...], step: Line, expect: Line
) -> Mapping[str, bytes | None]:
    """The znodes after a step that was checked against ZooKeeper's part of the line."""
    outcome = zookeeper_alteration(
        znodes, pairs, _changes(step), resolves=only_localhost, validate_only=step["validate_only"]
    )
    require_verdict(outcome.error, expect)
    assert _parsed(outcome.notification) == expect.get("notification")
    assert {path: _parsed(data) for path, data in outcome.znodes.items()} == expect["znodes"]
    return outcome.znodes


def _changes(step: Line) -> list[tuple[str, float | None]]:
    return [(key, number(value)) for key, value in step["ops"]]


def _parsed(data: bytes | None) -> Any:
    return None if data is None else json.loads(data)
