"""`kafka-quotas tree`: every stored quota with its place, and whether anybody gets it."""

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from tests.support.processes.run_cli import done, printed, refused, run_cli
from tests.support.stores.stored_quotas import new_store

from kafka_quotas.cli.main import main
from kafka_quotas.commands.quotas.quota_status import QuotaStatus, StoredQuotaStatus, quota_statuses
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.resolution.effective import EffectiveQuotas
from kafka_quotas.stores.store import QuotaEntry

PRODUCE = "producer_byte_rate"
ALICE, ALICE_APP = Entity.of(user="alice"), Entity.of(user="alice", client_id="app")
ALICE_ANY, ANY_USER = Entity.of(user="alice", client_id=None), Entity.of(user=None)
APP, ANY_CLIENT = Entity.of(client_id="app"), Entity.of(client_id=None)
ANY_PAIR, USERS_APP = Entity.of(user=None, client_id=None), Entity.of(user=None, client_id="app")


def stands(*entities: Entity) -> Mapping[Entity, StoredQuotaStatus]:
    entries = [QuotaEntry(entity=entity, quotas={PRODUCE: 1000.0 + n}) for n, entity in enumerate(entities)]
    return {quota.entity: quota for quota in quota_statuses(entries)}


@pytest.mark.parametrize(
    ("stored", "asked", "status", "before"),
    [
        ((ALICE, ANY_USER), ANY_USER, QuotaStatus.WINS, None),
        ((ALICE, ALICE_APP), ALICE, QuotaStatus.WINS, None),
        ((ALICE, ALICE_ANY), ALICE, QuotaStatus.PARTLY, ALICE_ANY),
        ((ANY_USER, ANY_PAIR), ANY_USER, QuotaStatus.PARTLY, ANY_PAIR),
        ((ANY_USER, APP), APP, QuotaStatus.SHADOWED, ANY_USER),
        ((ANY_USER, ANY_CLIENT), ANY_CLIENT, QuotaStatus.SHADOWED, ANY_USER),
        ((USERS_APP, APP), APP, QuotaStatus.SHADOWED, USERS_APP),
        ((ALICE, APP), APP, QuotaStatus.WINS, None),
        ((ALICE_APP, USERS_APP, ANY_PAIR), ANY_PAIR, QuotaStatus.WINS, None),
    ],
)
def test_a_quota_stands_as_the_others_let_it(
    stored: tuple[Entity, ...], asked: Entity, status: QuotaStatus, before: Entity | None
) -> None:
    quota = stands(*stored)[asked]
    assert (quota.status, quota.shadowed_by) == (status, before)


def test_what_is_called_shadowed_is_won_by_no_client_at_all() -> None:
    """Against the resolution itself: every user and client-id that is stored, any other, and none."""
    entities = [ALICE, ALICE_APP, ALICE_ANY, ANY_USER, APP, ANY_CLIENT, ANY_PAIR, USERS_APP]
    for bits in range(1, 2 ** len(entities)):
        stored = [entity for n, entity in enumerate(entities) if bits >> n & 1]
        resolver = EffectiveQuotas([(entity, {PRODUCE: 1.0}) for entity in stored])
        winners = {
            quota.entity
            for user in ("alice", "zoe")
            for client_id in ("app", "other", "")
            for quota in resolver.for_client(user, client_id)
        }
        for entity, quota in stands(*stored).items():
            assert (quota.status is not QuotaStatus.SHADOWED) == (entity in winners), (stored, entity)


def test_a_key_of_another_kind_of_entity_is_ignored() -> None:
    (quota,) = quota_statuses([QuotaEntry(entity=ALICE, quotas={"connection_creation_rate": 5.0})])
    assert (quota.status, quota.level) == (QuotaStatus.IGNORED, None)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return new_store(
        tmp_path,
        {
            ALICE: {PRODUCE: 10e6, "request_percentage": 50.0},
            ALICE_APP: {PRODUCE: 2e6},
            Entity.of(user="bob", client_id="tool"): {PRODUCE: 3e6},
            ANY_USER: {PRODUCE: 1e6},
            APP: {PRODUCE: 4e6},
            Entity.of(ip=None): {"connection_creation_rate": 5.0},
        },
    )


def test_draws_one_tree_per_key(store: str) -> None:
    expected = (
        "producer_byte_rate\n"
        "├── user alice: 10 MB/s (level 3, wins)\n"
        "│   └── client-id app: 2 MB/s (level 1, wins)\n"
        "├── user bob\n"
        "│   └── client-id tool: 3 MB/s (level 1, wins)\n"
        "├── default user: 1 MB/s (level 6, wins)\n"
        "└── client-id app: 4 MB/s (level 7, shadowed by default user)\n"
        "\n"
        "request_percentage\n"
        "└── user alice: 50% (level 3, wins)\n"
        "\n"
        "connection_creation_rate\n"
        "└── default ip: 5/s (level ip-default, wins)\n"
    )
    assert run_cli("tree", "--store", store) == (0, expected, "")


