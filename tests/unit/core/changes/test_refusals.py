"""What this program refuses whatever a store would say, and the hint that goes with it."""

import math

import pytest

from kafka_quotas.core.changes.validation import our_refusals
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import LONG_MAX, QUOTA_KEYS

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
