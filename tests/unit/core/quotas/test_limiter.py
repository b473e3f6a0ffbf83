"""One client in groups: what each bucket is charged, how long the client waits, and for which limit."""

import pytest
from tests.support.core.virtual_clock import VirtualClock

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import RateAlgorithm
from kafka_quotas.core.quotas.bucket_pool import BUCKET_BYTES, BucketPool
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, Limiter, QuotaType
from kafka_quotas.core.resolution.quota_resolver import GROUP_USER, GUARANTEED_USER, Bucket, QuotaResolver

NOW_MS = 1_700_000_000_000
ALICE = Entity.of(user="alice")
TEAM, APP = (GROUP_USER, "team"), (GROUP_USER, "team/app")
GUARANTEED = (GUARANTEED_USER, "team/app")


class World:
    """The buckets of one quota, of a client `alice` within `team/app` within `team`."""

    def __init__(
        self,
        quota_type: QuotaType = QuotaType.PRODUCE,
        *,
        pool: BucketPool | None = None,
        algorithm: RateAlgorithm = RateAlgorithm.SMOOTH,
        **bounds: float,
    ) -> None:
        self.limits = QuotaResolver()
        self.clients = ClientQuotaManager(quota_type, limits=self.limits, pool=pool)
        self.groups = ClientQuotaManager(quota_type, algorithm=algorithm, limits=self.limits, pool=pool)
        self.names: list[Bucket] = []
        for name, bucket in (("team", TEAM), ("guaranteed", GUARANTEED), ("app", APP)):
            if name in bounds:
                self.limits.update_group(bucket, bounds[name])
                self.names.append(bucket)
        if "own" in bounds:
            self.limits.update(ALICE, bounds["own"])
        self.limiter = self.member("alice")

    def member(self, user: str) -> Limiter:
        return Limiter(self.clients, user, "x", self.names, self.groups)

    def bucket(self, name: Bucket) -> QuotaBucket:
        return self.groups.bucket_of(name)

    def used(self, now_ms: int = NOW_MS) -> dict[str, float]:
        return {name[1] if name != GUARANTEED else "guaranteed": self.bucket(name).used(now_ms) for name in self.names}


@pytest.mark.parametrize(
    ("bounds", "wait_ms", "entity"),
    [
        ({"team": 1000}, 2000, "group team"),
        ({"team": 1000, "app": 500}, 5000, "group team/app"),
        ({"team": 500, "app": 1000}, 5000, "group team"),
        ({"team": 1000, "own": 100}, 20_000, "user alice"),  # 3000 of 1000 in a window of 10 s
        ({"team": 1000, "own": 1_000_000}, 2000, "group team"),
        ({"team": 1000, "guaranteed": 3000}, 0, "group team"),
        ({"team": 1000, "guaranteed": 2000}, 500, "group team"),
        ({"team": 1000, "guaranteed": 100}, 2000, "group team"),
        ({"team": 1000, "guaranteed": 3000, "app": 2000}, 500, "group team/app"),
        ({"team": 10_000, "guaranteed": 1000}, 0, "group team"),
    ],
)
def test_the_longest_wait_counts_and_a_guaranteed_rate_bounds_those_around_it(
    bounds: dict[str, float], wait_ms: int, entity: str
) -> None:
    world = World(**bounds)

    assert world.limiter.would_throttle_ms(3000, NOW_MS) == wait_ms
    assert all(used == 0 for used in world.used().values())
    assert world.limiter.record(3000, NOW_MS) == wait_ms
    assert str(world.limiter.entity) == entity
    assert all(used == 3000 for used in world.used().values())


def test_a_group_with_a_window_is_charged_above_its_limit_too() -> None:
    """Shadow mode has windows, and counts what it does not hold back."""
    world = World(algorithm=RateAlgorithm.WINDOW, team=1000, own=1_000_000)

    waits_ms = [world.limiter.record(50_000, NOW_MS) for _ in range(4)]

    assert waits_ms[0] > 0
    assert waits_ms == sorted(waits_ms)
    assert world.bucket(TEAM).total == 200_000
    assert world.clients.resolve("alice", "x")[0].total == 200_000
    assert str(world.limiter.entity) == "group team"


def test_what_siblings_use_makes_those_wait_that_are_above_their_guaranteed_rate() -> None:
    world = World(team=1000, guaranteed=400)
    sibling = Limiter(world.clients, "bob", "x", [TEAM], world.groups)

    assert sibling.record(5000, NOW_MS) == 4000
    assert world.limiter.record(400, NOW_MS) == 0
    assert world.limiter.record(200, NOW_MS) == 500  # 200 above 400 a second, whatever the siblings owe
    assert sibling.record(0, NOW_MS + 500) == 4100  # what is guaranteed counts for the group's limit


def test_the_wait_is_reported_by_the_bucket_that_requires_it() -> None:
    world = World(team=1000, app=500, own=1_000_000)

    assert (world.limiter.bound, str(world.limiter.entity)) == (1_000_000, "user alice")
    world.limiter.throttled(world.limiter.record(3000, NOW_MS), NOW_MS)
    assert (world.limiter.bound, str(world.limiter.entity)) == (500, "group team/app")
    assert world.limiter.bucket == (":group", "team/app")
    assert world.groups.state(world.bucket(APP), NOW_MS).last_minute.times == 1
    assert world.groups.state(world.bucket(TEAM), NOW_MS).last_minute.times == 0


