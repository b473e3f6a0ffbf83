"""`alter` through the command line, on the local store."""

import json
from pathlib import Path

import pytest
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import EVERYTHING
from kafka_quotas.stores.factory import open_store


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"local:{tmp_path}/quotas.db"


def stored(store: str) -> dict[Entity, dict[str, float]]:
    opened = open_store(store)
    try:
        return {entry.entity: dict(entry.quotas) for entry in opened.describe(EVERYTHING)}
    finally:
        opened.close()


ALICE = Entity.of(user="alice")
TEN_MIB = "producer_byte_rate=10MiB"


def test_sets_quotas_with_units_and_prints_the_line_of_kafka_configs(store: str) -> None:
    config = "producer_byte_rate=10MiB,consumer_byte_rate=2M"
    code, out, err = run_cli("alter", "--store", store, "--user", "alice", "--add-config", config)
    assert (code, out, err) == (0, "Completed updating config for user alice.\n", "")
    assert stored(store) == {ALICE: {"producer_byte_rate": 10485760.0, "consumer_byte_rate": 2_000_000.0}}


@pytest.mark.parametrize(
    ("options", "line", "entity"),
    [
        (("--user", "a"), "config for user a", Entity.of(user="a")),
        (("--client", "c"), "config for client c", Entity.of(client_id="c")),
        (("--user", "a", "--client", "c"), "config for client c", Entity.of(user="a", client_id="c")),
        (("--user", "a", "--client-default"), "config for user a", Entity.of(user="a", client_id=None)),
        (("--user-default",), "default config for users in the cluster", Entity.of(user=None)),
        (("--user-defaults",), "default config for users in the cluster", Entity.of(user=None)),
        (("--client-default",), "default config for clients in the cluster", Entity.of(client_id=None)),
        (
            ("--user-default", "--client-default"),
            "default config for clients in the cluster",
            Entity.of(user=None, client_id=None),
        ),
        (("--entity-type", "users", "--entity-name", "a"), "config for user a", Entity.of(user="a")),
        (
            ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-name", "c"),
            "default config for users in the cluster",
            Entity.of(user=None, client_id="c"),
        ),
        (
            ("--entity-type", "users", "--entity-name", "c", "--entity-type", "clients", "--entity-default"),
            "config for user c",
            Entity.of(user="c", client_id=None),
        ),
        (("--user", "CN=a,O=b"), "config for user CN=a,O=b", Entity.of(user="CN=a,O=b")),
        (("--user=--odd",), "config for user --odd", Entity.of(user="--odd")),
        (("--user", "<default>"), "config for user <default>", Entity.of(user="<default>")),
    ],
)
def test_names_entities_in_every_way(store: str, options: tuple[str, ...], line: str, entity: Entity) -> None:
    code, out, _ = run_cli("alter", "--store", store, *options, "--add-config", TEN_MIB)
    assert (code, out) == (0, f"Completed updating {line}.\n")
    assert list(stored(store)) == [entity]


def test_sets_and_removes_in_one_change(store: str) -> None:
    run_cli("alter", "--store", store, "--user", "alice", "--add-config", TEN_MIB)
    code, _, _ = run_cli(
        *("alter", "--store", store, "--user", "alice", "--add-config", "request_percentage=12.5%"),
        *("--add-config", "consumer_byte_rate=[1024]", "--delete-config", "producer_byte_rate"),
    )
    assert code == 0
    assert stored(store) == {ALICE: {"request_percentage": 12.5, "consumer_byte_rate": 1024.0}}


def test_takes_quotas_from_a_property_file(store: str, tmp_path: Path) -> None:
    file = tmp_path / "quotas.properties"
    file.write_text("# limits\nproducer_byte_rate = 1MiB\nconsumer_byte_rate: unlimited\n", encoding="utf-8")
    code, _, _ = run_cli("alter", "--store", store, "--user", "alice", "--add-config-file", str(file))
    assert code == 0
    assert stored(store) == {ALICE: {"producer_byte_rate": 1048576.0, "consumer_byte_rate": 9223372036854775807.0}}


def test_a_key_named_twice_in_a_property_file_is_refused(store: str, tmp_path: Path) -> None:
    file = tmp_path / "quotas.properties"
    file.write_text("producer_byte_rate=1MiB\nproducer_byte_rate=2MiB\n", encoding="utf-8")
    code, out, err = run_cli("alter", "--store", store, "--user", "alice", "--add-config-file", str(file))
    assert (code, out) == (2, "")
    assert err.startswith("error: producer_byte_rate is named twice\nhint: ")
    assert stored(store) == {}


def test_a_dry_run_checks_says_who_checked_and_writes_nothing(store: str) -> None:
    code, out, err = run_cli("alter", "--store", store, "--user", "alice", "--add-config", TEN_MIB, "--dry-run")
    assert code == 0
    assert out == (
        "Dry run: would update config for user alice.\n\n"
        "for whom the effective quota changes, per broker\n"
        "client                             key                 before     after\n"
        "---------------------------------  ------------------  ---------  ------------------------\n"
        "user alice, client-id (any other)  producer_byte_rate  unlimited  10.49 MB/s by user alice\n"
    )
    assert err == "note: checked here only, no broker was asked; nothing was written\n"
    assert stored(store) == {}


