"""Many limits and many clients: what a change costs in lookups, what is kept of whom, and what is reported of all."""

import asyncio
import gc
import json
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.core.virtual_clock import VirtualClock
from tests.support.daemon.proxy_quotas import proxy_quotas
from tests.support.daemon.whole_run import run_whole
from tests.support.frames.enforcement import Pair, produce, produce_response

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.bucket_pool import BucketPool
from kafka_quotas.core.quotas.quota_manager import Limiter, QuotaType
from kafka_quotas.core.resolution.quota_resolver import AppliedQuota, Bucket, QuotaResolver
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.client_policy import PolicyTable
from kafka_quotas.enforcement.config.settings import MetricsChoice
from kafka_quotas.enforcement.monitoring.endpoints import families
from kafka_quotas.enforcement.monitoring.status_reporter import Reporter
from kafka_quotas.enforcement.proxy.proxy_server import ProxyServer
from kafka_quotas.enforcement.quotas.broker_quotas import MAX_CLIENT_NAME, ClientLimits
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.enforcement.quotas.store_watcher import StoreState
from kafka_quotas.enforcement.session.in_flight import ProduceTemplate
from kafka_quotas.enforcement.sharing import state as state_module
from kafka_quotas.enforcement.sharing.state import MeasuredState, StateSnapshotter, read_state, saved_state
from kafka_quotas.enforcement.telemetry import status as status_module
from kafka_quotas.enforcement.telemetry import throttle_stats as ledger_module
from kafka_quotas.enforcement.telemetry.status import DaemonStatus, run_sliced
from kafka_quotas.stores.store import QuotaEntry

NOW_MS = 1_700_000_000_000
WINDOW = QuotaWindow(samples=3)
USERS = 200
HERE = Address(host="127.0.0.1", port=1)


def entry(entity: Entity, limit: float = 1000.0) -> QuotaEntry:
    return QuotaEntry(entity=entity, quotas={"producer_byte_rate": limit, "consumer_byte_rate": limit})


