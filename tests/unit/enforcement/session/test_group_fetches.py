"""Fetches of clients in groups: they wait for room in every bucket, unless a guaranteed rate lets them pass."""

from collections import Counter

import pytest
from tests.support.daemon.fetchers import Fetcher, FetchWorld

from kafka_quotas.core.groups.group import Group, GroupMember, GroupRates
from kafka_quotas.enforcement.config.client_policy import FetchOverQuota
from kafka_quotas.enforcement.config.rules import EnforcementRules

LIMIT = 1_000_000.0
TIME_MS = 24_000


def groups(team: float | None = LIMIT, **guaranteed: float | None) -> list[Group]:
    within = [
        Group(
            name=f"team/{name}",
            members=(GroupMember(client_id_prefix=f"{name}-"),),
            guaranteed=GroupRates(consumer_byte_rate=rate),
        )
        for name, rate in guaranteed.items()
    ]
    return [Group(name="team", consumer_byte_rate=team), *within]


def world_of(of: list[Group], rules: EnforcementRules | None = None) -> FetchWorld:
    return FetchWorld(limit=None, rules=rules or EnforcementRules(), latency_ms=5, groups=of)


def start(world: FetchWorld, name: str, count: int, *, batch_bytes: int, reconnects: bool = False) -> list[Fetcher]:
    return [
        world.add(
            Fetcher(client_id=f"{name}-{number}", batch_bytes=batch_bytes, reconnects=reconnects), after_ms=7 * number
        )
        for number in range(count)
    ]


def rates(fetchers: list[Fetcher]) -> dict[str, float]:
    """Return the bytes per second of each group in the second half of the time."""
    found: Counter[str] = Counter()
    for fetcher in fetchers:
        found[fetcher.client_id.partition("-")[0]] += sum(size for at_ms, size in fetcher.got if at_ms > TIME_MS / 2)
    return {name: amount / (TIME_MS / 2000) for name, amount in found.items()}


@pytest.mark.parametrize("reconnects", [False, True])
def test_a_group_gets_what_it_is_guaranteed_and_the_others_the_rest(reconnects: bool) -> None:
    world = world_of(groups(a=None, b=400_000.0))
    many = start(world, "a", 15, batch_bytes=50_000, reconnects=reconnects)
    few = start(world, "b", 3, batch_bytes=50_000, reconnects=reconnects)
    world.run(TIME_MS)

    found = rates([*many, *few])
    assert found["b"] == pytest.approx(400_000, rel=0.02)
    assert sum(found.values()) == pytest.approx(LIMIT, rel=0.02)


def test_fetches_that_are_emptied_at_their_end_keep_the_limit_and_what_is_guaranteed() -> None:
    world = world_of(groups(a=None, b=400_000.0), EnforcementRules(fetch_over_quota=FetchOverQuota.KAFKA))
    fetchers = [*start(world, "a", 3, batch_bytes=50_000), *start(world, "b", 3, batch_bytes=50_000)]
    world.run(TIME_MS)

    found = rates(fetchers)
    assert found["b"] >= 0.98 * 400_000
    assert sum(found.values()) <= 1.02 * LIMIT


def test_without_guaranteed_rates_each_client_gets_the_same() -> None:
    world = world_of(groups(a=None, b=None))
    fetchers = [*start(world, "a", 9, batch_bytes=20_000), *start(world, "b", 3, batch_bytes=20_000)]
    world.run(TIME_MS)

    assert rates(fetchers) == pytest.approx({"a": 0.75 * LIMIT, "b": 0.25 * LIMIT}, rel=0.02)


def test_a_client_is_held_to_its_own_limit_within_its_group() -> None:
    world = world_of(groups(a=None))
    world.set_limit(100_000.0)
    own = world.add(Fetcher(batch_bytes=10_000))
    assert own.client_id == "app"
    member = start(world, "a", 2, batch_bytes=10_000)
    world.set_groups([Group(name="team", consumer_byte_rate=LIMIT, members=(GroupMember(client_id_pattern="a*"),))])
    world.run(TIME_MS)

    found = rates([own, *member])
    assert found["app"] == pytest.approx(100_000, rel=0.02)
    assert sum(found.values()) == pytest.approx(LIMIT, rel=0.02)


def test_a_fetch_that_waits_names_the_group_whose_limit_it_waits_for() -> None:
    inner = Group(name="team/a", consumer_byte_rate=LIMIT, members=(GroupMember(client_id_prefix="a-"),))
    world = world_of([*groups(team=1000.0), inner])
    fetchers = start(world, "a", 3, batch_bytes=20_000)
    world.run(100)

    channels = [each.pair.session.state.held for each in fetchers]
    assert [str(channel.limiter.entity) for channel in channels if channel is not None] == ["group team", "group team"]