def test_a_dry_run_in_json_tells_for_whom_it_would_count(store: str) -> None:
    run_cli("alter", "--store", store, "--user", "alice", "--client-default", "--add-config", "producer_byte_rate=5")
    _, out, _ = run_cli(
        "alter", "--store", store, "--user", "alice", "--add-config", TEN_MIB, "--dry-run", "-o", "json"
    )
    assert json.loads(out)["affected"] == [
        {
            "client": {"user": "alice", "client-id": ""},
            "key": "producer_byte_rate",
            "before": {"limit": None, "entity": None},
            "after": {"limit": 10485760, "entity": {"user": "alice"}},
        }
    ]


def test_json_is_alone_on_standard_output(store: str) -> None:
    run_cli("alter", "--store", store, "--user", "alice", "--add-config", "producer_byte_rate=5")
    code, out, err = run_cli(
        "alter", "--store", store, "--user", "alice", "--add-config", TEN_MIB, "--output", "json", terminal=True
    )
    assert code == 0
    assert json.loads(out) == {
        "schema": "kafka-quotas.alter/1",
        "store": store,
        "dry_run": False,
        "checked_by": ["client"],
        "entity": {"user": "alice"},
        "changes": [{"key": "producer_byte_rate", "old": 5, "new": 10485760}],
    }
    assert "10.49 MB/s" in err


def test_a_terminal_shows_old_and_new(store: str) -> None:
    _, out, err = run_cli("alter", "--store", store, "--user", "[bold]", "--add-config", TEN_MIB, **DUMB_TERMINAL)
    assert out == "Completed updating config for user [bold].\n"
    titles, headers, _, row = (line.split() for line in err.strip().splitlines())
    assert titles == ["user", "[bold]"]
    assert headers == ["key", "old", "new"]
    assert row == ["producer_byte_rate", "not", "set", "10.49", "MB/s"]


DUMB_TERMINAL = {"terminal": True, "environment": {"TERM": "dumb"}}


def test_says_where_it_stored_what_nobody_chose(tmp_path: Path) -> None:
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    code, _, err = run_cli("alter", "--user", "alice", "--add-config", TEN_MIB, environment=environment)
    path = tmp_path / "kafka-quotas" / "quotas.db"
    assert code == 0
    assert err.splitlines()[0] == f"note: stored locally in {path}; no broker was changed"
    assert "--bootstrap-server" in err.splitlines()[1]
    assert stored(f"local:{path}") == {ALICE: {"producer_byte_rate": 10485760.0}}


def test_says_no_such_thing_where_a_variable_chose(store: str) -> None:
    _, _, err = run_cli("alter", "--user", "alice", "--add-config", TEN_MIB, environment={"KAFKA_QUOTAS_STORE": store})
    assert err == ""