class Counted:
    """How often anybody's limit was looked up, and how often one was set."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.lookups = self.updates = 0
        match, update = QuotaResolver.match, QuotaResolver.update

        def counted_match(resolver: QuotaResolver, bucket: Bucket) -> AppliedQuota | None:
            self.lookups += 1
            return match(resolver, bucket)

        def counted_update(resolver: QuotaResolver, entity: Entity, limit: float | None) -> None:
            self.updates += 1
            update(resolver, entity, limit)

        patch.setattr(QuotaResolver, "match", counted_match)
        patch.setattr(QuotaResolver, "update", counted_update)


def test_limits_are_set_once_for_all_brokers_and_a_change_costs_whom_it_concerns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(monkeypatch)
    policy = QuotaRegistry(WINDOW)
    policy.apply([entry(Entity.of(user=f"user-{number}")) for number in range(USERS)])
    assert counted.updates == 2 * USERS
    clients = [policy.broker(node).client(f"user-{number}", "app") for node in (1, 2) for number in range(USERS)]
    for client in clients:
        client.produce.record(1, NOW_MS)
    assert counted.updates == 2 * USERS
    counted.lookups = 0
    assert policy.alter({Entity.of(user="user-7"): {QuotaType.PRODUCE: 5.0, QuotaType.FETCH: 1000.0}}) == 1
    for client in clients:
        client.produce.record(1, NOW_MS)
    assert counted.updates == 2 * USERS + 1
    assert counted.lookups <= 2 * 2  # on each of two brokers the match and the bound of its bucket
    assert [client.produce.bound for client in clients[7::USERS]] == [5.0, 5.0]


def test_a_changed_byte_rate_makes_no_other_handles() -> None:
    policy = QuotaRegistry(WINDOW)
    policy.apply([entry(Entity.of(user="alice"))])
    quotas = policy.broker(1)
    version, client = quotas.version, quotas.client("alice", "app")
    policy.apply([entry(Entity.of(user="alice"), 5.0), entry(Entity.of(user="bob"))])
    assert (quotas.version, quotas.client("alice", "app")) == (version, client)
    policy.alter({Entity.of(user="alice"): {QuotaType.REQUEST: 1.0}})
    assert quotas.version != version
    assert quotas.client("alice", "app").counts_requests


def test_terms_of_many_entities_are_not_gone_through_for_each_client() -> None:
    class Watched(dict[Entity, dict[str, object]]):
        walks = 0

        def items(self) -> Any:
            Watched.walks += 1
            return super().items()

    policies = PolicyTable(
        entities=Watched({Entity.of(user=f"user-{number}"): {"exempt": True} for number in range(9)})
    )
    walks = Watched.walks
    assert all(policies.policy_of(f"user-{number}", "app").exempt for number in range(9))
    assert Watched.walks == walks


def alive(kind: type) -> int:
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())


def test_where_no_quota_is_in_force_nothing_is_kept_of_any_client() -> None:
    policy = QuotaRegistry(WINDOW)
    before = (alive(ClientLimits), alive(Limiter))
    for number in range(500):
        client = policy.broker(1).client("u", f"client-{number}")
        assert client.produce.record(10, NOW_MS) == client.fetch.record(10, NOW_MS) == 0
        client.request_time.record_without_throttle(1, NOW_MS)
        del client
    assert (alive(ClientLimits), alive(Limiter)) == before
    assert len(policy.pool) == 0


def test_with_a_quota_long_names_take_no_more_than_they_may() -> None:
    policy = QuotaRegistry(WINDOW, pool=BucketPool(1_000_000, VirtualClock(NOW_MS)))
    policy.apply([entry(Entity.of(client_id=None))])
    before = alive(ClientLimits)
    for number in range(200):
        policy.broker(1).client("u", f"{number:032000d}").produce.record(10, NOW_MS)
    assert policy.pool.used_bytes <= 1_000_000
    assert policy.pool.evicted >= 200 - 1_000_000 // 32_000
    assert alive(ClientLimits) == before
    short = policy.broker(1).client("u", "x" * (MAX_CLIENT_NAME - 1))
    assert policy.broker(1).client("u", "x" * (MAX_CLIENT_NAME - 1)) is short


def test_a_flood_of_names_takes_blank_buckets_first_and_none_in_debt_of_a_limit_of_its_own() -> None:
    clock = VirtualClock(NOW_MS)
    policy = QuotaRegistry(WINDOW, pool=BucketPool(20 * 1400, clock))
    policy.apply(
        [entry(Entity.of(client_id=None)), entry(Entity.of(client_id="named")), entry(Entity.of(user="alice"))]
    )
    quotas = policy.broker(1)
    named, alice = quotas.client("u", "named").produce, quotas.client("alice", "app").produce
    idle = quotas.client("u", "idle").produce
    idle.record(1, NOW_MS)
    clock.advance(4_000)
    assert named.record(100_000, clock.now_ms()) > 0
    assert alice.record(100_000, clock.now_ms()) > 0
    busy = quotas.client("u", "busy").produce
    busy.record(2_000, clock.now_ms())
    for number in range(17):
        quotas.client("u", f"one-{number}").produce.record(1, clock.now_ms())
    assert policy.pool.evicted > 0
    assert busy.peek(clock.now_ms()) == 1_000.0
    assert ("", "idle") not in {state.tags for state in quotas.manager(QuotaType.PRODUCE).buckets(clock.now_ms())}
    for number in range(300):
        quotas.client("u", f"two-{number}").produce.record(1_000_000, clock.now_ms())
    assert named.record(0, clock.now_ms()) > 0
    assert alice.record(0, clock.now_ms()) > 0
    assert len(policy.pool) <= 22


class Reported:
    """A reporter over a policy and a ledger, without connections."""

    def __init__(self, choice: MetricsChoice | None = None) -> None:
        quotas = proxy_quotas(clock=VirtualClock(NOW_MS), metrics_choice=choice or MetricsChoice())
        self.policy, self.throttle_stats = quotas.registry, quotas.throttle_stats
        context = SimpleNamespace(
            loop=None,
            clock=quotas.clock,
            counters=quotas.counters,
            settings=quotas.settings,
            events=None,
            stalls=SimpleNamespace(longest_ms=0.0),
        )
        proxy = SimpleNamespace(context=context, quotas=quotas, connections={}, routes=list)
        state = StoreState(url="local:x", revision="1", confirmed_ms=NOW_MS)
        self.reporter = Reporter(cast("ProxyServer", proxy), store=lambda: state)

    def throttle(self, client_id: str, throttle_ms: int) -> None:
        limiter = self.policy.broker(1).client("u", client_id).produce
        limiter.record(throttle_ms, NOW_MS)
        self.throttle_stats.throttled(limiter, throttle_ms, NOW_MS)

    def figures(self) -> dict[str, dict[str, float]]:
        """The figures of each metric by client-id."""
        status = run_whole(self.reporter.figures())
        return {
            family.name: {sample.labels.get("client_id", ""): sample.value for sample in family.samples}
            for family in families(status, is_ready=True)
        }


def test_counters_never_fall_and_are_of_all_whoever_is_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_BUCKETS", 50)
    monkeypatch.setattr(status_module, "MAX_ROWS", 10)
    reported = Reported()
    reported.policy.apply([entry(Entity.of(client_id=None))])
    before, total_ms = 0.0, 0
    for number in range(300, 0, -1):  # whose names sort first come last
        reported.throttle(f"client-{number:03}", number)
        total_ms += number
        if number % 20 == 0:
            now = reported.figures()["kafka_server_produce_throttle_time_ms"][""]
            assert now >= before
            before = now
    figures = reported.figures()
    assert figures["kafka_server_produce_throttle_time_ms"] == {"": total_ms}
    assert figures["kafka_server_produce_throttles"] == {"": 300}
    status = run_whole(reported.reporter.status())
    assert sum(row.total_ms for row in status.throttles) == total_ms
    assert [row.client_id for row in status.throttles if row.client_id.startswith("(")] == ["(others)"]


def test_named_clients_are_always_there_and_the_top_is_that_of_all() -> None:
    reported = Reported(MetricsChoice(top=2, users=frozenset({"zoe"}), client_ids=frozenset({"zz-named"})))
    reported.policy.apply([entry(Entity.of(client_id=None)), entry(Entity.of(user="zoe"))])
    quotas = reported.policy.broker(1)
    for number in range(1500):
        quotas.client("u", f"client-{number:04}").produce.record(number, NOW_MS)
    quotas.client("u", "zz-named").produce.record(1, NOW_MS)
    quotas.client("zoe", "app").fetch.record(1, NOW_MS)
    assert set(reported.figures()["kafka_server_produce_byte_rate"]) == {"zz-named", "client-1498", "client-1499"}
    assert set(reported.figures()["kafka_server_fetch_byte_rate"]) == {""}
    status = run_whole(reported.reporter.status())
    shown = {(row.user, row.client_id) for row in status.buckets}
    assert {("", "zz-named"), ("zoe", ""), ("", "client-1499"), ("", "client-0600")} <= shown
    assert ("", "client-0400") not in shown
    assert status.bucket_count == 1502


def test_others_are_served_between_the_slices_of_a_status_a_sweep_and_a_save(tmp_path: Path) -> None:
    reported = Reported()
    reported.policy.apply([entry(Entity.of(client_id=None))])
    for number in range(2000):
        reported.policy.broker(1).client("u", f"client-{number}").produce.record(1, NOW_MS)

    async def slices(work: Generator[None, None, Any]) -> int:
        """How often another task had its turn meanwhile."""
        turns, done = 0, False

        async def other() -> None:
            nonlocal turns
            while not done:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        await run_sliced(work)
        done = True
        await beside
        return turns

    assert asyncio.run(slices(reported.reporter.status())) >= 2000 // 256
    assert asyncio.run(slices(reported.reporter.figures())) >= 2000 // 256
    assert asyncio.run(slices(reported.policy.expiry(NOW_MS))) >= 2000 // 256
    status: DaemonStatus = run_whole(reported.reporter.status())
    assert asyncio.run(slices(status_module.status_text(status))) >= 10


def test_a_state_saved_in_slices_has_every_bucket_while_others_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "SAVE_S", 0.001)
    monkeypatch.setattr(state_module, "FIRST_SAVE_S", 0.001)
    clock, said, path = VirtualClock(NOW_MS), [], tmp_path / "state"
    before, after = (proxy_quotas(clock=clock, window=WINDOW, said=said) for _ in range(2))
    for each in (before, after):
        each.registry.apply([entry(Entity.of(client_id=None))])
    policy = before.registry
    clients = [policy.broker(1).client("u", f"client-{number}").produce for number in range(1000)]
    for client in clients:
        client.record(9000, NOW_MS)
    kept = StateSnapshotter(path, MeasuredState(before, lambda: None))

    async def save() -> None:
        task = asyncio.create_task(kept.keep())
        async with asyncio.timeout(60):
            number = 0
            while not path.exists():
                # However long the file takes, what was recorded first stays within its windows.
                now_ms = clock.advance(1) if number < 500 else clock.now_ms()
                policy.broker(1).client("u", f"later-{number}").produce.record(1, now_ms)
                number += 1
                await asyncio.sleep(0)
        kept.end()
        await task

    asyncio.run(save())
    content = json.loads(path.read_text())
    assert content["v"] == state_module.VERSION
    assert content["saved_ms"] == clock.now_ms()
    state = read_state(path)
    assert state is not None
    names = [bucket.snapshot.name[1] for bucket in state.buckets]
    assert len(names) == len(set(names))
    assert set(names) >= {f"client-{number}" for number in range(1000)}
    StateSnapshotter(path, MeasuredState(after, lambda: None)).restore(saved_state(path, said.append))
    assert [notice.event for notice in said] == ["state restored"]
    assert (
        after.registry.broker(1).client("u", "client-7").produce.record(0, NOW_MS) == clients[7].record(0, NOW_MS) > 0
    )


def test_a_connection_that_takes_ever_other_client_ids_leaves_nothing_to_the_garbage_collector() -> None:
    pair = Pair()
    gc.collect()
    gc.disable()
    try:
        for number in range(50):
            for correlation_id in (2 * number, 2 * number + 1):
                pair.exchange(produce(correlation_id, client_id=f"client-{number}"), produce_response(correlation_id))
        kept = [each for each in gc.get_objects() if type(each) in (ProduceTemplate, ClientLimits)]
    finally:
        gc.enable()
    assert {each.client.client_id for each in kept if type(each) is ProduceTemplate} == {"client-49"}
    assert {each.client_id for each in kept if type(each) is ClientLimits} == {"client-49"}
