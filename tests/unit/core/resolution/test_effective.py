"""What `effective_quotas` tells beside the limit: what lost, who shares, and warnings."""

import pytest
from tests.support.core.effective_quotas import effective_quotas

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import CONNECTION_CREATION_RATE, PRODUCER_BYTE_RATE, QuotaKey
from kafka_quotas.core.resolution.effective import ANONYMOUS, EffectiveQuota, EffectiveQuotas
from kafka_quotas.core.resolution.quota_resolver import IpQuotaResolver, canonical_address

ALICE = Entity.of(user="alice")
PAIR = Entity.of(user="alice", client_id="app")
APP = Entity.of(client_id="app")
ANY_CLIENT = Entity.of(client_id=None)
ANY_USER = Entity.of(user=None)


def rate(limit: float) -> dict[str, float]:
    return {"producer_byte_rate": limit}


def of(found: tuple[EffectiveQuota, ...], key: QuotaKey = PRODUCER_BYTE_RATE) -> EffectiveQuota:
    return next(quota for quota in found if quota.key is key)


def test_the_winner_and_what_it_overrides() -> None:
    entries = [
        (APP, rate(7)),
        (ANY_CLIENT, rate(8)),
        (PAIR, rate(1)),
        (ALICE, rate(3)),
        (Entity.of(user="bob"), rate(9)),
    ]
    quota = of(effective_quotas(entries, user="alice", client_id="app"))
    assert (quota.limit, quota.entity, quota.level, quota.bucket) == (1, PAIR, 1, ("alice", "app"))
    assert [(lost.level, lost.entity, lost.limit) for lost in quota.overridden] == [
        (3, ALICE, 3),
        (7, APP, 7),
        (8, ANY_CLIENT, 8),
    ]
    assert quota.shared_with == "only user alice with client-id app"
    assert quota.warnings == ()


def test_each_key_resolves_on_its_own() -> None:
    entries = [(ALICE, {"producer_byte_rate": 1.0}), (APP, {"consumer_byte_rate": 2.0, "request_percentage": 3.0})]
    found = effective_quotas(entries, user="alice", client_id="app")
    assert [(quota.key.name, quota.limit, quota.level) for quota in found] == [
        ("producer_byte_rate", 1.0, 3),
        ("consumer_byte_rate", 2.0, 7),
        ("request_percentage", 3.0, 7),
        ("controller_mutation_rate", None, None),
    ]


@pytest.mark.parametrize(
    ("entries", "sharers"),
    [
        ([(ALICE, rate(1))], "all client-ids of user alice"),
        (
            [(ALICE, rate(1)), (Entity.of(user="bob", client_id="x"), rate(1))],
            "all client-ids of user alice except those with a user+client-id quota",
        ),
        ([(APP, rate(1))], "all users with client-id app"),
        (
            [(APP, rate(1)), (Entity.of(user="bob"), rate(1))],
            "all users with client-id app except users with a quota of their own or the default user's",
        ),
        ([], "nobody: nothing is counted"),
    ],
)
def test_who_shares_the_bucket(entries: list[tuple[Entity, dict[str, float]]], sharers: str) -> None:
    assert of(effective_quotas(entries, user="alice", client_id="app")).shared_with == sharers


def test_an_empty_client_id_has_a_bucket_of_its_own_where_only_pairs_were_used() -> None:
    quota = of(effective_quotas([(PAIR, rate(1))], user="alice"))
    assert (quota.limit, quota.bucket) == (None, ("alice", ""))
    assert quota.shared_with == "only user alice with no client-id"


def test_an_empty_client_id_escapes_client_defaults_and_that_is_said() -> None:
    quota = of(effective_quotas([(ANY_CLIENT, rate(8))], user="alice"))
    assert (quota.limit, quota.bucket) == (None, ("", ""))
    assert quota.warnings == (
        "an empty client-id is never limited by a client default: default client-id does not apply",
        "no quota matches: unlimited",
    )


