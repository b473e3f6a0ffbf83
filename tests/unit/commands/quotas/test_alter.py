"""`alter` from the values to the result: one validation, one read, and warnings that come with the result."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_quotas.commands.quotas.alter import alter
from kafka_quotas.core.changes import validation
from kafka_quotas.core.errors import InvalidQuotaError, KafkaQuotasError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores.address import StoreKind
from kafka_quotas.stores.local import LocalStore

ALICE = Entity.of(user="alice")
RATE, MUTATIONS = "producer_byte_rate", "controller_mutation_rate"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    opened = LocalStore(tmp_path / "quotas.db")
    yield opened
    opened.close()


def test_a_change_is_validated_once(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Entity] = []
    unmeant_entity = validation._unmeant_entity

    def counted(entity: Entity) -> InvalidQuotaError | None:
        checked.append(entity)
        return unmeant_entity(entity)

    monkeypatch.setattr(validation, "_unmeant_entity", counted)
    result = alter(store, entity=ALICE, changes={RATE: 1000.0})
    assert checked == [ALICE]
    assert [(change.key, change.old, change.new) for change in result.changes] == [(RATE, None, 1000.0)]
    assert not result.checked_by_broker


def test_an_invalid_change_is_refused_before_a_key_that_is_not_set(store: LocalStore) -> None:
    with pytest.raises(InvalidQuotaError, match="unknown quota key"):
        alter(store, entity=ALICE, changes={"speed": None})
    with pytest.raises(KafkaQuotasError, match="not set on user alice, so not removed: producer_byte_rate"):
        alter(store, entity=ALICE, changes={RATE: None})


def test_brokers_that_ignore_a_key_are_in_the_result(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def old_brokers() -> tuple[str, ...]:
        asked.append("brokers")
        return ("1", "3")

    monkeypatch.setattr(store, "old_brokers", old_brokers)
    monkeypatch.setattr(store, "kind", StoreKind.KAFKA)
    result = alter(store, entity=ALICE, changes={RATE: 1.0, MUTATIONS: 5.0})
    assert result.warnings == (f"broker 1, 3 is older than Kafka 2.7 and ignores {MUTATIONS}",)
    assert result.checked_by_broker
    for changes in ({RATE: 2.0}, {MUTATIONS: None}):
        assert alter(store, entity=ALICE, changes=changes).warnings == ()
    assert asked == ["brokers"]
