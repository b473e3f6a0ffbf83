"""`alter` through the command line, on the local store."""

import json
from pathlib import Path

import pytest
from tests.support.processes.run_cli import done, refused, run_cli

from kafka_quotas.core.model.entity import EVERYTHING, Entity
from kafka_quotas.stores import open_store
from kafka_quotas.stores.files.journal import Journal


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


def test_sets_quotas_with_units_and_says_whose_where_and_from_what_to_what(store: str) -> None:
    config = "producer_byte_rate=10MiB,consumer_byte_rate=2M"
    out = done("alter", "--store", store, "--user", "alice", "--add-config", config)
    assert out == (
        f"user alice in {store}: producer_byte_rate not set -> 10 MiB/s\n"
        f"user alice in {store}: consumer_byte_rate not set -> 2 MB/s\n"
    )
    assert stored(store) == {ALICE: {"producer_byte_rate": 10485760.0, "consumer_byte_rate": 2_000_000.0}}


@pytest.mark.parametrize(
    ("options", "whom", "entity"),
    [
        (("--user", "a"), "user a", Entity.of(user="a")),
        (("--client", "c"), "client-id c", Entity.of(client_id="c")),
        (("--user", "a", "--client", "c"), "user a, client-id c", Entity.of(user="a", client_id="c")),
        (("--user", "a", "--client-default"), "user a, default client-id", Entity.of(user="a", client_id=None)),
        (("--user-default",), "default user", Entity.of(user=None)),
        (("--user-defaults",), "default user", Entity.of(user=None)),
        (("--client-default",), "default client-id", Entity.of(client_id=None)),
        (
            ("--user-default", "--client-default"),
            "default user, default client-id",
            Entity.of(user=None, client_id=None),
        ),
        (("--entity-type", "users", "--entity-name", "a"), "user a", Entity.of(user="a")),
        (
            ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-name", "c"),
            "default user, client-id c",
            Entity.of(user=None, client_id="c"),
        ),
        (
            ("--entity-type", "users", "--entity-name", "c", "--entity-type", "clients", "--entity-default"),
            "user c, default client-id",
            Entity.of(user="c", client_id=None),
        ),
        (("--user", "CN=a,O=b"), "user 'CN=a,O=b'", Entity.of(user="CN=a,O=b")),
        (("--user=--odd",), "user --odd", Entity.of(user="--odd")),
        (("--user", "<default>"), "user <default>", Entity.of(user="<default>")),
    ],
)
def test_names_entities_in_every_way(store: str, options: tuple[str, ...], whom: str, entity: Entity) -> None:
    code, out, _ = run_cli("alter", "--store", store, *options, "--add-config", TEN_MIB)
    assert (code, out) == (0, f"{whom} in {store}: producer_byte_rate not set -> 10 MiB/s\n")
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
    err = refused("alter", "--store", store, "--user", "alice", "--add-config-file", str(file))
    assert err.startswith("error: producer_byte_rate is named twice\nhint: ")
    assert stored(store) == {}


def test_a_dry_run_checks_says_who_checked_and_writes_nothing(store: str) -> None:
    code, out, err = run_cli("alter", "--store", store, "--user", "alice", "--add-config", TEN_MIB, "--dry-run")
    assert code == 0
    assert out == (
        f"dry run: user alice in {store}: producer_byte_rate not set -> 10 MiB/s\n\n"
        "for whom the effective quota changes, per broker\n"
        "client                             quota       before     after  gets    set on\n"
        "---------------------------------  -------  ---------  --------  ------  ----------\n"
        "user alice, client-id (any other)  produce  unlimited  10 MiB/s  less    user alice\n"
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
        "affected": None,
        "changes": [{"entity": {"user": "alice"}, "key": "producer_byte_rate", "old": 5, "new": 10485760}],
        "findings": [],
    }
    assert err == ""


def test_a_name_cannot_steer_the_terminal(store: str) -> None:
    _, out, err = run_cli("alter", "--store", store, "--user", "\x1b[31mred\a", "--add-config", TEN_MIB, terminal=True)
    assert out == f"user '\\x1b[31mred\\x07' in {store}: producer_byte_rate not set -> 10 MiB/s\n"
    assert "\x1b" not in err


