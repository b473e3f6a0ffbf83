"""Every line of config_command.jsonl as typed: both streams, the exit code, and what brokers are asked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.lines import Line, as_kafka_4_3_says, entity_of, number, only_localhost
from tests.support.processes.run_cli import run_cli

from kafka_quotas.cli import kafka_configs
from kafka_quotas.commands.kafka_configs.command import checked_options, command_of
from kafka_quotas.commands.kafka_configs.options import KafkaConfigsError, usage_text
from kafka_quotas.core.java import double_text
from kafka_quotas.core.model.entity import Entity, Match, QuotaFilter, matches
from kafka_quotas.stores.files.journal import Journal
from kafka_quotas.stores.store import QuotaEntry


class Brokers:
    """Stands for the brokers: holds quotas, and keeps what it was asked to alter."""

    url = "kafka://brokers:9092"

    def __init__(self, existing: Sequence[Line]) -> None:
        self.stored = {entity_of(entry["entity"]): entry["quotas"] for entry in existing}
        self.altered: list[tuple[Entity, list[tuple[str, float | None]]]] = []
        self.closed = False

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        """The matching entries."""
        return [
            QuotaEntry(entity=entity, quotas=quotas)
            for entity, quotas in self.stored.items()
            if matches(quota_filter, entity)
        ]

    def alter(self, entity: Entity, changes: Sequence[tuple[str, float | None]]) -> None:
        """Keep the changes."""
        self.altered.append((entity, list(changes)))

    def close(self) -> None:
        """Keep that it was called."""
        self.closed = True


@pytest.mark.conformance("config_command.jsonl")
def test_kafka_configs_as_typed(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    line = as_kafka_4_3_says(line)
    brokers, opened = Brokers(line.get("existing", [])), []

    def open_brokers(command: Any) -> Brokers:
        opened.append(command)
        return brokers

    monkeypatch.setattr(kafka_configs, "open_brokers", open_brokers)
    monkeypatch.setattr(kafka_configs, "name_resolves", only_localhost)
    code, out, err = run_cli("kafka-configs", *line["args"])
    expect = line["expect"]
    if "error" in expect:
        assert (code, _without_deprecation(out)) == (expect["error"]["exit"], "")
        _check_error(err, expect["error"])
        assert brokers.altered == []
        with pytest.raises(KafkaConfigsError) as refused:
            _changes(line["args"], brokers)
        assert (refused.value.error_class, refused.value.exit_code) == (expect["error"]["class"], code)
    else:
        assert (code, _lines(out)) == (0, sorted(map(_unordered, expect["stdout"])))
        assert [text for text in err.splitlines() if not text.startswith(("warning: ", "note: "))] == []
        assert ("SCRAM" in err) is expect.get("describes_scram", False)
        assert _asked(brokers) == _expected_changes(expect)
        (command,) = opened
        assert (command.action.value, _as_lines_have_it(command.quota_filter)) == (
            expect["action"],
            expect["describe_filter"],
        )
    assert brokers.closed is bool(opened)


def _check_error(err: str, expect: Line) -> None:
    told = [text for text in err.splitlines() if not text.startswith("warning: ")]
    message, rest = told[0], told[1:]
    assert [piece for piece in expect.get("message_contains", [expect["message"]]) if piece not in message] == []
    if "Unexpected config names: " not in expect["message"]:  # those are listed in any order
        assert message == expect["message"]
    assert rest == (usage_text().splitlines() if expect["class"] == "usage" else [])


def _no_files(path: str) -> dict[str, str]:
    """Stands for a file system without a file, as no line needs one."""
    raise AssertionError(f"file read: {path}")


def _changes(args: Sequence[str], brokers: Brokers) -> Sequence[tuple[str, float | None]]:
    """The changes that arguments mean where the brokers hold their quotas."""
    command = command_of(checked_options(args, resolves=only_localhost), load_properties=_no_files)
    return command.changes(brokers.stored.get(command.entity, {}))


def _as_lines_have_it(quota_filter: QuotaFilter) -> Line:
    components = [
        [component.entity_type, component.match.value, *([component.name] if component.match is Match.EXACT else [])]
        for component in quota_filter.components
    ]
    return {"strict": quota_filter.strict, "components": sorted(components, key=lambda component: str(component[0]))}


def _asked(brokers: Brokers) -> list[tuple[Entity, list[tuple[str, str]]]]:
    return [(entity, sorted((key, _written(value)) for key, value in changes)) for entity, changes in brokers.altered]


def _expected_changes(expect: Line) -> list[tuple[Entity, list[tuple[str, str]]]]:
    if expect["action"] != "alter":
        return []
    assert expect["validate_only"] is False
    changes = sorted((key, _written(number(value))) for key, value in expect["ops"])
    return [(entity_of(expect["entity"]), changes)]


def _written(value: float | None) -> str:
    """A value as a text, for NaN is not equal to itself."""
    return "removed" if value is None else double_text(value)


def _lines(out: str) -> list[tuple[str, list[str]]]:
    return sorted(map(_unordered, out.splitlines()))


def _unordered(line: str) -> tuple[str, list[str]]:
    """A printed line with its pairs of key and value in one order."""
    start, are, pairs = line.rpartition(" are ")
    return start + are, sorted(pairs.split(", "))


def _without_deprecation(out: str) -> str:
    return "".join(f"{text}\n" for text in out.splitlines() if text not in kafka_configs.DEPRECATION_LINES)


def test_what_is_altered_is_in_the_journal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    brokers = Brokers([{"entity": [["user", "alice"]], "quotas": {"producer_byte_rate": 5.0}}])
    monkeypatch.setattr(kafka_configs, "open_brokers", lambda command: brokers)
    arguments = ("--alter", "--entity-type", "users", "--entity-name", "alice", "--bootstrap-server", "brokers:9092")
    journal = {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal")}
    code, _, err = run_cli("kafka-configs", *arguments, "--add-config", "producer_byte_rate=7", environment=journal)
    assert code == 0, err
    (entry,) = Journal(tmp_path / "journal").read().entries
    assert (entry.command, entry.store_url) == ("kafka-configs", "kafka://brokers:9092")
    assert [(change.key, change.old, change.new) for change in entry.changes] == [("producer_byte_rate", 5.0, 7.0)]
