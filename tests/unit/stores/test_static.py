"""Static quotas: KIP-13's four properties, and nothing that merely looks like one."""

from pathlib import Path

import pytest
from tests.support.core.effective_quotas import effective_quotas
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.errors import InvalidQuotaError, UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores.static import read_static_quotas, static_quotas

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"


def test_the_documents_own_example() -> None:
    entries = static_quotas(
        {"quota.producer.default": "2M", "quota.producer.override": '"clientA:4M,clientB:10M"', "broker.id": "1"}
    )
    assert {entry.entity: dict(entry.quotas) for entry in entries} == {
        Entity.of(client_id="clientA"): {PRODUCE: 4e6},
        Entity.of(client_id="clientB"): {PRODUCE: 1e7},
        Entity.of(client_id=None): {PRODUCE: 2e6},
    }


def test_both_directions_meet_in_one_entry() -> None:
    (entry,) = static_quotas({"quota.producer.override": "a:1k", "quota.consumer.override": "a:2KiB"})
    assert entry.entity == Entity.of(client_id="a")
    assert entry.quotas == {PRODUCE: 1000.0, FETCH: 2048.0}


@pytest.mark.parametrize(
    ("text", "client_id"), [("host:9092:5", "host:9092"), (":5", ""), ("a b:5", "a b"), (",a:5,", "a")]
)
def test_client_ids_may_hold_colons_or_nothing(text: str, client_id: str) -> None:
    (entry,) = static_quotas({"quota.consumer.override": text})
    assert entry.entity == Entity.of(client_id=client_id)


def test_empty_values_set_nothing() -> None:
    assert static_quotas({"quota.producer.default": "", "quota.consumer.override": '""'}) == ()


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("quota.producer.default", "fast", "not a size"),
        ("quota.producer.default", "0", "greater than 0"),
        ("quota.producer.default", "-1", "greater than 0"),
        ("quota.producer.override", "clientA=4M", "not client-id:limit"),
        ("quota.producer.override", "a:1,a:2", "two overrides"),
        ("quota.producer.defualt", "1", "unknown static quota"),
        ("quota.consumer.overrides", "a:1", "unknown static quota"),
    ],
)
def test_refuses_what_can_not_be_meant(name: str, value: str, problem: str) -> None:
    with pytest.raises(InvalidQuotaError, match=problem):
        static_quotas({name: value})


def test_errors_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "static.properties"
    with pytest.raises(UsageError, match=str(file)):
        read_static_quotas(file)
    file.write_text("quota.producer.default=x\n")
    with pytest.raises(InvalidQuotaError, match=str(file)):
        read_static_quotas(file)


def test_they_rank_below_everything_else() -> None:
    static = [(entry.entity, entry.quotas) for entry in static_quotas({"quota.producer.override": "app:1M"})]
    stored = [(Entity.of(client_id=None), {PRODUCE: 5.0})]
    (alone, *_) = effective_quotas([], user="alice", client_id="app", static=static)
    (below, *_) = effective_quotas(stored, user="alice", client_id="app", static=static)
    assert (alone.limit, below.limit) == (1e6, 5.0)


@pytest.mark.parametrize("argv", [("describe",), ("describe", "--effective", "--user", "a"), ("tree",), ("doctor",)])
def test_a_file_without_static_quotas_may_be_the_wrong_one(tmp_path: Path, argv: tuple[str, ...]) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\n", encoding="utf-8")
    code, _, err = run_cli(*argv, "--store", f"static:{file}")
    names = "quota.producer.default, quota.producer.override, quota.consumer.default, quota.consumer.override"
    assert code == 0
    assert err.endswith(f"note: {file} has none of {names}\nhint: is it the right file?\n")
    file.write_text("quota.producer.default=1M\n", encoding="utf-8")
    assert "has none of" not in run_cli(*argv, "--store", f"static:{file}")[2]
