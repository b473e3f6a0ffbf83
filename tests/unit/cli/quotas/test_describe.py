"""`describe` through the command line: filters, and every form of output."""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from tests.support.processes.run_cli import run_cli
from tests.support.stores.stored_quotas import new_store

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration

QUOTAS: dict[Entity, Mapping[str, float]] = {
    Entity.of(user="alice"): {"producer_byte_rate": 10485760.0, "consumer_byte_rate": 9223372036854775807.0},
    Entity.of(user="alice", client_id="app"): {"request_percentage": 0.00001},
    Entity.of(user="alice", client_id=None): {"controller_mutation_rate": 2.5},
    Entity.of(user=None): {"producer_byte_rate": 1000.0},
    Entity.of(client_id='odd, "name"\n[red]'): {"producer_byte_rate": 1e15},
    Entity.of(ip="10.0.0.1"): {"connection_creation_rate": 5.0},
}

PAIRS = [{"user": "alice", "client-id": "app"}, {"user": "alice", "client-id": None}]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"local:{tmp_path_factory.mktemp('describe')}/quotas.db"
    opened = open_store(url)
    try:
        results = opened.alter([Alteration(entity=entity, changes=quotas) for entity, quotas in QUOTAS.items()])
    finally:
        opened.close()
    assert [result.error for result in results] == [None] * len(QUOTAS)
    return url


def entities(store: str, *options: str) -> list[Mapping[str, str | None]]:
    code, out, _ = run_cli("describe", "--store", store, "--output", "json", *options)
    assert code == 0
    return [entry["entity"] for entry in json.loads(out)["entries"]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ("--user", "alice"),
            [{"user": "alice"}, {"user": "alice", "client-id": "app"}, {"user": "alice", "client-id": None}],
        ),
        (("--user", "alice", "--strict"), [{"user": "alice"}]),
        (("--user", "alice", "--client", "app"), [{"user": "alice", "client-id": "app"}]),
        (("--user", "alice", "--client-default"), [{"user": "alice", "client-id": None}]),
        (
            ("--user", "alice", "--client-any"),
            PAIRS,
        ),
        (("--user-default",), [{"user": None}]),
        (("--user-any", "--strict"), [{"user": "alice"}, {"user": None}]),
        (("--client-any", "--strict"), [{"client-id": 'odd, "name"\n[red]'}]),
        (("--ip-any",), [{"ip": "10.0.0.1"}]),
        (("--ip", "10.0.0.1"), [{"ip": "10.0.0.1"}]),
        (("--ip-default",), []),
        (("--entity-type", "users", "--strict"), [{"user": "alice"}, {"user": None}]),
        (("--entity-type", "users", "--entity-name", "alice", "--strict"), [{"user": "alice"}]),
        (
            ("--entity-type", "users", "--entity-type", "clients", "--entity-name", "alice"),
            PAIRS,
        ),
    ],
)
def test_filters(store: str, options: tuple[str, ...], expected: list[Mapping[str, str | None]]) -> None:
    assert entities(store, *options) == expected


def test_no_option_at_all_shows_everything(store: str) -> None:
    code, out, err = run_cli("describe", environment={"KAFKA_QUOTAS_STORE": store})
    assert (code, err) == (0, "")
    assert "default user" in out


def test_without_a_filter_everything_is_shown_sorted(store: str) -> None:
    assert entities(store) == [entity.to_mapping() for entity in sorted(QUOTAS, key=lambda each: each.sort_key)]


def test_json_is_the_contract_that_apply_reads(store: str) -> None:
    _, out, err = run_cli("describe", "--store", store, "--output", "json")
    document = json.loads(out)
    assert err == ""
    assert list(document) == ["schema", "entries"]
    assert document["schema"] == "kafka-quotas.quotas/1"
    assert {Entity.from_mapping(entry["entity"]): _doubles(entry) for entry in document["entries"]} == QUOTAS
    assert all(set(entry) == {"entity", "quotas"} for entry in document["entries"])


def _doubles(entry: Mapping[str, Mapping[str, float]]) -> Mapping[str, float]:
    return {key: float(value) for key, value in entry["quotas"].items()}


