"""`describe` through the command line: stored quotas, and those that really apply."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes.run_cli import printed, refused, run_cli
from tests.support.stores.stored_quotas import new_store

from kafka_quotas.core.model.entity import Entity

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
    return new_store(tmp_path_factory.mktemp("describe"), QUOTAS)


def entities(store: str, *options: str) -> list[Mapping[str, str | None]]:
    out = printed("describe", "--store", store, "--output", "json", *options)
    return [entry["entity"] for entry in json.loads(out)["entries"]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ("--user", "alice"),
            [{"user": "alice"}, {"user": "alice", "client-id": "app"}, {"user": "alice", "client-id": None}],
        ),
        (("--user", "alice", "--client", "app"), [{"user": "alice", "client-id": "app"}]),
        (("--user", "alice", "--client-default"), [{"user": "alice", "client-id": None}]),
        (("--user-default",), [{"user": None}]),
        (("--entity-type", "ips"), [{"ip": "10.0.0.1"}]),
        (("--ip", "10.0.0.1"), [{"ip": "10.0.0.1"}]),
        (("--ip-default",), []),
        (("--entity-type", "users"), [{"user": "alice"}, *PAIRS, {"user": None}]),
        (
            ("--entity-type", "users", "--entity-type", "clients", "--entity-name", "alice"),
            PAIRS,
        ),
    ],
)
def test_filters(store: str, options: tuple[str, ...], expected: list[Mapping[str, str | None]]) -> None:
    assert entities(store, *options) == expected


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


def test_the_largest_value_is_named_unlimited(store: str) -> None:
    _, out, _ = run_cli("describe", "--store", store, "--user", "alice")
    assert "9223372036854775807  unlimited (explicit)" in out


def test_a_terminal_of_80_columns_holds_the_table(store: str) -> None:
    _, out, _ = run_cli("describe", "--store", store, terminal=True, environment={"TERM": "dumb"})
    assert max(len(line) for line in out.splitlines()) <= 80
    assert all(key in out for quotas in QUOTAS.values() for key in quotas)


def test_nothing_found_is_no_failure(store: str) -> None:
    code, out, err = run_cli("describe", "--store", store, "--user", "nobody", "--output", "csv")
    assert (code, out) == (0, "user,client_id,ip,topic,broker,group,defaults,key,value\n")
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


MIB = 1048576.0


@pytest.fixture
def wide(tmp_path: Path) -> str:
    return new_store(
        tmp_path,
        {
            Entity.of(user="alice"): {"producer_byte_rate": 10 * MIB, "consumer_byte_rate": 20 * MIB},
            Entity.of(user="alice", client_id="app"): {"producer_byte_rate": 2 * MIB},
            Entity.of(user=None, client_id="batch"): {"request_percentage": 50.0},
            Entity.of(user="bob", client_id="tool"): {"producer_byte_rate": 3 * MIB},
            Entity.of(user=None): {"producer_byte_rate": MIB},
            Entity.of(ip=None): {"connection_creation_rate": 5.0},
        },
    )


def answer(wide: str, *options: str) -> Any:
    out = printed("describe", "--effective", "--store", wide, "--output", "json", *options)
    return json.loads(out)


def quota(client: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    (found,) = (each for each in client["quotas"] if each["key"] == key)
    return found


def test_tells_limit_winner_losers_and_bucket(wide: str) -> None:
    (client,) = answer(wide, "--user", "alice", "--client", "app")["clients"]
    produce = quota(client, "producer_byte_rate")
    assert produce["limit"] == 2 * MIB
    assert produce["level"] == 1
    assert produce["entity"] == {"user": "alice", "client-id": "app"}
    assert produce["bucket"] == ["alice", "app"]
    assert produce["scope"] == "per broker"
    assert produce["overridden"] == [
        {"level": 3, "entity": {"user": "alice"}, "limit": 10 * MIB},
        {"level": 6, "entity": {"user": None}, "limit": MIB},
    ]
    assert quota(client, "consumer_byte_rate")["level"] == 3
    assert quota(client, "controller_mutation_rate")["limit"] is None
    assert quota(client, "controller_mutation_rate")["warnings"] == ["no quota matches: unlimited"]


def test_the_envelope_is_a_contract(wide: str) -> None:
    document = answer(wide, "--user", "alice", "--client", "app", "--ip", "10.1.2.3")
    assert list(document) == ["schema", "store", "cluster", "warnings", "notes", "clients"]
    assert document["schema"] == "kafka-quotas.effective/1"
    assert document["store"] == wide
    (client,) = document["clients"]
    assert client["client"] == {"user": "alice", "client_id": "app", "ip": "10.1.2.3", "any_other": []}
    names = ["key", "limit", "unit", "scope", "level", "entity", "bucket", "shared_with", "overridden"]
    names += ["cluster_total", "topic_total", "warnings", "usage"]
    assert [list(each) for each in client["quotas"]] == [names] * 5
    assert quota(client, "connection_creation_rate")["level"] == "ip-default"


def test_a_user_alone_gets_one_row_per_stored_client_id_then_any_other_then_none(wide: str) -> None:
    clients = answer(wide, "--user", "alice")["clients"]
    assert [client["client"] for client in clients] == [
        {"user": "alice", "client_id": "app", "ip": None, "any_other": []},
        {"user": "alice", "client_id": "batch", "ip": None, "any_other": []},
        {"user": "alice", "client_id": None, "ip": None, "any_other": ["client_id"]},
        {"user": "alice", "client_id": "", "ip": None, "any_other": []},
    ]
    assert [quota(client, "producer_byte_rate")["level"] for client in clients] == [1, 3, 3, 3]
    assert [quota(client, "request_percentage")["limit"] for client in clients] == [None, 50, None, None]


def test_any_other_is_never_a_stored_name(tmp_path: Path) -> None:
    wide = new_store(tmp_path, {Entity.of(user="alice", client_id="(any other)"): {"producer_byte_rate": MIB}})
    clients = answer(wide, "--user", "alice")["clients"]
    assert [quota(client, "producer_byte_rate")["limit"] for client in clients] == [MIB, None, None]


def test_an_empty_client_id_escapes_client_defaults(tmp_path: Path) -> None:
    wide = new_store(tmp_path, {Entity.of(client_id=None): {"producer_byte_rate": MIB}})
    (client,) = answer(wide, "--user", "alice", "--no-client-id")["clients"]
    produce = quota(client, "producer_byte_rate")
    assert produce["limit"] is None
    assert any("never limited by a client default" in warning for warning in produce["warnings"])
    _, out, _ = run_cli("describe", "--effective", "--store", wide, "--no-client-id")
    assert "never limited by a client default" in out


def test_arithmetic_of_a_cluster(wide: str) -> None:
    asked = ("--user", "alice", "--client", "app", "--brokers", "6")
    document = answer(wide, *asked)
    (client,) = document["clients"]
    assert document["cluster"] == {"brokers": 6, "topic": None, "leading_brokers": None}
    assert quota(client, "producer_byte_rate")["cluster_total"] == 12 * MIB
    assert quota(client, "request_percentage")["cluster_total"] is None
    _, out, _ = run_cli("describe", "--effective", "--store", wide, *asked)
    assert "x 6 brokers = up to 12 MiB/s" in out


def test_the_table_shows_winner_loser_and_sharers(wide: str) -> None:
    code, out, err = run_cli("describe", "--effective", "--store", wide, "--user", "alice", "--client", "app")
    assert code == 0
    assert "overrides level 3, user alice: 10 MiB/s" in out
    assert "per broker; bucket used by only user alice with client-id app" in out
    assert "on the active controller" not in out
    assert "freshly started broker" in err


def test_without_a_user_the_answer_is_for_anonymous(wide: str) -> None:
    _, _, err = run_cli("describe", "--effective", "--store", wide, "--client", "app")
    assert "ANONYMOUS" in err


def test_a_listing_says_that_limits_hold_per_broker(wide: str) -> None:
    code, out, err = run_cli("describe", "--effective", "--store", wide, "--user", "alice")
    assert (code, out.splitlines()[2].split()[:2]) == (0, ["user", "alice,"])
    assert "note: limits hold per broker, controller_mutation_rate on the active controller;" in err


def test_names_can_not_steer_a_terminal(tmp_path: Path) -> None:
    name = "a\nb\x1b[31m"
    wide = new_store(tmp_path, {Entity.of(user=name): {"producer_byte_rate": MIB}})
    out = printed("describe", "--effective", "--store", wide, "--user", name, "--client", "app")
    assert "What applies to user 'a\\nb\\x1b[31m', client-id app" in out
    assert "bucket used by all client-ids of user 'a\\nb\\x1b[31m'" in out
    assert out.replace("\n", "").isprintable()


def test_an_empty_client_id_is_asked_for_by_its_flag(wide: str) -> None:
    err = refused("describe", "--effective", "--store", wide, "--user", "alice", "--client", "")
    told, hint = err.splitlines()
    assert told == "error: --client is empty"
    assert hint.endswith("--no-client-id asks for the empty client-id")


def test_host_names_are_not_resolved_and_that_is_said(tmp_path: Path) -> None:
    wide = new_store(tmp_path, {Entity.of(ip="localhost"): {"connection_creation_rate": 5.0}})
    (warning,) = answer(wide, "--ip", "127.0.0.1")["warnings"]
    assert warning.startswith("quotas are stored for host names (localhost):")
    (warning,) = answer(wide, "--ip", "elsewhere")["warnings"]
    assert warning.startswith("elsewhere is not an address:")
    assert answer(wide, "--user", "alice")["warnings"] == []


def test_all_lists_what_the_store_tells_of(wide: str) -> None:
    clients = [client["client"] for client in answer(wide)["clients"]]
    assert {"user": "alice", "client_id": "app", "ip": None, "any_other": []} in clients
    assert {"user": "bob", "client_id": "tool", "ip": None, "any_other": []} in clients
    assert {"user": None, "client_id": "batch", "ip": None, "any_other": ["user"]} in clients
    assert {"user": None, "client_id": None, "ip": None, "any_other": ["user", "client_id"]} in clients
    assert {"user": None, "client_id": None, "ip": None, "any_other": ["ip"]} in clients
    assert len(clients) == 6
    code, out, _ = run_cli("describe", "--effective", "--store", wide, "--output", "csv")
    entity = ",".join(f"entity_{name}" for name in ("user", "client_id", "ip", "topic", "broker", "group", "defaults"))
    header = (
        f"user,client_id,ip,any_other,group,key,limit,unit,scope,level,{entity},shared_with,cluster_total,topic_total"
    )
    assert (code, out.splitlines()[0]) == (0, header)


@pytest.mark.parametrize("header", ["user,client-id,ip", "user,client_id,ip"])
def test_clients_come_from_a_file(wide: str, tmp_path: Path, header: str) -> None:
    file = tmp_path / "clients.csv"
    file.write_text(f'{header}\nalice,app,\n"CN=x,O=y",,\n,,10.0.0.9\nalice,app,\n', encoding="utf-8")
    clients = [client["client"] for client in answer(wide, "--clients", str(file))["clients"]]
    assert clients == [
        {"user": "alice", "client_id": "app", "ip": None, "any_other": []},
        {"user": "CN=x,O=y", "client_id": "", "ip": None, "any_other": []},
        {"user": None, "client_id": None, "ip": "10.0.0.9", "any_other": []},
    ]


@pytest.mark.parametrize("text", ["", "user,client-id\n", "name\nalice\n", "user,client-id\nalice,app,extra\n"])
def test_a_file_that_names_nobody_is_refused(wide: str, tmp_path: Path, text: str) -> None:
    file = tmp_path / "clients.csv"
    file.write_text(text, encoding="utf-8")
    err = refused("describe", "--effective", "--store", wide, "--clients", str(file))
    assert str(file) in err.splitlines()[0]
    assert "header" in err.splitlines()[1]


def test_static_quotas_are_levels_9_and_10(tmp_path: Path) -> None:
    file = tmp_path / "static.properties"
    file.write_text('quota.producer.default=2M\nquota.producer.override="app:4M"\n', encoding="utf-8")
    clients = answer(f"static:{file}", "--user", "alice")["clients"]
    assert [quota(client, "producer_byte_rate")["level"] for client in clients] == [9, 10, 10]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--user", ""), "--user is empty"),
        (("--user", "a", "--ip", "10.0.0.1"), "IP"),
        (("--user", "a", "--user-default"), "named twice"),
        (("--brokers", "3"), "--brokers: only with --effective"),
        (("--no-client-id", "--brokers", "3"), "--no-client-id, --brokers: only with --effective"),
        (("--output", "xml"), "'xml' is not one of table, json, yaml, csv, markdown"),
        (("--effective", "--user-default"), "no default user"),
        (("--effective", "--user", "a", "--client", "b", "--no-client-id"), "exclude each other"),
        (("--effective", "--clients", "clients.csv", "--user", "a"), "already names the clients"),
        (("--effective", "--user", "a", "--brokers", "0"), "at least 1"),
        (("--effective", "--user", "a", "--topic", "t"), "--topic needs a Kafka store"),
        (("--effective", "--clients", "/nonexistent"), "cannot read /nonexistent"),
    ],
)
def test_refusals(wide: str, options: tuple[str, ...], message: str) -> None:
    err = refused("describe", "--store", wide, *options)
    assert message in err.splitlines()[0]


GROUPS = """
[[group]]
name = "payments"
producer_byte_rate = "50MB"

