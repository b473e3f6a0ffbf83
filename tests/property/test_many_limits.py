"""What is kept up to date as it changes comes to the same as what is worked out anew: limits, buckets, totals."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.core.virtual_clock import VirtualClock
from tests.support.daemon.whole_run import run_whole

from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas import bucket_pool
from kafka_quotas.core.quotas.bucket_pool import BucketPool, bucket_bytes
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, Limiter, QuotaType
from kafka_quotas.core.resolution import quota_resolver as resolution
from kafka_quotas.core.resolution.quota_resolver import QuotaResolver
from kafka_quotas.enforcement.config.settings import MetricsChoice
from kafka_quotas.enforcement.monitoring.status_reporter import top_buckets
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.enforcement.quotas.store_watcher import ChangeTracker
from kafka_quotas.enforcement.telemetry import throttle_stats as ledger
from kafka_quotas.enforcement.telemetry.status import BucketRow, share_used
from kafka_quotas.enforcement.telemetry.throttle_stats import ThrottleTable
from kafka_quotas.stores.store import QuotaEntry, Snapshot

USERS, CLIENTS = ("alice", "bob", ""), ("x", "y", "")
NOW_MS = 1_700_000_000_000
names = st.sampled_from([(user, client_id) for user in USERS for client_id in CLIENTS])
parts = st.tuples(st.sampled_from([ABSENT, None, "alice", "bob"]), st.sampled_from([ABSENT, None, "x", "y"])).filter(
    lambda pair: pair != (ABSENT, ABSENT)
)
entities = parts.map(lambda pair: Entity.of(user=pair[0], client_id=pair[1]))
limits = st.one_of(st.none(), st.sampled_from([1.0, 5.0, 1000.0]))
static = st.sampled_from([None, "x"]).map(lambda name: Entity.of(client_id=name))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), entities, limits),
        st.tuples(st.just("static"), static, limits),
        st.tuples(st.just("record"), names, st.integers(0, 100)),
    ),
    max_size=15,
)


def changed(resolver: QuotaResolver, step: tuple[str, Any, Any]) -> None:
    kind, entity, limit = step
    if kind == "set":
        resolver.update(entity, limit)
    elif kind == "static":
        resolver.update_static(entity, limit)


@settings(deadline=None, max_examples=50)
@given(steps=steps, max_changes=st.sampled_from([1, 2, 1000]))
def test_handles_follow_changes_one_by_one_as_if_looked_up_anew(
    steps: list[tuple[str, Any, Any]], max_changes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resolution, "MAX_CHANGES", max_changes)
        shared = QuotaResolver()
        managers = [ClientQuotaManager(QuotaType.PRODUCE, limits=shared) for _ in range(2)]
        handles = [Limiter(manager, user, client_id) for manager in managers for user in USERS for client_id in CLIENTS]
        for number, step in enumerate(steps):
            changed(shared, step)
            fresh = QuotaResolver()
            for each in steps[: number + 1]:
                changed(fresh, each)
            for handle in handles:
                name = (handle.user, handle.client_id)
                if step[0] == "record" and step[1] == name:
                    handle.record(step[2], NOW_MS)
                match = fresh.match(fresh.bucket(*name)) if fresh.enabled else None
                found = (handle.bound, handle.entity)
                assert found == (None if match is None else match.limit, None if match is None else match.entity)
                assert (handle.record(1e9, NOW_MS) != 0) == (match is not None)
                handle.unrecord(1e9, NOW_MS)


contents = st.lists(
    st.dictionaries(entities, st.fixed_dictionaries({"producer_byte_rate": st.sampled_from([1.0, 2.0])}), max_size=6),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=50)
@given(contents)
def test_a_store_whose_changes_are_applied_is_in_force_as_if_all_of_it_were(
    contents: list[dict[Entity, dict[str, float]]],
) -> None:
    tracker, followed = ChangeTracker(), QuotaRegistry(QuotaWindow())
    kinds = QuotaRegistry(QuotaWindow())  # is given all of each content
    for revision, content in enumerate(contents):
        entries = tuple(QuotaEntry(entity=entity, quotas=quotas) for entity, quotas in content.items())
        snapshot = tracker.changed(Snapshot(revision=str(revision), entries=entries))
        assert followed.alter(snapshot.changed) == kinds.apply(entries)
        assert followed.limit_count == kinds.limit_count == len(content)
        for node_id in (1, 2 + revision):
            for user in USERS:
                for client_id in CLIENTS:
                    ours = followed.broker(node_id).client(user, client_id).produce
                    theirs = kinds.broker(node_id).client(user, client_id).produce
                    assert (ours.bound, ours.entity, ours.bucket) == (theirs.bound, theirs.entity, theirs.bucket)


operations = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5000), st.integers(0, 3000)), max_size=80)
OWN = 3


@settings(deadline=None, max_examples=50)
@given(operations=operations, room=st.integers(2, 12))
def test_memory_stays_bounded_and_nobody_whom_a_limit_of_his_own_holds_back_is_forgiven(
    operations: list[tuple[int, int, int]], room: int
) -> None:
    clock = VirtualClock(NOW_MS)
    pool = BucketPool(room * 1500, clock)
    manager = ClientQuotaManager(QuotaType.PRODUCE, QuotaWindow(samples=3), pool=pool)
    manager.limits.update(Entity.of(client_id=None), 100.0)
    for number in range(OWN):
        manager.limits.update(Entity.of(client_id=f"client-{number}"), 100.0)
    own = {("", f"client-{number}") for number in range(OWN)}
    for number, amount, pause_ms in operations:
        now_ms = clock.advance(pause_ms)
        held = [bucket for bucket in kept(pool) if bucket.name in own and bucket.is_in_debt(now_ms)]
        manager.limiter("", f"client-{number}").record(amount, now_ms)
        assert all(manager.keeps(bucket) for bucket in held)
        assert len(pool) <= room + OWN
        assert sorted(bucket.name for bucket in kept(pool)) == [state.tags for state in manager.buckets(now_ms)]
    assert pool.used_bytes == sum(bucket_bytes(bucket) for bucket in kept(pool))


def kept(pool: BucketPool) -> list[QuotaBucket]:
    return [bucket for buckets in pool.walk() for bucket in buckets]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=60), st.integers(1, 4))
def test_a_walk_meets_whatever_lives_from_its_beginning_to_its_end_exactly_once(
    changes: list[tuple[int, bool]], size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bucket_pool, "SLICE", size)
        pool = BucketPool()
        manager = ClientQuotaManager(QuotaType.PRODUCE, QuotaWindow(samples=3), pool=pool)
        manager.limits.update(Entity.of(client_id=None), 100.0)
        for number in range(0, 60, 3):
            manager.limiter("", f"client-{number}").record(1, NOW_MS)
        throughout, met = {bucket.name for bucket in kept(pool)}, []
        walk = pool.walk()
        for number, is_made in changes:
            met += [bucket.name for bucket in next(walk, [])]
            name = ("", f"client-{number}")
            if is_made:
                manager.limiter(*name).record(1, NOW_MS)
            else:
                forget(pool, name)
                throughout.discard(name)
        met += [bucket.name for buckets in walk for bucket in buckets]
        assert all(met.count(name) == 1 for name in throughout)


def forget(pool: BucketPool, name: tuple[str, str]) -> None:
    """Have a bucket, if there is one of this name, be idle for too long."""
    for bucket in kept(pool):
        if bucket.name == name:
            bucket.recorded_ms = 0
    for _ in pool.expire_idle(NOW_MS):
        pass


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(list(QuotaType)), st.integers(0, 9), st.integers(1, 50)), max_size=60))
def test_totals_of_throttle_times_are_the_sum_of_all_and_never_fall(
    throttled: list[tuple[QuotaType, int, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "MAX_BUCKETS", 3)
        table = ThrottleTable(lambda _: None, "throttled")
        for number, (quota_type, client, throttle_ms) in enumerate(throttled, 1):
            table._add((quota_type, ("", f"client-{client}")), throttle_ms)
            assert len(table.by_bucket) <= 3
            so_far = sum(each_ms for kind, _, each_ms in throttled[:number] if kind is quota_type)
            assert table.totals[quota_type].total_ms == so_far
        for quota_type in QuotaType:
            counts = [count for (kind, _), count in table.by_bucket.items() if kind is quota_type]
            counts.append(table.others[quota_type])
            total = table.totals[quota_type]
            assert (total.times, total.total_ms) == (
                sum(count.times for count in counts),
                sum(count.total_ms for count in counts),
            )


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(st.integers(0, 80), st.tuples(st.integers(0, 500), st.integers(0, 8000)), max_size=60),
    st.integers(0, 12),
)
def test_the_top_buckets_are_those_of_a_sort_of_all(recorded: dict[int, tuple[int, int]], top: int) -> None:
    policy = QuotaRegistry(QuotaWindow(samples=3))
    quotas = {"producer_byte_rate": 100.0, "controller_mutation_rate": 1.0}
    policy.apply([QuotaEntry(entity=Entity.of(client_id=None), quotas=quotas)])
    for number, (amount, ago_ms) in recorded.items():
        client = policy.broker(number % 2).client("u", f"client-{number}")
        (client.mutation if number % 3 else client.produce).record(amount, NOW_MS - ago_ms)
    wanted = MetricsChoice(top=top, client_ids=frozenset({"client-1", "client-3"}))
    rows = run_whole(top_buckets(policy, wanted, NOW_MS))
    every = run_whole(top_buckets(policy, MetricsChoice(top=1000), NOW_MS))
    assert len(every) == len(policy.pool)
    named = [row for row in every if row.client_id in wanted.client_ids]
    shares = sorted((share(row) for row in every if row not in named), reverse=True)
    assert [row for row in rows if row in named] == named
    assert sorted((share(row) for row in rows if row not in named), reverse=True) == shares[:top]


def share(row: BucketRow) -> float:
    return share_used(row.observed, row.limit, of_tokens=row.quota == "controller_mutation_rate")
