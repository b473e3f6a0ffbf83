"""Groups in force: who is charged at which bucket, in every mode, at one broker or all, before and after a reload."""

import pytest
from tests.support.frames.enforcement import START_MS, WINDOW

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.groups.group import Group, GroupMember, GroupRates, GroupTree
from kafka_quotas.core.groups.membership import Peer
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import ClientPolicy, Mode, PolicyFile, PolicyTable, Scope
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas, RateOf
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.stores.store import QuotaEntry

TEAM = Group(
    name="team",
    producer_byte_rate=1000,
    consumer_byte_rate=2000,
    members=(GroupMember(user_prefix="t-"), GroupMember(listener="PUBLIC")),
)
APP = Group(name="team/app", members=(GroupMember(user="t-app"),), guaranteed=GroupRates(producer_byte_rate=400))


def registry_of(*groups: Group, policies: PolicyTable | None = None) -> QuotaRegistry:
    registry = QuotaRegistry(WINDOW, policies=policies)
    registry.replace(PolicyFile(groups=GroupTree(groups)))
    return registry


def waits_ms(registry: QuotaRegistry, user: str, amount: int, *, broker: int = 0, peer: Peer = Peer()) -> int:
    return registry.broker(broker).client(user, "x", peer).produce.record(amount, START_MS)


def test_all_clients_of_a_group_share_its_limit_and_others_have_nothing_to_do_with_it() -> None:
    registry = registry_of(TEAM, APP)

    assert waits_ms(registry, "t-1", 800) == 0
    assert waits_ms(registry, "t-2", 800) == 600
    assert waits_ms(registry, "x", 100_000) == 0
    assert waits_ms(registry, "x", 400, peer=Peer("PUBLIC", "192.0.2.1")) == 1000
    assert waits_ms(registry, "t-app", 400) == 0  # it is guaranteed as much
    assert waits_ms(registry, "t-app", 4000) == 5400  # the limit's 7400 in all, less its 1000, would be longer
    client = registry.broker(0).client("t-1", "x")
    limited = [kind for kind, each in client.limiters.items() if each.bound is not None]
    assert limited == [QuotaType.PRODUCE, QuotaType.FETCH]


def test_a_group_is_one_more_bucket_beside_that_of_kafkas_levels() -> None:
    registry = registry_of(TEAM)
    registry.apply([QuotaEntry(Entity.of(user=None), {"producer_byte_rate": 100.0})])

    limiter = registry.broker(0).client("t-1", "x").produce
    assert limiter.record(900, START_MS) == 7000  # 900 of 100 a second in 2 s
    assert (str(limiter.entity), limiter.bound) == ("default user", 100.0)
    assert registry.limit_count == 3


def test_a_group_holds_at_each_broker_or_at_all_together() -> None:
    registry = registry_of(TEAM)
    assert (waits_ms(registry, "t-1", 800), waits_ms(registry, "t-2", 800, broker=1)) == (0, 0)

    of_cluster = registry_of(TEAM, policies=PolicyTable(default=ClientPolicy(scope=Scope.CLUSTER)))
    assert (waits_ms(of_cluster, "t-1", 800), waits_ms(of_cluster, "t-2", 800, broker=1)) == (0, 600)


def test_clients_of_different_modes_share_a_group_but_what_is_only_counted_stays_apart() -> None:
    table = PolicyTable(
        entities={Entity.of(user="t-2"): {"mode": Mode.SMOOTH}, Entity.of(user="t-3"): {"mode": Mode.SHADOW}}
    )
    registry = QuotaRegistry(WINDOW)
    registry.replace(PolicyFile(groups=GroupTree([TEAM]), entities=table.entities))

    assert waits_ms(registry, "t-3", 100_000) > 0  # counted, not enforced
    assert waits_ms(registry, "t-1", 800) == 0
    assert waits_ms(registry, "t-2", 800) == 600


def test_an_exempt_client_is_in_no_group() -> None:
    registry = QuotaRegistry(WINDOW)
    registry.replace(PolicyFile(groups=GroupTree([TEAM]), entities={Entity.of(user="t-1"): {"exempt": True}}))

    assert waits_ms(registry, "t-1", 100_000) == 0
    assert waits_ms(registry, "t-2", 1000) == 0


def test_a_reload_keeps_what_was_used_of_limits_that_stay() -> None:
    registry = registry_of(TEAM, APP)
    assert waits_ms(registry, "t-1", 3000) == 2000
    limiter = registry.broker(0).client("t-1", "x").produce

    changed = Group(name="team", producer_byte_rate=500, members=TEAM.members)
    assert registry.replace(PolicyFile(groups=GroupTree([changed]))) == 3  # a limit, one gone, and a guaranteed rate
    assert waits_ms(registry, "t-app", 0) == 5000
    assert limiter.record(0, START_MS) == 5000  # of a connection that has not looked again
    assert registry.replace(PolicyFile(groups=GroupTree([changed]))) == 0
    assert registry.replace(PolicyFile()) == 1
    assert waits_ms(registry, "t-1", 10_000) == 0
    assert registry.limit_count == 0


