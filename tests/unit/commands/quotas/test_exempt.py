"""`alter --exempt`: no client of the user is limited any more, by resolution."""

import json
from collections.abc import Mapping
from contextlib import closing
from itertools import combinations
from pathlib import Path

import pytest
from tests.support.core.effective_quotas import effective_quotas
from tests.support.processes.run_cli import run_cli
from tests.support.stores.stored_quotas import new_store

from kafka_quotas.commands.quotas.exempt import UNLIMITED, exempt
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import EVERYTHING
from kafka_quotas.stores.factory import open_store

PRODUCE = "producer_byte_rate"
SVC = Entity.of(user="svc")
OTHERS = (
    Entity.of(user="svc", client_id="app"),
    Entity.of(user="svc", client_id=None),
    SVC,
    Entity.of(user=None, client_id="app"),
    Entity.of(user=None),
    Entity.of(client_id="app"),
    Entity.of(client_id=None),
)


def limits(store: str, client_id: str) -> Mapping[str, float | None]:
    with closing(open_store(store)) as opened:
        entries = [(entry.entity, entry.quotas) for entry in opened.describe(EVERYTHING)]
    return {quota.key.name: quota.limit for quota in effective_quotas(entries, user="svc", client_id=client_id)}


@pytest.mark.parametrize("stored", [pair for count in (0, 1, 2) for pair in combinations(OTHERS, count)])
def test_no_client_of_the_user_is_limited_afterwards(tmp_path: Path, stored: tuple[Entity, ...]) -> None:
    store = new_store(tmp_path, {entity: {PRODUCE: 1000.0, "request_percentage": 5.0} for entity in stored})
    with closing(open_store(store)) as opened:
        result = exempt(opened, user="svc")
        again = exempt(opened, user="svc")
    assert result.changes
    assert again.changes == ()
    for client_id in ("app", "zzz", ""):
        assert limits(store, client_id) == UNLIMITED


def test_other_users_stay_as_they_are(tmp_path: Path) -> None:
    store = new_store(tmp_path, {entity: {PRODUCE: 1000.0} for entity in OTHERS})
    with closing(open_store(store)) as opened:
        exempt(opened, user="svc")
        entries = {entry.entity: entry.quotas for entry in opened.describe(EVERYTHING)}
    for entity in OTHERS[3:]:
        assert entries[entity] == {PRODUCE: 1000.0}
    assert set(entries) == set(OTHERS)


def test_the_command_shows_what_changes_and_what_was_checked(tmp_path: Path) -> None:
    store = new_store(tmp_path, {OTHERS[0]: {PRODUCE: 1000.0}, Entity.of(user=None): {PRODUCE: 1000.0}})
    code, out, err = run_cli("alter", "--store", store, "--user", "svc", "--exempt", "--output", "json")
    document = json.loads(out)
    assert (code, document["schema"], document["user"]) == (0, "kafka-quotas.exempt/1", "svc")
    assert {"entity": {"user": "svc", "client-id": "app"}, "key": PRODUCE, "old": 1000, "new": 2**63 - 1} in document[
        "changes"
    ]
    assert len(document["changes"]) == 5
    assert err == f"note: user svc in {store} is exempt; 3 kinds of its clients resolved: none is limited\n"
    code, out, err = run_cli("alter", "--store", store, "--user", "svc", "--exempt")
    assert (code, out) == (0, "")
    assert err.startswith(f"note: user svc in {store} is exempt already; ")


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    store = new_store(tmp_path, {Entity.of(user=None): {PRODUCE: 1000.0}})
    code, out, err = run_cli("alter", "--store", store, "--user", "svc", "--exempt", "--dry-run")
    assert code == 0
    assert "unlimited (explicit)" in out
    assert err.startswith(f"note: dry run, nothing was written; user svc in {store} would be exempt, ")
    assert limits(store, "app")[PRODUCE] == 1000.0


def test_the_exemption_can_be_undone_from_the_journal(tmp_path: Path) -> None:
    store = new_store(tmp_path, {SVC: {PRODUCE: 1000.0}})
    environment = {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal")}
    code, _, _ = run_cli(
        "alter", "--store", store, "--user", "svc", "--exempt", "--reason", "INC-7", environment=environment
    )
    assert code == 0
    (line,) = (tmp_path / "journal").read_text(encoding="utf-8").splitlines()
    assert "INC-7" in line
    assert line.count("svc") >= 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--user-default"], "--exempt is about one user"),
        (["--user", "svc", "--client", "app"], "--exempt is about one user"),
        (["--client", "app"], "--exempt is about one user"),
        ([], "--exempt is about one user"),
        (["--user", "svc", "--add-config", "producer_byte_rate=1"], "--exempt says itself what changes"),
        (["--user", "svc", "--delete-config", "producer_byte_rate"], "--exempt says itself what changes"),
    ],
)
def test_what_does_not_go_with_it(tmp_path: Path, options: list[str], said: str) -> None:
    code, out, err = run_cli("alter", "--store", f"local:{tmp_path}/q.db", "--exempt", *options)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {said}\n")
