"""Thresholds of topics and brokers: which are refused when they are set, and where they are kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_quotas.core.changes.validation import our_refusals
from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.model.entity import EVERYTHING, TOPIC, Entity, FilterComponent, Match, QuotaFilter
from kafka_quotas.core.model.quota_key import ThresholdSettings
from kafka_quotas.stores.address import StoreKind
from kafka_quotas.stores.local import LocalStore
from kafka_quotas.stores.store import Alteration, refusal

TOPIC_KEY = "bytes.in.per.sec.threshold"
TOTAL_KEY = "total.bytes.in.per.sec.threshold"
ORDERS = Entity.of(topic="orders")
LOGS = Entity.of(topic="logs")
EVERY_BROKER = Entity.of(broker=None)
BROKER_2 = Entity.of(broker="2")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    opened = LocalStore(tmp_path / "quotas.db")
    yield opened
    opened.close()


def alter(store: LocalStore, *changes: tuple[Entity, float | None], validate_only: bool = False) -> list[str | None]:
    """What each alteration was refused for."""
    alterations = [
        Alteration(entity=entity, changes={TOPIC_KEY if entity.topic else TOTAL_KEY: value})
        for entity, value in changes
    ]
    return [
        result.error.message if result.error else None
        for result in store.alter(alterations, validate_only=validate_only)
    ]


@pytest.mark.parametrize(
    ("entity", "key", "value", "message"),
    [
        (ORDERS, TOPIC_KEY, 0.0, "must be greater than 0"),
        (ORDERS, TOPIC_KEY, 1.5, "cannot be a fractional value"),
        (ORDERS, TOTAL_KEY, 1.0, "is not a threshold of a topic"),
        (BROKER_2, TOPIC_KEY, 1.0, "is not a threshold of a broker"),
        (ORDERS, "producer_byte_rate", 1.0, "is not a threshold of a topic"),
        (Entity.of(user="alice"), TOPIC_KEY, 1.0, "is set on a topic"),
        (Entity.of(user="alice"), TOTAL_KEY, 1.0, "is set on a broker"),
        (Entity.of(topic="or ders"), TOPIC_KEY, 1.0, "no topic can have this name"),
        (Entity.of(topic=".."), TOPIC_KEY, 1.0, "no topic can have this name"),
        (Entity.of(topic="x" * 250), TOPIC_KEY, 1.0, "no topic can have this name"),
        (Entity.from_pairs([("topic", None)]), TOPIC_KEY, 1.0, "topics have no default"),
        (Entity.of(broker="one"), TOTAL_KEY, 1.0, "not the node id of a broker"),
        (Entity.of(user="alice", topic="orders"), TOPIC_KEY, 1.0, "can't be combined"),
    ],
)
def test_a_threshold_that_can_not_be_meant_is_refused(entity: Entity, key: str, value: float, message: str) -> None:
    refused = our_refusals(entity, {key: value})
    assert refused is not None
    assert message in refused.message
    assert refused.hint


@pytest.mark.parametrize("allow_invalid", [False, True])
@pytest.mark.parametrize("kind", [StoreKind.KAFKA, StoreKind.ZOOKEEPER])
def test_stores_of_kafkas_own_configuration_refuse_thresholds(kind: StoreKind, allow_invalid: bool) -> None:
    alteration = Alteration(entity=ORDERS, changes={TOPIC_KEY: 1.0})
    refused = refusal(alteration, kind=kind, allow_invalid=allow_invalid)
    assert refused is not None
    assert "Kafka has no thresholds" in refused.message


def test_the_local_store_holds_thresholds_beside_quotas(store: LocalStore) -> None:
    assert alter(store, (ORDERS, 60.0), (EVERY_BROKER, 100.0), (BROKER_2, 200.0)) == [None, None, None]
    alice = Alteration(entity=Entity.of(user="alice"), changes={"producer_byte_rate": 5.0})
    assert store.alter([alice])[0].error is None
    entries = {entry.entity: entry.quotas for entry in store.describe(EVERYTHING)}
    assert entries[ORDERS] == {TOPIC_KEY: 60.0}
    assert list(entries) == [Entity.of(user="alice"), ORDERS, BROKER_2, EVERY_BROKER]
    one = QuotaFilter(components=(FilterComponent(entity_type=TOPIC, match=Match.EXACT, name="orders"),))
    assert [entry.entity for entry in store.describe(one)] == [ORDERS]


def test_a_change_is_refused_if_the_topics_would_exceed_the_smallest_total(store: LocalStore) -> None:
    assert alter(store, (EVERY_BROKER, 100.0), (ORDERS, 60.0)) == [None, None]
    assert alter(store, (LOGS, 40.0)) == [None]
    (excess,) = alter(store, (LOGS, 41.0))
    assert excess == ("the thresholds of topics would sum to 101 bytes/s, more than the total of 100 of every broker")
    assert alter(store, (LOGS, 41.0), validate_only=True) == [excess]
    (lowered,) = alter(store, (BROKER_2, 99.0))
    assert lowered is not None
    assert lowered.endswith("more than the total of 99 of broker 2")
    assert alter(store, (EVERY_BROKER, None)) == [None], "without a total nothing is too much"
    assert alter(store, (LOGS, 4100.0)) == [None]


def test_changes_of_one_call_are_judged_together_before_one_by_one(store: LocalStore) -> None:
    assert alter(store, (EVERY_BROKER, 100.0), (ORDERS, 60.0)) == [None, None]
    assert alter(store, (ORDERS, 600.0), (EVERY_BROKER, 1000.0)) == [None, None]
    refused = alter(store, (LOGS, 300.0), (Entity.of(topic="other"), 200.0))
    assert refused[0] is None
    assert refused[1] is not None
    assert {str(entry.entity) for entry in store.describe(EVERYTHING)} == {
        "topic orders",
        "topic logs",
        "default broker",
    }


def test_a_refused_threshold_keeps_the_revision_and_the_quotas_beside_it(store: LocalStore) -> None:
    alter(store, (EVERY_BROKER, 100.0))
    before = store.watch(None, timeout_s=0)
    assert before is not None
    assert alter(store, (ORDERS, 101.0))[0] is not None
    assert store.watch(before.revision, timeout_s=0) is None


def test_the_total_of_a_broker_is_its_own_before_that_of_all() -> None:
    settings = ThresholdSettings.of(
        [(EVERY_BROKER, {TOTAL_KEY: 100.0}), (BROKER_2, {TOTAL_KEY: 200.0}), (ORDERS, {TOPIC_KEY: 10.0})]
    )
    assert [settings.total_of(broker) for broker in ("1", "2", None)] == [100.0, 200.0, 100.0]
    assert settings.topics == {"orders": 10.0}
    assert not ThresholdSettings.of([(ORDERS, {TOPIC_KEY: 10.0})]).totals
    with pytest.raises(InvalidQuotaError):
        ThresholdSettings.of([(BROKER_2, {TOTAL_KEY: 9.0}), (ORDERS, {TOPIC_KEY: 10.0})])