def test_a_policy_whose_groups_do_not_fit_those_of_the_store_changes_nothing() -> None:
    registry = registry_of()
    registry.replace_groups((TEAM,))
    with pytest.raises(UsageError, match="declared twice"):
        registry.replace(PolicyFile(groups=GroupTree([TEAM]), entities={Entity.of(user="t-1"): {"exempt": True}}))

    assert waits_ms(registry, "t-1", 3000, broker=1) == 2000


def test_a_client_that_is_moved_to_another_group_is_charged_there() -> None:
    registry = registry_of(TEAM)
    before = registry.broker(0).client("t-1", "x")
    other = Group(name="other", producer_byte_rate=100, members=(GroupMember(user="t-1"),))
    registry.replace(PolicyFile(groups=GroupTree([other, TEAM])))

    assert registry.broker(0).version != before.version
    assert waits_ms(registry, "t-1", 200) == 1000
    assert waits_ms(registry, "t-2", 1000) == 0


def test_a_request_that_an_own_limit_refuses_is_charged_at_no_group() -> None:
    group = Group(name="team", controller_mutation_rate=100, members=(GroupMember(user_prefix="t-"),))
    registry = registry_of(group)
    registry.apply([QuotaEntry(Entity.of(user="t-1"), {"controller_mutation_rate": 1.0})])
    limiter = registry.broker(0).client("t-1", "x").mutation
    quota = limiter.mutation_quota(strict=True)

    assert quota.record(5, START_MS) is None
    refusal = quota.record(5, START_MS)
    assert refusal is not None
    assert str(refusal.entity) == "user t-1"
    bucket = registry.broker(0).manager(QuotaType.CONTROLLER_MUTATION, Mode.SMOOTH).bucket_of(("\0group", "team"))
    assert bucket.used(START_MS) == 5


@pytest.fixture
def connections() -> ConnectionQuotas:
    quotas = ConnectionQuotas(WINDOW)
    registry = registry_of(
        Group(name="all", connection_creation_rate=2, members=(GroupMember(listener="PUBLIC"),)),
        Group(
            name="all/office",
            members=(GroupMember(listener="OFFICE"),),
            guaranteed=GroupRates(connection_creation_rate=1),
        ),
    )
    quotas.groups = registry.groups
    return quotas


TIMES_MS = range(0, 60_000, 100)


def admitted(quotas: ConnectionQuotas, listener: str) -> int:
    rates = quotas.broker(1)
    return sum(not rates.record_ip("192.0.2.1", 1, START_MS + ms, listener=listener) for ms in TIMES_MS)


def test_connections_of_a_group_share_its_rate_whatever_their_address(connections: ConnectionQuotas) -> None:
    connections.apply([QuotaEntry(Entity.of(ip="198.51.100.7"), {"connection_creation_rate": 2.0})])
    of_address = sum(not connections.broker(2).record_ip("198.51.100.7", 1, START_MS + ms) for ms in TIMES_MS)

    assert admitted(connections, "PUBLIC") == of_address
    assert admitted(connections, "OTHER") == len(TIMES_MS)


def test_a_guaranteed_rate_of_connections_is_kept_beside_a_flood(connections: ConnectionQuotas) -> None:
    alone = admitted(connections, "PUBLIC")
    rates, served = connections.broker(2), {"PUBLIC": 0, "OFFICE": 0}
    for ms in TIMES_MS:
        for listener in served:
            served[listener] += not rates.record_ip("192.0.2.1", 1, START_MS + ms, listener=listener)

    assert served["OFFICE"] >= 0.75 * 60  # what an address with a limit of 1 per second gets in this window: 46
    assert sum(served.values()) == pytest.approx(alone, rel=0.05)


def test_a_connection_that_its_address_has_no_room_for_counts_for_no_group(connections: ConnectionQuotas) -> None:
    connections.apply([QuotaEntry(Entity.of(ip="192.0.2.1"), {"connection_creation_rate": 1.0})])
    rates = connections.broker(1)
    served = sum(not rates.record_ip("192.0.2.1", 1, START_MS, listener="PUBLIC") for _ in range(10))

    assert rates.observed(RateOf.GROUP, "all", START_MS) * 2 == served
    assert rates.asked_ip("192.0.2.1", 1, START_MS)[0] > 0
