"""Alterations and filters beyond what the conformance lines pin."""

import math

import pytest
from tests.support.stores.alteration_oracle import (
    QuotaRecord,
    ZnodeChange,
    kraft_alteration,
    znode_change,
    zookeeper_alteration,
)

from kafka_quotas.core.changes.validation import kraft_verdict, our_refusals, zookeeper_verdict
from kafka_quotas.core.errors import StoreError
from kafka_quotas.core.formats.zookeeper import decode_config, encode_config, znode_path
from kafka_quotas.core.model.entity import (
    EVERYTHING,
    Entity,
    FilterComponent,
    Match,
    QuotaFilter,
    filter_verdict_kraft,
    filter_verdict_zk,
    matches,
)
from kafka_quotas.core.model.quota_key import LONG_MAX, QUOTA_KEYS

ALICE_PARTS = (("user", "alice"),)


def no_host(_: str) -> bool:
    return False


def test_nan_is_no_change_of_nan() -> None:
    same = kraft_alteration(
        {"request_percentage": math.nan}, ALICE_PARTS, [("request_percentage", math.nan)], resolves=no_host
    )
    assert same.records == ()
    other = kraft_alteration(
        {"request_percentage": 1.0}, ALICE_PARTS, [("request_percentage", math.nan)], resolves=no_host
    )
    assert [record.key for record in other.records] == ["request_percentage"]


def test_validate_only_tells_records_and_changes_nothing() -> None:
    outcome = kraft_alteration(
        {"producer_byte_rate": 1.0}, ALICE_PARTS, [("producer_byte_rate", None)], resolves=no_host, validate_only=True
    )
    assert outcome.records == (QuotaRecord(key="producer_byte_rate", value=None),)
    assert outcome.quotas == {"producer_byte_rate": 1.0}


def test_the_order_of_complaints_is_that_of_a_hash_map() -> None:
    changes = [("producer_byte_rate", -1.0), ("consumer_byte_rate", -1.0)]
    for order in (changes, changes[::-1]):
        assert "consumer_byte_rate" in str(kraft_verdict(ALICE_PARTS, order, resolves=no_host))
        assert order[0][0] in str(zookeeper_verdict(ALICE_PARTS, order, resolves=no_host))


def test_of_a_type_named_twice_the_last_name_counts() -> None:
    assert kraft_verdict([("user", ""), ("user", "a")], [], resolves=no_host) is None
    assert kraft_verdict([("user", "a"), ("user", "")], [], resolves=no_host) is not None


@pytest.mark.parametrize("pairs", [[("user", ".")], [("client-id", "..")], [("user", "a"), ("client-id", ".")]])
def test_zookeeper_has_no_node_of_a_relative_name(pairs: list[tuple[str, str]]) -> None:
    assert kraft_verdict(pairs, [("producer_byte_rate", 1.0)], resolves=no_host) is None
    for value in (1.0, -1.0, None):
        refused = zookeeper_verdict(pairs, [("producer_byte_rate", value)], resolves=no_host)
        assert refused is not None
        assert refused.code == "UNKNOWN_SERVER_ERROR"


def test_credentials_stay_in_a_user_znode() -> None:
    stored = {"/config/users/alice": encode_config({"SCRAM-SHA-256": "salt=x", "producer_byte_rate": "5"})}
    outcome = zookeeper_alteration(stored, ALICE_PARTS, [("producer_byte_rate", None)], resolves=no_host)
    assert decode_config(outcome.znodes["/config/users/alice"]) == {"SCRAM-SHA-256": "salt=x"}


def test_a_user_with_credentials_outlives_its_last_client() -> None:
    stored = {
        "/config/users/alice": encode_config({"SCRAM-SHA-256": "salt=x"}),
        "/config/users/alice/clients": None,
        "/config/users/alice/clients/app": encode_config({"producer_byte_rate": "5"}),
    }
    pairs = (("user", "alice"), ("client-id", "app"))
    outcome = zookeeper_alteration(stored, pairs, [("producer_byte_rate", None)], resolves=no_host)
    assert list(outcome.znodes) == ["/config/users/alice"]


@pytest.mark.parametrize(
    "entity", [Entity.of(user=None), Entity.of(client_id="c"), Entity.of(user="u", client_id="c")], ids=str
)
def test_a_broker_fails_over_keys_it_does_not_know(entity: Entity) -> None:
    path = znode_path(entity)
    stored = {path: encode_config({"SCRAM-SHA-256": "salt=x"})}
    outcome = zookeeper_alteration(stored, entity.parts, [("producer_byte_rate", 1.0)], resolves=no_host)
    assert outcome.error is not None
    assert outcome.error.code == "UNKNOWN_SERVER_ERROR"
    assert outcome.znodes == stored
    assert outcome.notification is None


def test_unreadable_data_is_an_error_of_the_store() -> None:
    with pytest.raises(StoreError):
        zookeeper_alteration({"/config/users/alice": b'{"config":{"a":1}}'}, ALICE_PARTS, [], resolves=no_host)


def test_a_config_is_written_without_asking_for_children() -> None:
    def unasked(path: str) -> list[str]:
        raise AssertionError(path)

    change = znode_change(
        Entity.of(client_id="c"), {"request_percentage": "1.0"}, children=unasked, config_of=lambda _: {}
    )
    assert change == ZnodeChange(path="/config/clients/c", data=b'{"version":1,"config":{"request_percentage":"1.0"}}')