def test_numbers_are_plain(store: str) -> None:
    for output in ("json", "yaml", "csv", "markdown", "table"):
        _, out, _ = run_cli("describe", "--store", store, "--output", output)
        assert "1000000000000000" in out
        assert "0.00001" in out
        assert "e+" not in out.lower()
        assert "e-0" not in out.lower()


def test_yaml_says_the_same_as_json(store: str) -> None:
    _, as_json, _ = run_cli("describe", "--store", store, "--output", "json")
    _, as_yaml, _ = run_cli("describe", "--store", store, "--output", "yaml")
    assert yaml.safe_load(as_yaml) == json.loads(as_json)


def test_csv_tells_defaults_from_names_and_from_nothing(store: str) -> None:
    _, out, _ = run_cli("describe", "--store", store, "--output", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert list(rows[0]) == ["user", "client_id", "ip", "topic", "broker", "defaults", "key", "value"]
    shown = [(row["user"], row["client_id"], row["ip"], row["defaults"]) for row in rows]
    assert ("alice", "", "", "client_id") in shown
    assert ("", "", "", "user") in shown
    assert ("", 'odd, "name"\n[red]', "", "") in shown


def test_the_largest_value_is_named_unlimited(store: str) -> None:
    _, out, _ = run_cli("describe", "--store", store, "--user", "alice", "--strict")
    assert "9223372036854775807  unlimited (explicit)" in out


def test_a_terminal_of_80_columns_holds_the_table(store: str) -> None:
    _, out, _ = run_cli("describe", "--store", store, terminal=True, environment={"TERM": "dumb"})
    assert max(len(line) for line in out.splitlines()) <= 80
    assert all(key in out for quotas in QUOTAS.values() for key in quotas)


def test_nothing_found_is_no_failure(store: str) -> None:
    code, out, err = run_cli("describe", "--store", store, "--user", "nobody", "--output", "csv")
    assert (code, out) == (0, "user,client_id,ip,topic,broker,defaults,key,value\n")
    assert err.startswith("note: no stored quota matches")
    code, out, err = run_cli("describe", "--store", store, "--user", "nob*")
    assert (code, out) == (0, ""), "no headings without rows"
    assert err.splitlines()[1] == "hint: names are exact here; export --selector takes patterns"


def test_a_very_long_name_does_not_make_every_row_as_wide(tmp_path: Path) -> None:
    name = "a" * 20_000
    url = new_store(tmp_path, {Entity.of(user=name): {"producer_byte_rate": 1e6}})
    shown = run_cli("describe", "--store", url)[1]
    assert max(map(len, shown.splitlines())) < 600
    assert "... (20,005 letters)" in shown
    assert name in run_cli("describe", "--store", url, "-o", "csv")[1]


def test_a_store_that_was_never_written_is_empty(tmp_path: Path) -> None:
    code, out, _ = run_cli("describe", "--output", "json", environment={"XDG_DATA_HOME": str(tmp_path)})
    assert (code, json.loads(out)["entries"]) == (0, [])
    assert list(tmp_path.iterdir()) == []


def test_a_static_store_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "static.properties"
    file.write_text('quota.producer.default=2M\nquota.producer.override="app:4M"\n', encoding="utf-8")
    assert entities(f"static:{file}") == [{"client-id": "app"}, {"client-id": None}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--user", ""), "--user is empty"),
        (("--user", "a", "--ip", "10.0.0.1"), "ip"),
        (("--user", "a", "--user-any"), "named twice"),
        (("--brokers", "3"), "--brokers: only with --effective"),
        (("--no-client-id", "--all"), "--no-client-id, --all: only with --effective"),
        (("--output", "xml"), "'xml' is not one of table, json, yaml, csv, markdown"),
    ],
)
def test_refusals(store: str, options: tuple[str, ...], message: str) -> None:
    code, out, err = run_cli("describe", "--store", store, *options)
    assert (code, out) == (2, "")
    assert message.lower() in err.splitlines()[0].lower()