def test_a_client_default_that_would_have_lost_anyway_is_no_warning() -> None:
    assert of(effective_quotas([(ANY_CLIENT, rate(8)), (ALICE, rate(3))], user="alice")).warnings == ()


def test_an_entity_that_fits_but_is_passed_over_is_named() -> None:
    """With the user unnamed, the default user's entry chooses the bucket, and then does not limit it."""
    quota = of(effective_quotas([(ANY_USER, rate(6)), (APP, rate(7))], user="", client_id="app"))
    assert quota.limit is None
    assert quota.warnings == (
        "client-id app fits, but does not apply: the levels in use lead to another bucket",
        "no quota matches: unlimited",
    )


def test_a_client_alone_belongs_to_the_anonymous_user() -> None:
    entries = [(Entity.of(user=ANONYMOUS), rate(3))]
    assert of(effective_quotas(entries, client_id="app")).bucket == ("ANONYMOUS", "")


def test_static_entries_are_levels_nine_and_ten_and_reach_the_empty_client_id() -> None:
    static = [(ANY_CLIENT, rate(100)), (APP, rate(200))]
    own = of(effective_quotas([], user="alice", client_id="app", static=static))
    assert (own.level, own.limit, [lost.level for lost in own.overridden]) == (9, 200, [10])
    empty = of(effective_quotas([], user="alice", client_id="", static=static))
    assert (empty.level, empty.limit, empty.bucket) == (10, 100, ("", ""))
    assert empty.shared_with == "all users with no client-id"
    stored = of(effective_quotas([(ANY_USER, rate(6))], user="alice", client_id="app", static=static))
    assert (stored.level, [lost.level for lost in stored.overridden]) == (6, [9, 10])


def test_addresses_exact_default_and_none() -> None:
    entries = [
        (Entity.of(ip="10.0.0.1"), {"connection_creation_rate": 5.0}),
        (Entity.of(ip=None), {"connection_creation_rate": 9.0}),
    ]
    quotas = EffectiveQuotas(entries)
    exact, default = quotas.for_ip("::ffff:10.0.0.1"), quotas.for_ip("10.0.0.2")
    assert (exact.key, exact.limit, exact.level, exact.bucket) == (
        CONNECTION_CREATION_RATE,
        5,
        "ip",
        ("ip", "10.0.0.1"),
    )
    assert [lost.level for lost in exact.overridden] == ["ip-default"]
    assert (default.limit, default.level, default.bucket) == (9, "ip-default", ("ip", "10.0.0.2"))
    assert default.shared_with == "all connections from this address"
    nothing = of(effective_quotas([], ip="10.0.0.1"), CONNECTION_CREATION_RATE)
    assert (nothing.limit, nothing.bucket, nothing.warnings) == (None, None, ("no quota matches: unlimited",))


def test_keys_that_are_no_quotas_or_on_the_wrong_entity_do_nothing() -> None:
    entries = [(ALICE, {"SCRAM-SHA-256": 1.0, "connection_creation_rate": 2.0}), (Entity.of(ip="1.1.1.1"), rate(3))]
    found = effective_quotas(entries, user="alice", ip="1.1.1.1")
    assert [quota.limit for quota in found] == [None] * 5


@pytest.mark.parametrize(
    ("text", "one"),
    [
        ("::1", "::1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("127.1", "127.0.0.1"),
        ("fe80::1%2", "fe80::1"),
        ("broker.example", "broker.example"),
        ("", ""),
    ],
)
def test_one_spelling_per_address(text: str, one: str) -> None:
    assert canonical_address(text) == one


def test_removed_addresses_fall_to_the_default() -> None:
    resolver = IpQuotaResolver()
    resolver.update(Entity.of(ip="::1"), 5)
    resolver.update(Entity.of(ip=None), 9)
    resolver.update(Entity.of(ip="0::1"), None)
    match = resolver.match("::1")
    assert match is not None
    assert match.level == "ip-default"
    resolver.update(Entity.of(ip=None), None)
    assert resolver.match("::1") is None
    with pytest.raises(UsageError):
        resolver.update(ALICE, 1)