@pytest.mark.parametrize(
    ("component", "message"),
    [
        (FilterComponent(entity_type="user", match=Match.EXACT), "MATCH_TYPE_EXACT, but set match string to null."),
        (FilterComponent(entity_type="user", match=Match.DEFAULT, name="a"), "MATCH_TYPE_DEFAULT, but also specified"),
        (FilterComponent(entity_type="ip", match=Match.ANY, name="a"), "MATCH_TYPE_SPECIFIED, but also specified"),
    ],
)
def test_kraft_refuses_matches_that_contradict_themselves(component: FilterComponent, message: str) -> None:
    refused = filter_verdict_kraft(QuotaFilter(components=(component,)))
    assert refused is not None
    assert message in refused.message


def test_the_empty_filter_finds_everything_and_nothing_when_strict() -> None:
    for verdict in (filter_verdict_kraft, filter_verdict_zk):
        assert verdict(EVERYTHING) is None
    assert matches(EVERYTHING, Entity.of(ip=None))
    assert not matches(QuotaFilter(strict=True), Entity.of(ip=None))


def named(entity_type: str, name: str) -> FilterComponent:
    return FilterComponent(entity_type=entity_type, match=Match.EXACT, name=name)


@pytest.mark.parametrize(
    ("components", "strict", "refused"),
    [
        ((named("user", ""),), True, True),
        ((named("user", ""),), False, False),
        ((named("ip", ""),), False, True),
        ((named("user", ""), FilterComponent(entity_type="client-id", match=Match.DEFAULT)), False, True),
        ((named("user", ""), FilterComponent(entity_type="client-id", match=Match.ANY)), True, False),
        ((named("user", "x"), named("client-id", "")), True, True),
        ((named("user", "x"),), True, False),
    ],
)
def test_a_broker_in_zookeeper_mode_fails_at_an_empty_name_where_it_reads_one_znode(
    components: tuple[FilterComponent, ...], strict: bool, refused: bool
) -> None:
    asked = QuotaFilter(components=components, strict=strict)
    assert (filter_verdict_zk(asked) is not None) is refused
    assert filter_verdict_kraft(asked) is None


ALICE = Entity.of(user="alice")
ADDRESS = Entity.of(ip="10.0.0.1")


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        (ALICE, "producer_byte_rate", 1.0),
        (ALICE, "producer_byte_rate", float(LONG_MAX)),
        (ALICE, "request_percentage", 0.001),
        (ALICE, "request_percentage", 1e30),
        (Entity.of(user=None, client_id=None), "controller_mutation_rate", 2.5),
        (Entity.of(client_id="<default>"), "consumer_byte_rate", 1e12),
        (ADDRESS, "connection_creation_rate", 2147483647.0),
        (Entity.of(ip=None), "connection_creation_rate", None),
        (ALICE, "producer_byte_rate", None),
    ],
)
def test_accepted(entity: Entity, key: str, value: float | None) -> None:
    assert our_refusals(entity, {key: value}) is None


@pytest.mark.parametrize(
    ("entity", "message", "hint"),
    [
        (Entity.of(), "no entity is named", "--user-default"),
        (Entity.of(user=""), "the user name is empty", "--user-default"),
        (Entity.of(user="alice", client_id=""), "the client-id name is empty", "--client-default"),
        (Entity.of(ip=""), "the ip name is empty", "--ip-default"),
        (Entity.of(user="alice", ip="::1"), "an ip can't be combined with a user", "a command of its own"),
        (Entity.of(ip="10.0.0.0/8"), "10.0.0.0/8 is not an address", "no address ranges"),
    ],
)
def test_entities_that_can_not_be_meant(entity: Entity, message: str, hint: str) -> None:
    refused = our_refusals(entity, {})
    assert refused is not None
    assert refused.message == message
    assert hint in (refused.hint or "")
    assert refused.exit_code == 2


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("controller_mutations_rate", "the key is controller_mutation_rate"),
        ("controller-mutation-rate", "the key is controller_mutation_rate"),
        ("quota.producer.default", "the key is producer_byte_rate"),
        ("Producer_Byte_Rate", "the key is producer_byte_rate"),
        ("producer_byte_rat", "the key is producer_byte_rate"),
        ("retention.ms", "unknown quota key: 'retention.ms'"),
        ("", "unknown quota key: ''"),
    ],
)
@pytest.mark.parametrize("value", [1.0, None])
def test_keys_that_are_none(key: str, message: str, value: float | None) -> None:
    refused = our_refusals(ALICE, {key: value})
    assert refused is not None
    assert message in refused.message
    assert refused.hint


def test_keys_of_another_entity() -> None:
    for key in QUOTA_KEYS.values():
        wrong = ALICE if key.for_ip else ADDRESS
        refused = our_refusals(wrong, {key.name: 1.0})
        assert refused is not None
        assert refused.message.startswith(f"{key.name} is a quota of")


def test_a_key_given_twice() -> None:
    refused = our_refusals(ALICE, [("producer_byte_rate", 1.0), ("producer_byte_rate", None)])
    assert refused is not None
    assert refused.message == "producer_byte_rate is given twice"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("producer_byte_rate", math.nan, "must be a finite number"),
        ("request_percentage", math.inf, "must be a finite number"),
        ("request_percentage", -math.inf, "must be a finite number"),
        ("producer_byte_rate", 0.0, "must be greater than 0"),
        ("controller_mutation_rate", -0.5, "must be greater than 0"),
        ("producer_byte_rate", 0.5, "cannot be a fractional value"),
        ("producer_byte_rate", 1.0000001, "cannot be a fractional value"),
        ("consumer_byte_rate", 1e19, "is too large"),
    ],
)
def test_values_that_can_not_be_meant(key: str, value: float, message: str) -> None:
    refused = our_refusals(ALICE, {key: value})
    assert refused is not None
    assert message in refused.message
    assert refused.hint


def test_a_connection_rate_beyond_an_int() -> None:
    refused = our_refusals(ADDRESS, {"connection_creation_rate": 2147483648.0})
    assert refused is not None
    assert "too large" in refused.message
