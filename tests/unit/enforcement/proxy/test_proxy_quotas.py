"""The files of quotas and rules: all of them are used, or none."""

import asyncio
from pathlib import Path
from typing import NoReturn, cast

import pytest
from tests.support.daemon.proxy_quotas import proxy_quotas

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.proxy import proxy_quotas as module
from kafka_quotas.enforcement.quotas.store_watcher import StoreState, StoreWatcher
from kafka_quotas.enforcement.telemetry.log import LogEvent


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