def test_names_the_context_that_chose_the_store(tmp_path: Path, store: str) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "KAFKA_QUOTAS_CONTEXT": "prod"}
    run_cli("context", "set", "prod", "--store", store, environment={"XDG_CONFIG_HOME": str(tmp_path)})
    _, out, _ = run_cli("alter", "--user", "a", "--add-config", TEN_MIB, environment=environment)
    assert out == f"user a in {store} (context prod): producer_byte_rate not set -> 10 MiB/s\n"


def test_an_unchanged_value_is_said_to_be_unchanged_and_leaves_no_journal_entry(tmp_path: Path, store: str) -> None:
    journal = tmp_path / "journal.jsonl"
    one, both = "producer_byte_rate=5MB", "producer_byte_rate=5MB,consumer_byte_rate=2MB"
    for config in (one, one, both):
        _, out, _ = run_cli(
            *("alter", "--store", store, "--user", "a", "--add-config", config),
            environment={"KAFKA_QUOTAS_JOURNAL": str(journal)},
        )
    assert out.splitlines()[0] == f"user a in {store}: producer_byte_rate unchanged, 5 MB/s"
    entries = Journal(journal).read().entries
    assert [[change.key for change in each.changes] for each in entries] == [
        ["producer_byte_rate"],
        ["consumer_byte_rate"],
    ]


def test_a_quota_that_nobody_gets_comes_with_the_way_out(store: str) -> None:
    run_cli("alter", "--store", store, "--user-default", "--add-config", "producer_byte_rate=2MB")
    config = "producer_byte_rate=1MB,consumer_byte_rate=9MB"
    code, out, err = run_cli("alter", "--store", store, "--client", "load test", "--add-config", config, "-o", "json")
    assert code == 0
    assert err == (
        "warning: this producer_byte_rate has no effect: default user (2 MB/s) takes precedence\n"
        "hint: set it with --user-default --client 'load test', which takes precedence over default user; "
        "or remove producer_byte_rate of default user\n"
    )
    assert [each["check"] for each in json.loads(out)["findings"]] == ["shadowed"]
    _, _, err = run_cli(
        "alter", "--store", store, "--user-default", "--client", "load test", "--add-config", "producer_byte_rate=1MB"
    )
    assert err == "", "the way out leads out, and what was shadowed before is no news"


def test_a_default_that_takes_a_quota_away_from_others_says_so(store: str) -> None:
    run_cli("alter", "--store", store, "--client", "app", "--add-config", "producer_byte_rate=1MB")
    _, _, err = run_cli("alter", "--store", store, "--user-default", "--add-config", "producer_byte_rate=2MB")
    assert err.startswith("warning: client-id app: this producer_byte_rate has no effect: default user")


@pytest.mark.parametrize(
    ("options", "config", "warning"),
    [
        (
            ("--entity-type", "users", "--entity-name", "User:a"),
            TEN_MIB,
            "warning: the user 'User:a' begins with 'User:'",
        ),
        (("--user", "<default>"), TEN_MIB, "warning: the user '<default>' is a name that spells the default"),
        (("--client", "a" * 5000), TEN_MIB, "warning: the client-id that begins with 'aaaaaaaaaaaaaaaaaaaa' is 5,000"),
        (("--user", "a"), "producer_byte_rate=5", "warning: producer_byte_rate is 5 B/s, less than one batch"),
        (("--user", "a"), "request_percentage=5000%", "note: request_percentage is 5000, more than all threads"),
    ],
)
def test_the_checks_of_doctor_run_at_the_change(
    store: str, options: tuple[str, ...], config: str, warning: str
) -> None:
    code, _, err = run_cli("alter", "--store", store, *options, "--add-config", config)
    assert code == 0
    assert err.startswith(warning)
    assert err.splitlines()[1].startswith("hint: ")


def test_says_no_such_thing_where_a_variable_chose(store: str) -> None:
    _, _, err = run_cli("alter", "--user", "alice", "--add-config", TEN_MIB, environment={"KAFKA_QUOTAS_STORE": store})
    assert err == ""