USER = ("--user", "alice")
BAD_INPUT = [
    ((*USER, "--add-config", "producer_byte_rate=NaN"), 2, "finite", "unlimited"),
    ((*USER, "--add-config", "producer_byte_rate=inf"), 2, "finite", "unlimited"),
    ((*USER, "--add-config", "producer_byte_rate=-Infinity"), 2, "finite", "unlimited"),
    ((*USER, "--add-config", "producer_byte_rate=0"), 2, "greater than 0", ""),
    ((*USER, "--add-config", "producer_byte_rate=-1"), 2, "greater than 0", ""),
    ((*USER, "--add-config", "producer_byte_rate=0.5"), 2, "whole number", "whole number"),
    ((*USER, "--add-config", "producer_byte_rate=1e300"), 2, "too large", "unlimited"),
    (
        (*USER, "--add-config", "producer_byte_rate=99999999999999999999"),
        2,
        "large: 100000000000000000000",
        "unlimited",
    ),
    ((*USER, "--add-config", "producer_byte_rate=10Mb"), 2, "bits", "B for bytes"),
    ((*USER, "--add-config", "producer_byte_rate=50%"), 2, "not %", "10MiB"),
    ((*USER, "--add-config", "producer_byte_rate="), 2, "no value", "--delete-config producer_byte_rate"),
    ((*USER, "--add-config", "producer_byte_rate=many"), 2, "not a size", "10MiB"),
    ((*USER, "--add-config", "producer_byte_rate"), 2, "KEY=VALUE", "producer_byte_rate=10MiB"),
    ((*USER, "--add-config", ",producer_byte_rate=1"), 2, "empty part", "variable"),
    ((*USER, "--add-config", ""), 2, "empty part", "variable"),
    ((*USER, "--add-config", "producer_bite_rate=1"), 2, "unknown quota key", "producer_byte_rate"),
    ((*USER, "--add-config", "controller_mutations_rate=1"), 2, "unknown quota key", "controller_mutation_rate"),
    ((*USER, "--add-config", "retention.ms=1"), 2, "unknown quota key", "producer_byte_rate"),
    ((*USER, "--delete-config", "producer-byte-rate"), 2, "unknown quota key", "producer_byte_rate"),
    ((*USER, "--add-config", "connection_creation_rate=5"), 2, "connection_creation_rate", "ip"),
    (("--ip", "10.0.0.1", "--add-config", "producer_byte_rate=5"), 2, "producer_byte_rate", ""),
    ((*USER, "--add-config", "producer_byte_rate=1,producer_byte_rate=2"), 2, "twice", ""),
    ((*USER, "--add-config", "producer_byte_rate=1", "--delete-config", "producer_byte_rate"), 2, "twice", ""),
    ((*USER, "--add-config-file", "/nonexistent"), 2, "cannot read /nonexistent", "name of the file"),
    (USER, 2, "nothing to change", "--add-config"),
    (("--add-config", TEN_MIB), 2, "no entity", "--user-default"),
    (("--user", "--add-config", TEN_MIB), 2, "--user lacks a name", "--user-default"),
    (("--add-config", TEN_MIB, "--user"), 2, "--user lacks a name", "--user-default"),
    (("--user", "", "--add-config", TEN_MIB), 2, "--user is empty", "--user-default"),
    (("--client", "", "--add-config", TEN_MIB), 2, "--client is empty", "--client-default"),
    (("--ip", "", "--add-config", TEN_MIB), 2, "--ip is empty", "--ip-default"),
    (("--user", "a", "--user", "b", "--add-config", TEN_MIB), 2, "--user is given twice", ""),
    (("--user", "a", "--user-default", "--add-config", TEN_MIB), 2, "named twice", ""),
    (("--entity-type", "users", "--add-config", TEN_MIB), 2, "has no name", "--user-default"),
    (("--entity-name", "a", "--add-config", TEN_MIB), 2, "no --entity-type", "--entity-type users"),
    (("--entity-type", "users", "--entity-name", "", "--add-config", TEN_MIB), 2, "empty", "--entity-default"),
    (("--entity-type", "topics", "--entity-name", "a", "--add-config", TEN_MIB), 2, "topics", "users, clients and ips"),
    (("--entity-type", "users", "--user", "a", "--add-config", TEN_MIB), 2, "exclude each other", "--user alice"),
    (("--user", "a", "--ip", "10.0.0.1", "--add-config", TEN_MIB), 2, "", ""),
    (("--ip", "10.0.0.0/8", "--add-config", "connection_creation_rate=5"), 2, "10.0.0.0/8", ""),
    ((*USER, "--add-config", TEN_MIB, "--allow-invalid"), 2, "zk://", ""),
    ((*USER, "--delete-config", "producer_byte_rate"), 1, "not set on user alice", "nothing is set"),
    ((*USER, "--add-config", TEN_MIB, "--delete-config", "consumer_byte_rate"), 1, "not set", "nothing is set"),
    ((*USER, "--add-config", TEN_MIB, "extra"), 2, "unexpected extra argument", "alter --help"),
    ((*USER, "--add-confg", TEN_MIB), 2, "no such option: --add-confg", "alter --help"),
]


@pytest.mark.parametrize(
    ("options", "code", "message", "hint"), BAD_INPUT, ids=[" ".join(case[0]) for case in BAD_INPUT]
)
def test_bad_input_is_one_line_a_hint_and_nothing_written(
    store: str, options: tuple[str, ...], code: int, message: str, hint: str
) -> None:
    got, out, err = run_cli("alter", "--store", store, *options)
    lines = err.splitlines()
    assert (got, out) == (code, "")
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert len(lines) <= 2
    if hint:
        assert lines[1].startswith("hint: ")
        assert hint in lines[1]
    assert stored(store) == {}


def test_a_key_to_remove_must_be_set_and_nothing_else_is_changed(store: str) -> None:
    run_cli("alter", "--store", store, "--user", "alice", "--add-config", TEN_MIB)
    code, out, err = run_cli(
        "alter", "--store", store, "--user", "alice", "--delete-config", "producer_byte_rate,consumer_byte_rate"
    )
    assert (code, out) == (1, "")
    assert err == (
        "error: not set on user alice, so not removed: consumer_byte_rate\nhint: set there: producer_byte_rate\n"
    )
    assert stored(store) == {ALICE: {"producer_byte_rate": 10485760.0}}


def test_an_unreachable_or_unknown_store_is_told_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "a-folder"
    folder.mkdir()
    code, out, err = run_cli("alter", "--store", f"local:{folder}", "--user", "alice", "--add-config", TEN_MIB)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    code, out, err = run_cli("alter", "--store", "mysql://db", "--user", "alice", "--add-config", TEN_MIB)
    assert (code, out) == (2, "")
    assert err.startswith("error: not a store: 'mysql://db'\nhint: ")


def test_a_static_store_is_read_only(tmp_path: Path) -> None:
    file = tmp_path / "static.properties"
    file.write_text("quota.producer.default=2M\n", encoding="utf-8")
    code, out, err = run_cli("alter", "--store", f"static:{file}", "--client-default", "--add-config", TEN_MIB)
    assert (code, out) == (1, "")
    assert "read-only" in err