def test_what_is_within_every_limit_leaves_the_report_of_the_last_throttle_time_as_it_is() -> None:
    world = World(team=1000, own=1_000_000)

    assert world.limiter.record(3000, NOW_MS) == 2000
    assert world.limiter.record(0, NOW_MS + 5000) == 0  # of another connection, before the first one is told
    assert world.limiter.would_throttle_ms(0, NOW_MS + 5000) == 0
    world.limiter.throttled(2000, NOW_MS + 5000)
    assert (world.limiter.bucket, str(world.limiter.entity)) == ((":group", "team"), "group team")
    assert world.groups.state(world.bucket(TEAM), NOW_MS + 5000).last_minute.times == 1


def test_the_report_of_a_client_without_a_limit_of_its_own_is_all_of_one_bucket() -> None:
    world = World(team=1000)
    world.limits.update(Entity.of(user="other"), 5.0)  # which gives every client a bucket

    assert world.limiter.record(900, NOW_MS) == 0
    assert (world.limiter.bound, world.limiter.bucket) == (1000, (":group", "team"))
    assert world.limiter.peek(NOW_MS) == 900


def test_a_client_without_a_limit_of_its_own_has_that_of_its_innermost_group() -> None:
    world = World(team=1000, app=500)

    assert (world.limiter.bound, str(world.limiter.entity)) == (500, "group team/app")
    assert world.limiter.max_value(NOW_MS) == 500  # one second's worth, as the buckets are smooth
    world.limits.update_group(APP, None)
    assert (world.limiter.bound, str(world.limiter.entity)) == (1000, "group team")
    assert world.limiter.max_value(NOW_MS) == 1000


def test_a_value_is_admitted_if_every_bucket_has_room_for_it_and_is_recorded_at_all_then() -> None:
    world = World(team=1000, guaranteed=100, app=500, own=1_000_000)

    assert world.limiter.admit(400, NOW_MS) is False  # its own window has no room before its first record
    world.limiter.record(0, NOW_MS)
    assert world.limiter.admit(400, NOW_MS)
    assert world.used() == {"team": 400, "guaranteed": 400, "team/app": 400}
    assert world.limiter.admit(101, NOW_MS) is False
    assert world.used() == {"team": 400, "guaranteed": 400, "team/app": 400}
    assert world.limiter.admit(100, NOW_MS)


def test_what_is_asked_for_is_a_second_of_the_guaranteed_rate_only_without_room_in_the_limits() -> None:
    world = World(team=1000, guaranteed=100)

    assert world.limiter.max_value(NOW_MS) == 1000
    world.limiter.record(500, NOW_MS)
    assert (world.limiter.max_value(NOW_MS), world.limiter.max_value(NOW_MS + 500)) == (100, 1000)


def test_what_was_not_used_is_given_back_to_every_bucket() -> None:
    world = World(team=1000, guaranteed=100, app=500, own=1_000_000)

    world.limiter.record(400, NOW_MS)
    world.limiter.unrecord(300, NOW_MS)
    assert world.used() == {"team": 100, "guaranteed": 100, "team/app": 100}
    state = world.limiter.state
    assert state is not None
    assert state.total == 100


def test_a_changed_limit_holds_from_the_next_record_on_and_keeps_what_was_used() -> None:
    world = World(team=1000)

    assert world.limiter.record(900, NOW_MS) == 0
    world.limits.update_group(TEAM, 500)
    assert world.limiter.record(0, NOW_MS) == 800


@pytest.mark.parametrize("strict", [True, False])
def test_mutations_are_refused_by_one_bucket_and_charged_at_none(strict: bool) -> None:
    world = World(QuotaType.CONTROLLER_MUTATION, team=1, app=100, own=100)
    # 11 samples of 1 s: a burst of 11
    first, second = world.limiter.mutation_quota(strict=strict), world.limiter.mutation_quota(strict=strict)
    assert first.kind == ("strict" if strict else "permissive")
    assert first.record(20, NOW_MS) is None
    refusal = second.record(5, NOW_MS)
    tokens = {name: world.bucket(name).peek(NOW_MS) for name in world.names}
    if strict:
        assert refusal is not None
        assert (str(refusal.entity), refusal.limit) == ("group team", 1)
        assert refusal.throttle_ms == second.throttle_ms(NOW_MS) == 9000
        assert tokens == {TEAM: -9, APP: 1080}
    else:
        assert refusal is None
        assert second.throttle_ms(NOW_MS) == 14_000
        assert tokens == {TEAM: -14, APP: 1075}


def test_mutations_within_a_guaranteed_rate_are_refused_for_no_limit_around_it() -> None:
    world = World(QuotaType.CONTROLLER_MUTATION, team=1, guaranteed=0.5)
    sibling = Limiter(world.clients, "bob", "x", [TEAM], world.groups)

    assert sibling.record(30, NOW_MS) == 0
    assert sibling.record(1, NOW_MS) == 19_000
    assert world.limiter.record(7, NOW_MS) == 0
    assert world.limiter.would_throttle_ms(1, NOW_MS) == 3000  # 1.5 below none at 0.5 a second


def test_a_new_client_whose_bucket_takes_the_room_of_its_groups_is_charged_at_the_next_one() -> None:
    clock = VirtualClock(NOW_MS)
    world = World(team=1000, own=1e6, pool=BucketPool(3 * BUCKET_BYTES, clock))  # of two buckets and their names
    world.limits.update(Entity.of(user="bob"), 1e6)
    assert world.limiter.record(500, NOW_MS) == 0

    later_ms = clock.advance(60_000)  # both rest, so either makes room
    assert world.member("bob").record(3000, later_ms) == 2000
    assert world.member("alice").record(0, later_ms) == 2000


def test_a_bucket_that_was_evicted_is_made_anew() -> None:
    world = World(team=1000)

    world.limiter.throttled(world.limiter.record(3000, NOW_MS), NOW_MS)
    world.groups.forget(world.bucket(TEAM))
    assert world.limiter.record(1000, NOW_MS) == 0
    assert world.used() == {"team": 1000}