USER = ("--user", "alice")
BAD_INPUT = [
    ((*USER, "--add-config", "producer_byte_rate=NaN"), 2, "finite", "unlimited"),
    ((*USER, "--add-config", "producer_byte_rate=0"), 2, "greater than 0", ""),
    ((*USER, "--add-config", "producer_byte_rate=0.5"), 2, "whole number", "whole number"),
    ((*USER, "--add-config", "producer_byte_rate=1e300"), 2, "too large", "unlimited"),
    ((*USER, "--add-config", "producer_byte_rate=99999999999999999999"), 2, "large: 1e+20", "unlimited"),
    ((*USER, "--add-config", "producer_byte_rate=1.5"), 2, "whole number of bytes/s, not 1.5", "round"),
    ((*USER, "--add-config", "producer_byte_rate=1,000"), 2, "not KEY=VALUE: '000'", "separators of thousands"),
    ((*USER, "--add-config", "producer_byte_rate=10Mb"), 2, "bits", "B for bytes"),
    ((*USER, "--add-config", "producer_byte_rate=10mb"), 2, "not a size", "did you mean 10MB?"),
    (
        (*USER, "--add-config", "producer_byte_rate=10KB/s"),
        2,
        "not a size",
        "did you mean 10kB/s? k is 1000, Ki is 1024",
    ),
    ((*USER, "--add-config", "producer_byte_rate=10MBs"), 2, "not a size", "did you mean 10MB/s?"),
    ((*USER, "--add-config", "producer_byte_rate=4mib"), 2, "not a size", "did you mean 4MiB?"),
    ((*USER, "--add-config", TEN_MIB, "--for", "2hours"), 2, "not a length of time", "did you mean 2h?"),
    ((*USER, "--add-config", TEN_MIB, "--for", "90 sec"), 2, "not a length of time", "did you mean 90s?"),
    (("--user", "User:alice", "--add-config", TEN_MIB), 2, "a user is named without 'User:'", "--user alice;"),
    ((*USER, "--add-config", "producer_byte_rate="), 2, "no value", "--delete-config producer_byte_rate"),
    ((*USER, "--add-config", "producer_byte_rate=many"), 2, "not a size", "10MiB"),
    ((*USER, "--add-config", "producer_byte_rate"), 2, "KEY=VALUE", "producer_byte_rate=10MiB"),
    ((*USER, "--add-config", ",producer_byte_rate=1"), 2, "empty part", "variable"),
    ((*USER, "--add-config", ""), 2, "empty part", "variable"),
    ((*USER, "--add-config", "producer_bite_rate=1"), 2, "unknown quota key", "producer_byte_rate"),
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
    ((*USER, "--add-config", TEN_MIB, "--allow-invalid"), 2, "zk://", ""),
    ((*USER, "--delete-config", "producer_byte_rate"), 1, "not set on user alice", "nothing is set"),
    ((*USER, "--add-config", TEN_MIB, "--delete-config", "consumer_byte_rate"), 1, "not set", "nothing is set"),
    ((*USER, "--add-config", TEN_MIB, "extra"), 2, "unexpected extra argument", "alter --help"),
    ((*USER, "--add-confg", TEN_MIB), 2, "no such option: --add-confg", "did you mean --add-config?"),
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
    err = refused(
        "alter",
        "--store",
        store,
        "--user",
        "alice",
        "--delete-config",
        "producer_byte_rate,consumer_byte_rate",
        code=1,
    )
    assert err == (
        "error: not set on user alice, so not removed: consumer_byte_rate\nhint: set there: producer_byte_rate\n"
    )
    assert stored(store) == {ALICE: {"producer_byte_rate": 10485760.0}}


def test_an_unreachable_or_unknown_store_is_told_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "a-folder"
    folder.mkdir()
    err = refused("alter", "--store", f"local:{folder}", "--user", "alice", "--add-config", TEN_MIB, code=1)
    assert err.startswith("error: ")
    err = refused("alter", "--store", "mysql://db", "--user", "alice", "--add-config", TEN_MIB)
    assert err.startswith("error: not a store: 'mysql://db'\nhint: ")