[[group]]
name = "payments/checkout"
members = [{ user = "alice" }, { user = "carla", client_id = "till" }, { client_id_prefix = "checkout-" }]
guaranteed = { producer_byte_rate = "20MB" }

[[group]]
name = "office"
members = [{ address = "10.8.0.0/16" }]
connection_creation_rate = 20
"""


@pytest.fixture
def groups(tmp_path: Path) -> str:
    file = tmp_path / "groups.toml"
    file.write_text(GROUPS, encoding="utf-8")
    return str(file)


def test_the_groups_of_a_client_are_rows_behind_its_own_quota(wide: str, groups: str) -> None:
    (client,) = answer(wide, "--user", "zoe", "--client", "checkout-7", "--policy", groups)["clients"]
    assert client["group"] == "payments/checkout"
    rows = [
        (row["level"], row["entity"], row["limit"]) for row in client["quotas"] if row["key"] == "producer_byte_rate"
    ]
    assert rows[1:] == [
        ("guaranteed", {"group": "payments/checkout"}, 20000000),
        ("group", {"group": "payments"}, 50000000),
    ]
    _, out, err = run_cli("describe", "--effective", "--store", wide, "--user", "zoe", "--client", "x")
    assert "group" not in out.partition("\n")[0]
    options = ("--user", "zoe", "--client", "x", "--policy", groups)
    _, out, err = run_cli("describe", "--effective", "--store", wide, *options)
    assert out.startswith("What applies to user zoe, client-id x, in no group\n")
    assert "note: some groups go by listener or address" in err


def test_clients_that_groups_name_are_listed_and_those_of_prefixes_are_said_not_to_be(wide: str, groups: str) -> None:
    found = answer(wide, "--policy", groups)
    named = {(each["client"]["user"], each["client"]["client_id"]): each["group"] for each in found["clients"]}
    assert named["carla", "till"] == "payments/checkout"
    assert any("by a prefix or pattern are not listed" in note for note in found["notes"])
    (client,) = answer(wide, "--ip", "10.8.1.1", "--policy", groups)["clients"]
    assert (client["group"], client["quotas"][-1]["entity"]) == ("office", {"group": "office"})


def test_a_policy_file_goes_with_effective_and_has_to_be_readable(wide: str, groups: str) -> None:
    assert "--policy: only with --effective" in run_cli("describe", "--store", wide, "--policy", groups)[2]
    Path(groups).write_text('[[group]]\nname = "a"\nmembers = [{ user = "" }]\n', encoding="utf-8")
    code, _, err = run_cli("describe", "--effective", "--store", wide, "--policy", groups)
    assert (code, "groups.toml:3: group.1.members.1.user: it is empty" in err) == (2, True)
