"""The files of quotas and rules: all of them are used, or none."""

import asyncio
from pathlib import Path
from typing import NoReturn, cast

import pytest
from tests.support.daemon.proxy_quotas import proxy_quotas

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.groups.group import Group, GroupMember
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.enforcement.proxy import proxy_quotas as module
from kafka_quotas.enforcement.quotas.store_watcher import ChangeTracker, StoreState, StoreWatcher
from kafka_quotas.enforcement.telemetry.log import LogEvent
from kafka_quotas.stores.store import QuotaEntry, Snapshot


class Idle:
    """A watcher of a store that does not change."""

    state = StoreState(url="local:x", revision="", confirmed_ms=0)

    async def reread(self) -> None:
        return


def test_no_file_is_used_if_one_of_them_can_not_be(tmp_path: Path) -> None:
    static, policy = tmp_path / "static.properties", tmp_path / "policy.toml"
    said: list[LogEvent] = []
    quotas = proxy_quotas(said=said, static_quotas=static, policy_file=policy)
    watcher = cast("StoreWatcher", Idle())
    static.write_text("quota.producer.default=1000\n")
    policy.write_text("what is this")
    with pytest.raises(KafkaQuotasError, match="policy"):
        asyncio.run(quotas.reload(watcher, "test"))
    assert quotas.registry.limit_count == 0
    assert [notice.event for notice in said][-1] == "quotas can't be read again; the earlier ones stay in force"
    policy.write_text('[[entity]]\nuser = "alice"\nrequest_rate = 5\n')
    found = asyncio.run(quotas.reload(watcher, "test"))
    assert (found.files, found.changed, found.limits) == ((str(static), str(policy)), 2, 2)


def test_a_defect_while_files_are_read_again_is_logged_and_uses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> NoReturn:
        raise AttributeError(f"a defect with {path.name}")

    static, policy = tmp_path / "static.properties", tmp_path / "policy.toml"
    static.write_text("quota.producer.default=1000\n")
    said: list[LogEvent] = []
    quotas = proxy_quotas(said=said, static_quotas=static, policy_file=policy)
    monkeypatch.setattr(module, "read_policy_file", broken)
    with pytest.raises(AttributeError, match=r"a defect with policy\.toml"):
        asyncio.run(quotas.reload(cast("StoreWatcher", Idle()), "test"))
    assert quotas.registry.limit_count == 0
    assert said[-1].event == "quotas can't be read again; the earlier ones stay in force"
    assert "AttributeError: a defect with policy.toml" in str(said[-1].fields["error"])


ALICE = Entity.of(user="alice")
WEB = Group(name="web", members=(GroupMember(user="web"),), producer_byte_rate=5.0)


def test_groups_of_the_store_are_in_force_beside_those_of_the_policy_file_which_come_first(tmp_path: Path) -> None:
    policy, tracker, said = tmp_path / "policy.toml", ChangeTracker(), list[LogEvent]()
    policy.write_text('[[group]]\nname = "ops"\nmembers = [{ user = "ops" }]\n')
    quotas = proxy_quotas(said=said, policy_file=policy)
    quotas.use_files()

    def apply(revision: str, rate: float, *groups: Group) -> None:
        entries = (QuotaEntry(ALICE, {"producer_byte_rate": rate}),)
        quotas.apply(tracker.changed(Snapshot(revision=revision, entries=entries, groups=groups)), "local:x")

    def group_of(user: str) -> tuple[str | None, ...]:
        return quotas.registry.groups.group_of(user, ""), quotas.connections.groups.group_of(user, "")

    apply("1", 1.0, WEB, Group(name="late", members=(GroupMember(user="ops"),)))
    assert (group_of("web"), group_of("ops")) == (("web", "web"), ("ops", "ops"))
    assert (said[-1].fields["changed"], said[-1].fields["limits"]) == (2, 2)
    apply("2", 1.0, WEB)
    assert quotas.registry.broker(1).client("web", "").produce.bound == 5.0

    with pytest.raises(UsageError, match="groups of the store don't fit the others: group ops: it is declared twice"):
        apply("3", 7.0, WEB, Group(name="ops"))
    assert quotas.registry.entries() == [QuotaEntry(ALICE, {"producer_byte_rate": 1.0})]
    assert group_of("web") == ("web", "web")
    apply("4", 7.0)
    assert quotas.registry.entries() == [QuotaEntry(ALICE, {"producer_byte_rate": 7.0})]
    assert group_of("web") == (None, None)


def test_a_reload_of_groups_that_do_not_fit_those_of_the_store_changes_nothing(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[entity]]\nuser = "alice"\nrequest_rate = 5\n')
    quotas = proxy_quotas(policy_file=policy)
    quotas.use_files()
    quotas.apply(ChangeTracker().changed(Snapshot(revision="1", entries=(), groups=(WEB,))), "local:x")
    policy.write_text('[[group]]\nname = "web"\n')
    with pytest.raises(KafkaQuotasError, match="groups of the policy file don't fit the others"):
        asyncio.run(quotas.reload(cast("StoreWatcher", Idle()), "test"))
    assert quotas.registry.limit_count == 2
    assert quotas.registry.groups.tree.groups == (WEB,)
    policy.write_text('[[group]]\nname = "other"\n')
    asyncio.run(quotas.reload(cast("StoreWatcher", Idle()), "test"))
    assert [group.name for group in quotas.registry.groups.tree.groups] == ["other", "web"]