def test_new_groups_hold_for_fetches_that_wait_already() -> None:
    world = world_of(groups(team=1000.0, a=None))
    fetchers = start(world, "a", 3, batch_bytes=20_000)
    world.run(100)
    waiting = [each for each in fetchers if each.pair.session.state.held is not None]
    assert len(waiting) == 2
    assert not any(each.got for each in waiting)

    world.set_groups(groups(a=None))
    world.run(10)
    assert all(each.got for each in waiting)


def test_fetches_that_wait_begin_when_their_group_is_gone() -> None:
    world = world_of(groups(team=1000.0, a=None))
    fetchers = start(world, "a", 3, batch_bytes=20_000)
    for each in fetchers:
        each.asks_bytes = 20_000
    world.run(100)
    world.set_groups([])
    world.run(100)

    waited = [each for each in fetchers if each.pair.session.state.mute is None]
    assert len(waited) == 2
    assert all(each.pair.session.state.held is None and len(each.got) > 5 for each in waited)


def test_fetches_that_wait_at_their_own_bucket_are_served_when_their_client_comes_into_a_group() -> None:
    world = world_of([])
    world.set_limit(1000.0)
    first, *waiting = [world.add(Fetcher(batch_bytes=20_000), after_ms=50 * number) for number in range(3)]
    world.run(200)
    assert first.got
    assert all(each.pair.session.state.held is not None for each in waiting)

    world.set_groups([Group(name="team", consumer_byte_rate=LIMIT, members=(GroupMember(client_id="app"),))])
    world.run(100)
    world.set_limit(LIMIT)
    world.run(2000)
    assert all(each.got for each in waiting)


def test_what_a_group_is_guaranteed_does_not_wait_for_the_turns_of_others() -> None:
    world = world_of(groups(a=None, b=400_000.0))
    many = start(world, "a", 15, batch_bytes=50_000)
    few = start(world, "b", 1, batch_bytes=50_000)
    for each in (*many, *few):
        each.wait_ms = 10_000  # all of them wait for their turns, and none comes again
    world.run(TIME_MS)

    assert rates(few)["b"] == pytest.approx(400_000, rel=0.02)


@pytest.mark.parametrize("fetches", FetchOverQuota)
def test_a_small_guaranteed_rate_makes_no_fetch_smaller(fetches: FetchOverQuota) -> None:
    world = world_of(groups(b=2000.0), EnforcementRules(fetch_over_quota=fetches))
    world.latency_ms = 50
    few = start(world, "b", 1, batch_bytes=1000)
    world.run(TIME_MS)

    assert rates(few)["b"] == pytest.approx(LIMIT, rel=0.1)


def test_a_group_with_a_small_limit_reserves_no_more_than_that_around_it() -> None:
    world = world_of(groups(b=None))
    small = Group(name="team/a", consumer_byte_rate=10_000.0, members=(GroupMember(client_id="a-0"),))
    world.set_groups([*groups(b=None), small])
    (idle,) = start(world, "a", 1, batch_bytes=1000)
    idle.has_data = lambda _: False
    world.run(10)
    (other,) = start(world, "b", 1, batch_bytes=1000)
    world.run(20)

    assert other.got[0][1] > LIMIT / 2


def test_a_client_that_does_not_wait_keeps_no_place_before_the_others_of_its_group() -> None:
    world = world_of(groups(team=10_000.0, a=None, b=None))
    others = start(world, "b", 2, batch_bytes=9000)
    world.run(1000)
    (once,) = start(world, "a", 1, batch_bytes=1000)
    once.wait_ms = 0
    world.run(TIME_MS)

    assert once.told_ms
    assert rates(others)["b"] == pytest.approx(10_000, rel=0.1)


def test_clients_that_wait_long_for_data_keep_no_room_from_the_others_of_their_group() -> None:
    world = world_of(groups(a=None, b=None))
    (reader,) = start(world, "b", 1, batch_bytes=100_000)
    world.run(100)
    for idle in start(world, "a", 15, batch_bytes=1000):
        idle.wait_ms = 3_600_000
        idle.has_data = lambda _: False
    world.run(TIME_MS)

    assert rates([reader])["b"] > LIMIT / 2


def test_a_connection_that_ends_leaves_every_queue() -> None:
    world = world_of(groups(team=1000.0, a=500.0))
    gone, *others = start(world, "a", 3, batch_bytes=20_000)
    world.run(1000)
    while not gone.pair.session.state.turn.queues:
        world.run(1000)
    world.leave(gone)
    assert not gone.pair.session.state.turn.queues
    before = sum(len(each.got) for each in others)
    world.run(120_000)
    assert sum(len(each.got) for each in others) > before
