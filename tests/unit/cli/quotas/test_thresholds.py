"""Thresholds of topics and brokers on the command line: set, shown, exported, applied, refused elsewhere."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.quota_files.declarations import json_schema

TOTAL, SHARE = "total.bytes.in.per.sec.threshold", "bytes.in.per.sec.threshold"


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"local:{tmp_path / 'quotas.db'}"


@pytest.fixture
def filled(store: str) -> str:
    """A store with a total of 10 MiB/s, 4 MiB/s of it for one topic, and a quota."""
    assert run_cli("alter", "--store", store, "--broker-default", "--add-config", f"{TOTAL}=10MiB")[0] == 0
    assert run_cli("alter", "--store", store, "--topic", "orders", "--add-config", f"{SHARE}=4MiB")[0] == 0
    assert run_cli("alter", "--store", store, "--user", "a", "--add-config", "producer_byte_rate=1M")[0] == 0
    return store


def test_thresholds_are_set_like_quotas(store: str) -> None:
    code, out, _ = run_cli("alter", "--store", store, "--broker", "2", "--add-config", f"{TOTAL}=1k")
    assert (code, out.strip()) == (0, f"broker 2 in {store}: {TOTAL} not set -> 1 kB/s")
    code, out, _ = run_cli("alter", "--store", store, "--topic", "t", "--add-config", f"{SHARE}=1k")
    assert (code, out.strip()) == (0, f"topic t in {store}: {SHARE} not set -> 1 kB/s")
    code, out, _ = run_cli("alter", "--store", store, "--broker-default", "--add-config", f"{TOTAL}=1k")
    assert (code, out.strip()) == (0, f"default broker in {store}: {TOTAL} not set -> 1 kB/s")
    code, _, err = run_cli("alter", "--store", store, "--topic", "t", "--delete-config", SHARE)
    assert code == 0, err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--topic", "logs", "--add-config", f"{SHARE}=7MiB"), "sum to 11534336 bytes/s, more than the total"),
        (("--broker", "1", "--add-config", f"{TOTAL}=1MiB"), "more than the total of 1048576 of broker 1"),
        (("--broker-default", "--add-config", f"{TOTAL}=1MiB"), "more than the total of 1048576 of every broker"),
        (("--topic", "logs", "--add-config", "bytes.in.threshold=1"), f"did you mean {SHARE}?"),
        (("--topic", "logs", "--add-config", "producer_byte_rate=1"), f"a topic takes {SHARE}"),
        (("--user", "a", "--add-config", f"{SHARE}=1"), "is set on a topic"),
        (("--topic", "a b", "--add-config", f"{SHARE}=1"), "no topic can have this name"),
        (("--broker", "x", "--add-config", f"{TOTAL}=1"), "not the node id of a broker"),
        (("--topic", "", "--add-config", f"{SHARE}=1"), "--topic is empty"),
        (("--topic", "--add-config", f"{SHARE}=1"), "--topic lacks a name"),
        (("--topic", "a", "--user", "b", "--add-config", f"{SHARE}=1"), "can't be combined"),
        (("--topic", "logs", "--delete-config", SHARE), "not set on topic logs"),
    ],
)
def test_invalid_thresholds_are_refused_when_they_are_set(filled: str, arguments: tuple[str, ...], said: str) -> None:
    before = run_cli("export", "--store", filled)
    code, _, err = run_cli("alter", "--store", filled, *arguments)
    assert code in (1, 2)
    assert said in err
    assert run_cli("export", "--store", filled) == before


@pytest.mark.parametrize("store_option", [("--zookeeper", "127.0.0.1:1"), ("--bootstrap-server", "127.0.0.1:1")])
def test_other_stores_refuse_thresholds_without_being_asked(store_option: tuple[str, str]) -> None:
    for command in (("alter", "--topic", "t", "--add-config", f"{SHARE}=1"), ("describe", "--broker-default")):
        code, _, err = run_cli(*command, *store_option)
        assert code in (1, 2)
        assert "Kafka has no thresholds" in err


def test_thresholds_are_described_beside_quotas(filled: str) -> None:
    _, out, _ = run_cli("describe", "--store", filled)
    assert "topic orders" in out
    assert "4 MiB/s" in out
    _, out, _ = run_cli("describe", "--store", filled, "--topic", "orders", "--output", "json")
    assert json.loads(out)["entries"] == [{"entity": {"topic": "orders"}, "quotas": {SHARE: 4194304}}]
    _, out, _ = run_cli("describe", "--store", filled, "--output", "csv")
    assert out.splitlines() == [
        "user,client_id,ip,topic,broker,group,defaults,key,value",
        "a,,,,,,,producer_byte_rate,1000000",
        f",,,orders,,,,{SHARE},4194304",
        f",,,,,,broker,{TOTAL},10485760",
    ]
    _, out, _ = run_cli("describe", "--store", filled, "--user", "a", "--output", "csv")
    assert out.splitlines()[0] == "user,client_id,ip,topic,broker,group,defaults,key,value"


@pytest.mark.parametrize("form", ["yaml", "json", "toml"])
def test_thresholds_go_into_a_file_and_back(filled: str, tmp_path: Path, form: str) -> None:
    file, other = tmp_path / f"quotas.{form}", f"local:{tmp_path / 'other.db'}"
    assert run_cli("export", "--store", filled, "--out", str(file))[0] == 0
    assert run_cli("export", "--store", filled, "--format", form)[1] == file.read_text(encoding="utf-8")
    code, _, err = run_cli("apply", str(file), "--store", other)
    assert code == 0, err
    assert run_cli("export", "--store", other)[1] == run_cli("export", "--store", filled)[1]
    assert run_cli("diff", str(file), "--store", other, "--exit-code")[0] == 0
    _, out, _ = run_cli("export", "--store", filled, "--selector", "topic", "--selector", "broker-default")
    assert "orders" in out
    assert "user" not in out


def test_a_file_may_raise_total_and_thresholds_in_any_order(filled: str, tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(
        f"- {{entity: {{topic: orders}}, quotas: {{{SHARE}: 80MiB}}}}\n"
        f"- {{entity: {{broker: null}}, quotas: {{{TOTAL}: 100MiB}}}}\n"
    )
    code, _, err = run_cli("apply", str(file), "--store", filled)
    assert code == 0, err
    file.write_text(f"- {{entity: {{topic: orders}}, quotas: {{{SHARE}: 101MiB}}}}\n")
    code, _, err = run_cli("apply", str(file), "--store", filled)
    assert code == 1
    assert "more than the total" in err


def test_neither_doctor_nor_tree_takes_thresholds_for_quotas(filled: str) -> None:
    assert "no problem" in "".join(run_cli("doctor", "--store", filled)[1:])
    assert "threshold" not in run_cli("tree", "--store", filled)[1]


@pytest.mark.parametrize(
    ("entity", "quotas", "valid"),
    [
        ({"topic": "t"}, {SHARE: 1}, True),
        ({"topic": "t"}, {SHARE: "5MiB"}, True),
        ({"broker": None}, {TOTAL: 1}, True),
        ({"broker": "3"}, {TOTAL: 1}, True),
        ({"broker-default": True}, {TOTAL: 1}, True),
        ({"topic": None}, {SHARE: 1}, False),
        ({"topic": "t"}, {TOTAL: 1}, False),
        ({"broker": "3"}, {SHARE: 1}, False),
        ({"user": "a"}, {SHARE: 1}, False),
        ({"topic": "t", "user": "a"}, {SHARE: 1}, False),
        ({"topic": "t"}, {SHARE: 0}, False),
    ],
)
def test_the_schema_of_files_and_their_reader_agree_about_thresholds(
    tmp_path: Path, entity: dict[str, object], quotas: dict[str, object], valid: bool
) -> None:
    document = [{"entity": entity, "quotas": quotas}]
    file = tmp_path / "quotas.json"
    file.write_text(json.dumps(document))
    assert Draft202012Validator(json_schema()).is_valid(document) is valid
    assert (run_cli("validate", str(file))[0] == 0) is valid
