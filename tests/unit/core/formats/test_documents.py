"""Files without end and documents nested without end, handed to every reader there is."""

import json
import os
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_quotas.cli.quotas.describe import read_clients
from kafka_quotas.commands.declarative.reading import declared
from kafka_quotas.commands.throttle.simulate import read_events
from kafka_quotas.core.errors import KafkaQuotasError, ProtocolError
from kafka_quotas.core.formats.documents import (
    MAX_BYTES,
    MAX_DEPTH,
    load_json,
    load_toml,
    read_document,
    read_properties,
    read_text,
)
from kafka_quotas.core.formats.metric_names import read_metric_names
from kafka_quotas.enforcement.config.client_policy import read_policy_file
from kafka_quotas.enforcement.config.cost_model_file import read_cost_model
from kafka_quotas.enforcement.config.listener_settings import read_listener
from kafka_quotas.enforcement.config.toml_table import table_path
from kafka_quotas.enforcement.sharing.state import read_state
from kafka_quotas.loadtest.results.run_file import read_run, read_shard
from kafka_quotas.loadtest.run.journal import unfinished_run
from kafka_quotas.loadtest.scenario.model import read_scenario
from kafka_quotas.pipeline.jobs.recommend.plan import read_capacities
from kafka_quotas.stores.contexts import read_contexts
from kafka_quotas.stores.files.journal import entry_from
from kafka_quotas.stores.static import read_static_quotas
from kafka_quotas.wire.proxying.sasl import oauthbearer_subject

ENDLESS = Path("/dev/zero")
NAMES = (".json", ".toml", ".yaml")
"""Endings by which a reader of several formats knows them."""
READERS: dict[str, Callable[[Path], object]] = {
    "policy": read_policy_file,
    "policy in daemon.toml": lambda path: read_policy_file(table_path(path, "policy")),
    "listener": read_listener,
    "cost model": read_cost_model,
    "quotas": lambda path: declared([str(path)]),
    "values of quotas": lambda path: declared([], [path]),
    "scenario": lambda path: read_scenario(str(path)),
    "run": read_run,
    "shard": read_shard,
    "capacities": read_capacities,
    "names of metrics": read_metric_names,
    "contexts": read_contexts,
    "properties": read_properties,
    "static quotas": read_static_quotas,
    "clients": read_clients,
    "events": lambda path: list(read_events(str(path))),
    "state": read_state,
}
DEEP = 100_000
WITHOUT_NESTING = {"properties", "static quotas", "clients"}


def nested(depth: int) -> dict[str, tuple[str, str]]:
    """Lists in lists and mappings in mappings, by the ending of their format."""
    lists, mappings = "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth
    dotted = ".".join("a" * min(depth, 2000)) + " = 1"
    return {
        ".json": (lists, mappings),
        ".toml": (f"x = {lists}", dotted),
        ".yaml": (lists, "{a: " * depth + "1" + "}" * depth),
    }


@pytest.mark.parametrize("name", READERS)
def test_a_file_without_end_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    for ending in NAMES:
        path = tmp_path / f"endless{ending}"
        path.symlink_to(ENDLESS)
        with pytest.raises(KafkaQuotasError) as caught:
            READERS[name](path)
        assert "\n" not in str(caught.value)
        assert "Error" not in str(caught.value)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 5, 900, DEEP])
@pytest.mark.parametrize("name", [name for name in READERS if name not in WITHOUT_NESTING])
def test_a_document_without_end_of_nesting_is_refused_in_one_line(name: str, depth: int, tmp_path: Path) -> None:
    for ending, texts in nested(depth).items():
        for text in texts:
            path = tmp_path / f"deep{ending}"
            path.write_text(text, encoding="utf-8")
            with pytest.raises(KafkaQuotasError) as caught:
                READERS[name](path)
            assert "\n" not in str(caught.value)
            assert len(str(caught.value)) < 2000


def test_what_comes_in_lines_and_messages_is_refused_as_well(tmp_path: Path) -> None:
    deep, mappings = nested(DEEP)[".json"]
    token = urlsafe_b64encode(deep.encode()).decode()
    with pytest.raises(ProtocolError, match="OAUTHBEARER token can't be decoded"):
        oauthbearer_subject(f"n,,\1auth=Bearer a.{token}.\1\1".encode())
    journal = tmp_path / "run.jsonl"
    journal.write_text(deep + "\n", encoding="ascii")
    with pytest.raises(KafkaQuotasError, match="is damaged"), unfinished_run(journal):
        pass
    with pytest.raises(KafkaQuotasError, match="journal"):
        entry_from(deep)
    for text in (deep, mappings, *nested(900)[".json"]):
        with pytest.raises(ValueError, match="nested too deep"):
            load_json(text)
    for text in (*nested(DEEP)[".toml"], *nested(900)[".toml"]):
        with pytest.raises(ValueError, match="nested too deep"):
            load_toml(text)


def test_documents_of_a_size_and_depth_that_people_write_pass(tmp_path: Path) -> None:
    value: object = 1
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert load_json(json.dumps(value)) == value
    assert load_toml("a.b.c = [[1]]") == {"a": {"b": {"c": [[1]]}}}
    path = tmp_path / "text"
    path.write_bytes(b"a\r\nb\rc\n")
    assert read_text(path) == path.read_text(encoding="utf-8")
    assert read_document(path, max_bytes=7) == b"a\r\nb\rc\n"
    with pytest.raises(OSError, match="longer than 0 MiB"):
        read_document(path, max_bytes=3)
    assert read_text(Path(os.devnull)) == ""
    assert MAX_BYTES > 1_000_000


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"current = 1")
    os.close(writer)
    try:
        assert read_text(Path(f"/dev/fd/{reader}")) == "current = 1"
    finally:
        os.close(reader)
