"""`migrate` without servers: what is copied, what is refused, and that nothing failed is called done."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes.run_cli import refused, run_cli
from tests.support.stores.memory_store import MemoryStore

from kafka_quotas.commands.quotas.alter import FIRST_CHUNK
from kafka_quotas.commands.quotas.migrate import MigrationOutcome, migrate
from kafka_quotas.core.errors import KafkaQuotasError, StoreUnreachableError, UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores.store import Alteration

ALICE, BOB = Entity.of(user="alice"), Entity.of(user="bob")
RATE, SHARE = "producer_byte_rate", "request_percentage"


def outcomes(result: Any) -> list[tuple[str, str, MigrationOutcome]]:
    return [(str(quota.entity), quota.key, quota.outcome) for quota in result.quotas]


def test_copies_what_is_missing_and_leaves_the_rest() -> None:
    source = MemoryStore("s", {ALICE: {RATE: 1.0, SHARE: 2.0}, BOB: {RATE: 3.0}})
    target = MemoryStore("t", {BOB: {RATE: 3.0, SHARE: 9.0}})
    result = migrate(source, target)
    assert result.complete
    assert outcomes(result) == [
        ("user alice", RATE, MigrationOutcome.MIGRATED),
        ("user alice", SHARE, MigrationOutcome.MIGRATED),
        ("user bob", RATE, MigrationOutcome.UNCHANGED),
        ("user bob", SHARE, MigrationOutcome.ONLY_THERE),
    ]
    assert target.content == {ALICE: {RATE: 1.0, SHARE: 2.0}, BOB: {RATE: 3.0, SHARE: 9.0}}
    assert (result.source.quotas, result.target_before.quotas, result.target_after.quotas) == (3, 2, 4)
    assert outcomes(migrate(source, target))[0][2] is MigrationOutcome.UNCHANGED


def test_an_entity_of_which_one_quota_is_refused_gets_the_others() -> None:
    source = MemoryStore("s", {ALICE: {RATE: 0.0, SHARE: -1.0, "consumer_byte_rate": 5.0}})
    target = MemoryStore("t")
    result = migrate(source, target)
    assert not result.complete
    assert target.content == {ALICE: {"consumer_byte_rate": 5.0}}
    assert [(quota.key, quota.outcome, quota.error and quota.error.message) for quota in result.quotas] == [
        (RATE, MigrationOutcome.REFUSED, f"{RATE} must be greater than 0"),
        ("consumer_byte_rate", MigrationOutcome.MIGRATED, None),
        (SHARE, MigrationOutcome.REFUSED, f"{SHARE} must be greater than 0"),
    ]


def test_a_dry_run_tells_the_same_and_writes_nothing() -> None:
    source = MemoryStore("s", {ALICE: {RATE: 0.0, SHARE: 1.0}, BOB: {RATE: 1.0}})
    target = MemoryStore("t")
    told = migrate(source, target, dry_run=True)
    assert (target.content, target.writes, told.dry_run) == ({}, 0, True)
    assert outcomes(told) == outcomes(migrate(source, target))


def test_what_the_target_takes_and_then_fails_to_write_is_no_success() -> None:
    source = MemoryStore("s", {ALICE: {RATE: 1.0}, BOB: {RATE: 2.0}})
    target = MemoryStore("t", fails={ALICE: KafkaQuotasError("not authorized")})
    result = migrate(source, target)
    assert outcomes(result) == [
        ("user alice", RATE, MigrationOutcome.REFUSED),
        ("user bob", RATE, MigrationOutcome.MIGRATED),
    ]
    assert (result.complete, result.target_after.quotas) == (False, 1)


def test_what_is_different_when_read_again_is_no_success() -> None:
    class Forgetful(MemoryStore):
        def _error(self, entry: Alteration, validate_only: bool) -> None:
            return None

    result = migrate(MemoryStore("s", {ALICE: {RATE: 1.0}}), Forgetful("t"))
    assert (outcomes(result), result.complete) == ([("user alice", RATE, MigrationOutcome.DIFFERENT)], False)


def test_a_target_lost_half_way_leaves_the_rest_as_failed() -> None:
    source = MemoryStore("s", {Entity.of(user=f"u{number:05}"): {RATE: 1.0} for number in range(FIRST_CHUNK + 5)})
    target = MemoryStore("t")
    target.writes_left = 1
    result = migrate(source, target)
    assert [outcome for _, _, outcome in outcomes(result)] == [MigrationOutcome.MIGRATED] * FIRST_CHUNK + [
        MigrationOutcome.REFUSED
    ] * 5
    target.writes_left = math.inf
    assert migrate(source, target).complete


def test_a_target_lost_at_once_is_an_error() -> None:
    with pytest.raises(StoreUnreachableError):
        migrate(MemoryStore("s", {ALICE: {RATE: 1.0}}), MemoryStore("t", writes_left=0))


def test_one_store_is_not_copied_into_itself() -> None:
    with pytest.raises(UsageError, match="both sides are the same store"):
        migrate(MemoryStore("s"), MemoryStore("s"))


@pytest.fixture
def static(tmp_path: Path) -> str:
    (tmp_path / "server.properties").write_text('quota.producer.default=1M\nquota.producer.override="a:2M"\n')
    return f"static:{tmp_path}/server.properties"


def test_the_command_copies_and_compares(tmp_path: Path, static: str) -> None:
    target = ("--from", static, "--to", f"local:{tmp_path}/q.db")
    journal = {"KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal")}
    code, out, _ = run_cli("migrate", *target, "--dry-run", environment=journal)
    assert (code, out.splitlines()[-1]) == (0, f"{static} to local:{tmp_path}/q.db: 2 would be migrated.")
    code, out, _ = run_cli("migrate", *target, "--output", "json", environment=journal)
    document = json.loads(out)
    assert (code, document["schema"], document["complete"]) == (0, "kafka-quotas.migration/1", True)
    assert document["from"] == {"store": static, "entities": 2, "quotas": 2}
    assert document["to"]["after"] == {"entities": 2, "quotas": 2}
    assert document["quotas"][0] == {
        "entity": {"client-id": "a"},
        "key": RATE,
        "from": 2000000,
        "to": 2000000,
        "outcome": "migrated",
        "reason": None,
    }
    entries = json.loads(run_cli("revert", "--list", "-o", "json", environment=journal)[1])["entries"]
    assert [(entry["command"], entry["reason"]) for entry in entries] == [("migrate", f"migrate from {static}")]


def test_the_command_fails_where_the_target_refuses(tmp_path: Path, static: str) -> None:
    source = f"local:{tmp_path}/q.db"
    run_cli("alter", "--store", source, "--user", "alice", "--add-config", f"{RATE}=1")
    err = refused("migrate", "--from", source, "--to", static, code=1)
    assert err.startswith("error: static quotas are read-only")


def test_a_context_names_a_side(tmp_path: Path, static: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    run_cli("context", "set", "new", "--store", f"local:{tmp_path}/q.db")
    code, out, _ = run_cli("migrate", "--from", static, "--to", "context:new")
    assert (code, out.splitlines()[-1]) == (0, f"{static} to local:{tmp_path}/q.db: 2 migrated.")


def test_what_static_quotas_mean_and_stored_ones_do_not_is_told(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("quota.producer.default=2M\nquota.producer.override=a:4M\n")
    stores = ("--from", f"static:{tmp_path}/server.properties", "--to", f"local:{tmp_path}/q.db")
    for options in (("--dry-run",), ()):
        code, _, err = run_cli("migrate", *stores, *options)
        assert code == 0
        (warning,) = [line for line in err.splitlines() if line.startswith("warning: ")]
        assert "clients without a client-id have producer_byte_rate by the static default" in warning
    _, out, _ = run_cli("migrate", *stores, "--output", "json")
    assert len(json.loads(out)["warnings"]) == 1
    (tmp_path / "server.properties").write_text("quota.producer.override=a:4M\n")
    assert "warning" not in run_cli("migrate", *stores)[2]
