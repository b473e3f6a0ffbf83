"""`migrate` without servers: what is copied, what is refused, and that nothing failed is called done."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes.run_cli import refused, run_cli

from kafka_quotas.commands.quotas.alter import FIRST_CHUNK
from kafka_quotas.commands.quotas.migrate import MigrationOutcome, migrate
from kafka_quotas.core.errors import InvalidQuotaError, KafkaQuotasError, StoreUnreachableError, UsageError
from kafka_quotas.core.groups.group import Group
from kafka_quotas.core.model.entity import EVERYTHING, Entity, QuotaFilter
from kafka_quotas.stores.address import StoreKind
from kafka_quotas.stores.store import Alteration, AlterationResult, QuotaEntry, Snapshot

ALICE, BOB = Entity.of(user="alice"), Entity.of(user="bob")
RATE, SHARE = "producer_byte_rate", "request_percentage"
Content = dict[Entity, dict[str, float]]


class Memory:
    """A store in memory that refuses values of 0 and below, and can be told to fail."""

    kind = StoreKind.LOCAL

    def __init__(self, name: str, content: Content | None = None) -> None:
        self.url = f"local:/{name}"
        self.content: Content = content or {}
        self.fails: Mapping[Entity, KafkaQuotasError] = {}
        self.lost_after: int | None = None
        self.writes = 0

    def groups(self) -> tuple[Group, ...]:
        return ()

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        assert quota_filter == EVERYTHING
        return [QuotaEntry(entity=entity, quotas=dict(quotas)) for entity, quotas in self.content.items()]

    def alter(self, entries: Sequence[Alteration], *, validate_only: bool = False) -> list[AlterationResult]:
        if not validate_only:
            self.writes += 1
            if self.lost_after is not None and self.writes > self.lost_after:
                raise StoreUnreachableError("gone")
        return [self._result(entry, validate_only=validate_only) for entry in entries]

    def _result(self, entry: Alteration, *, validate_only: bool) -> AlterationResult:
        for key, value in entry.changes.items():
            if value is not None and not value > 0:
                return AlterationResult(entity=entry.entity, error=InvalidQuotaError(f"{key} must be greater than 0"))
        if not validate_only:
            if entry.entity in self.fails:
                return AlterationResult(entity=entry.entity, error=self.fails[entry.entity])
            for key, value in entry.changes.items():
                assert value is not None
                self.content.setdefault(entry.entity, {})[key] = value
        return AlterationResult(entity=entry.entity)

    def watch(self, since: str | None, *, timeout_s: float) -> Snapshot | None:
        raise AssertionError("a migration does not watch")

    def close(self) -> None:
        """Hold nothing."""


def outcomes(result: Any) -> list[tuple[str, str, MigrationOutcome]]:
    return [(str(quota.entity), quota.key, quota.outcome) for quota in result.quotas]


def test_copies_what_is_missing_and_leaves_the_rest() -> None:
    source = Memory("s", {ALICE: {RATE: 1.0, SHARE: 2.0}, BOB: {RATE: 3.0}})
    target = Memory("t", {BOB: {RATE: 3.0, SHARE: 9.0}})
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
    source = Memory("s", {ALICE: {RATE: 0.0, SHARE: -1.0, "consumer_byte_rate": 5.0}})
    target = Memory("t")
    result = migrate(source, target)
    assert not result.complete
    assert target.content == {ALICE: {"consumer_byte_rate": 5.0}}
    assert [(quota.key, quota.outcome, quota.error and quota.error.message) for quota in result.quotas] == [
        (RATE, MigrationOutcome.REFUSED, f"{RATE} must be greater than 0"),
        ("consumer_byte_rate", MigrationOutcome.MIGRATED, None),
        (SHARE, MigrationOutcome.REFUSED, f"{SHARE} must be greater than 0"),
    ]


def test_a_dry_run_tells_the_same_and_writes_nothing() -> None:
    source = Memory("s", {ALICE: {RATE: 0.0, SHARE: 1.0}, BOB: {RATE: 1.0}})
    target = Memory("t")
    told = migrate(source, target, dry_run=True)
    assert (target.content, target.writes, told.dry_run) == ({}, 0, True)
    assert outcomes(told) == outcomes(migrate(source, target))


def test_what_the_target_takes_and_then_fails_to_write_is_no_success() -> None:
    source, target = Memory("s", {ALICE: {RATE: 1.0}, BOB: {RATE: 2.0}}), Memory("t")
    target.fails = {ALICE: KafkaQuotasError("not authorized")}
    result = migrate(source, target)
    assert outcomes(result) == [
        ("user alice", RATE, MigrationOutcome.REFUSED),
        ("user bob", RATE, MigrationOutcome.MIGRATED),
    ]
    assert (result.complete, result.target_after.quotas) == (False, 1)


def test_what_is_different_when_read_again_is_no_success() -> None:
    class Forgetful(Memory):
        def _result(self, entry: Alteration, *, validate_only: bool) -> AlterationResult:
            return AlterationResult(entity=entry.entity)

    result = migrate(Memory("s", {ALICE: {RATE: 1.0}}), Forgetful("t"))
    assert (outcomes(result), result.complete) == ([("user alice", RATE, MigrationOutcome.DIFFERENT)], False)


def test_a_target_lost_half_way_leaves_the_rest_as_failed() -> None:
    source = Memory("s", {Entity.of(user=f"u{number:05}"): {RATE: 1.0} for number in range(FIRST_CHUNK + 5)})
    target = Memory("t")
    target.lost_after = 1
    result = migrate(source, target)
    assert [outcome for _, _, outcome in outcomes(result)] == [MigrationOutcome.MIGRATED] * FIRST_CHUNK + [
        MigrationOutcome.REFUSED
    ] * 5
    target.lost_after = None
    assert migrate(source, target).complete


def test_a_target_lost_at_once_is_an_error() -> None:
    target = Memory("t")
    target.lost_after = 0
    with pytest.raises(StoreUnreachableError):
        migrate(Memory("s", {ALICE: {RATE: 1.0}}), target)


def test_one_store_is_not_copied_into_itself() -> None:
    with pytest.raises(UsageError, match="both sides are the same store"):
        migrate(Memory("s"), Memory("s"))


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
