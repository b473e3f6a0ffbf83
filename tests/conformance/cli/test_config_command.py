"""Every line of config_command.jsonl: what kafka-configs understands, asks brokers for, and prints."""

from typing import Any

import pytest
from tests.conformance.lines import Line, as_kafka_4_3_says, entity_of, number, only_localhost

from kafka_quotas.commands.kafka_configs.command import (
    Action,
    KafkaConfigsCommand,
    checked_options,
    command_of,
    describe_lines,
)
from kafka_quotas.commands.kafka_configs.options import KafkaConfigsError
from kafka_quotas.core.java import double_text
from kafka_quotas.core.model.entity import Entity, Match, QuotaFilter, matches


def no_files(path: str) -> dict[str, str]:
    """Stands for a file system without a file, as no line needs one."""
    raise AssertionError(f"file read: {path}")


@pytest.mark.conformance("config_command.jsonl")
def test_config_command(line: Line) -> None:
    line = as_kafka_4_3_says(line)
    existing = {entity_of(entry["entity"]): entry["quotas"] for entry in line.get("existing", [])}
    if "error" in line["expect"]:
        with pytest.raises(KafkaConfigsError) as raised:
            _run(line["args"], existing)
        _check_error(raised.value, line["expect"]["error"])
        return
    command, stdout = _run(line["args"], existing)
    _check_command(command, line["expect"], existing)
    assert sorted(map(_unordered, stdout)) == sorted(map(_unordered, line["expect"]["stdout"]))


def _run(args: list[str], existing: dict[Entity, Any]) -> tuple[KafkaConfigsCommand, list[str]]:
    """The command and what it prints where these quotas are stored."""
    command = command_of(checked_options(args, resolves=only_localhost), load_properties=no_files)
    if command.action is Action.ALTER:
        command.changes(existing.get(command.entity, {}))
        return command, [command.completed_line]
    found = [(entity, quotas) for entity, quotas in existing.items() if matches(command.quota_filter, entity)]
    return command, describe_lines(found)


def _check_error(error: KafkaConfigsError, expect: Line) -> None:
    assert error.error_class == expect["class"]
    assert error.exit_code == expect["exit"]
    pieces = expect.get("message_contains", [expect["message"]])
    assert [piece for piece in pieces if piece not in error.message] == []
    if "Unexpected config names: " not in expect["message"]:  # those are listed in any order
        assert error.message == expect["message"]


def _check_command(command: KafkaConfigsCommand, expect: Line, existing: dict[Entity, Any]) -> None:
    assert command.action.value == expect["action"]
    assert _as_lines_have_it(command.quota_filter) == expect["describe_filter"]
    assert command.describes_scram == expect.get("describes_scram", False)
    if "entity" in expect:
        assert command.entity == entity_of(expect["entity"])
        changes = command.changes(existing.get(command.entity, {}))
        assert sorted((key, _written(value)) for key, value in changes) == sorted(
            (key, _written(number(value))) for key, value in expect["ops"]
        )
        assert expect["validate_only"] is False


def _as_lines_have_it(quota_filter: QuotaFilter) -> Line:
    components = [
        [component.entity_type, component.match.value, *([component.name] if component.match is Match.EXACT else [])]
        for component in quota_filter.components
    ]
    return {"strict": quota_filter.strict, "components": sorted(components, key=lambda component: str(component[0]))}


def _written(value: float | None) -> str:
    """A value as a text, for NaN is not equal to itself."""
    return "removed" if value is None else double_text(value)


def _unordered(line: str) -> tuple[str, list[str]]:
    """A printed line with its pairs of key and value in one order."""
    start, are, pairs = line.rpartition(" are ")
    return start + are, sorted(pairs.split(", "))