def test_draws_with_ascii_where_the_encoding_has_no_more(store: str) -> None:
    raw = io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(raw, encoding="ascii", write_through=True)):
        assert main(["tree", "--store", store, "--key", PRODUCE]) == 0
        assert raw.getvalue().decode("ascii").splitlines()[2] == "|   `-- client-id app: 2 MB/s (level 1, wins)"


def test_of_one_client_only_what_fits_is_drawn(store: str) -> None:
    out = done("tree", "--store", store, "--user", "alice", "--client", "app", "--key", PRODUCE)
    assert out == (
        "producer_byte_rate\n"
        "├── user alice: 10 MB/s (level 3, shadowed by user alice, client-id app)\n"
        "│   └── client-id app: 2 MB/s (level 1, wins)\n"
        "├── default user: 1 MB/s (level 6, shadowed by user alice, client-id app)\n"
        "└── client-id app: 4 MB/s (level 7, shadowed by user alice, client-id app)\n"
    )


def test_a_user_alone_is_asked_about_with_any_other_client_id(store: str) -> None:
    code, out, _ = run_cli("tree", "--store", store, "--user", "alice", "--key", PRODUCE)
    assert (code, out.splitlines()[1]) == (0, "├── user alice: 10 MB/s (level 3, wins)")
    assert "client-id" not in out


def test_json_lists_the_quotas_by_key(store: str) -> None:
    code, out, _ = run_cli("tree", "--store", store, "--output", "json")
    document = json.loads(out)
    assert (code, document["schema"], document["store"]) == (0, "kafka-quotas.tree/1", store)
    assert document["quotas"][4] == {
        "key": PRODUCE,
        "level": 7,
        "entity": {"client-id": "app"},
        "value": 4000000,
        "status": "shadowed",
        "shadowed_by": {"user": None},
    }


def test_markdown_has_a_row_per_quota(store: str) -> None:
    assert len(run_cli("tree", "--store", store, "-o", "markdown")[1].splitlines()) == 9


def test_a_static_file_has_levels_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("quota.producer.default=1000000\nquota.producer.override=app:2000000\n")
    out = printed("tree", "--store", f"static:{path}")
    assert "client-id app: 2 MB/s (level 9, wins)" in out
    assert "default client-id: 1 MB/s (level 10, wins)" in out


def test_an_empty_store_draws_nothing(tmp_path: Path) -> None:
    code, out, err = run_cli("tree", "--store", new_store(tmp_path, {}))
    assert (code, out) == (0, "")
    assert err.startswith("note: no quota is stored in local:")


def test_an_unknown_key_is_refused(store: str) -> None:
    err = refused("tree", "--store", store, "--key", "produce")
    assert err.startswith("error: unknown quota key: 'produce'\n")


POLICY = """
[[group]]
name = "payments"
producer_byte_rate = "50MB"
members = [{ user = "ops" }]

[[group]]
name = "payments/checkout"
members = [{ client_id_prefix = "checkout-" }, { user = "alice" }]
guaranteed = { producer_byte_rate = "20MB" }

[[group]]
name = "vpn"
members = [{ address = "10.8.0.0/16" }]
connection_creation_rate = 20
"""


@pytest.fixture
def policy(tmp_path: Path) -> str:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY, encoding="utf-8")
    return str(file)


def test_groups_are_drawn_below_with_members_in_the_order_in_which_they_are_tried(store: str, policy: str) -> None:
    out = done("tree", "--store", store, "--policy", policy)
    assert out.partition("\n\ngroups\n")[2].splitlines() == [
        "├── payments: producer_byte_rate 50 MB/s",
        "│   ├── payments/checkout: guaranteed producer_byte_rate 20 MB/s",
        "│   │   ├── client_id_prefix checkout-",
        "│   │   └── user alice",
        "│   └── user ops",
        "└── vpn: connection_creation_rate 20/s",
        "    └── address 10.8.0.0/16",
    ]


def test_groups_are_rows_of_every_form_and_only_those_around_a_client(store: str, policy: str) -> None:
    found = json.loads(done("tree", "--store", store, "--policy", policy, "--client", "checkout-7", "-o", "json"))
    assert [each["name"] for each in found["groups"]] == ["payments/checkout", "payments"]
    assert found["groups"][0]["members"] == ["client_id_prefix checkout-", "user alice"]
    held = [each for each in found["quotas"] if each["status"] == "holds"]
    assert [(each["level"], each["entity"], each["value"]) for each in held] == [
        ("guaranteed", {"group": "payments/checkout"}, 20000000),
        ("group", {"group": "payments"}, 50000000),
    ]
    rows = run_cli("tree", "--store", store, "--policy", policy, "-o", "csv")[1].splitlines()
    assert "connection_creation_rate,group,,,,,,vpn,,20,holds,,,,,,," in rows
    err = run_cli("tree", "--store", store, "--policy", policy, "--user", "mallory")[2]
    assert "note: this client is in no group" in err


def test_groups_that_do_not_fit_together_are_refused(store: str, policy: str) -> None:
    Path(policy).write_text(POLICY.replace('"20MB" }', '"20MB", consumer_byte_rate = "1MB" }'), encoding="utf-8")
    err = refused("tree", "--store", store, "--policy", policy)
    assert "group payments/checkout: no group around it has a limit of consumer_byte_rate" in err
