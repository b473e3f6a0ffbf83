"""Entities, keys and the virtual clock: the values every part speaks."""

import pytest
from tests.support.core.virtual_clock import VirtualClock

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS, suggest_key


def test_an_absent_part_is_not_a_default() -> None:
    assert Entity.of(user=None) != Entity.of()
    assert Entity.of(user=None).user is None
    assert Entity.of(user=None).client_id is ABSENT
    assert not ABSENT


def test_the_order_of_parts_does_not_matter() -> None:
    pair = Entity.from_pairs([("client-id", "c"), ("user", "u")])
    assert pair == Entity.of(user="u", client_id="c") == Entity.from_mapping({"client-id": "c", "user": "u"})
    assert hash(pair) == hash(Entity.of(user="u", client_id="c"))
    assert pair.to_mapping() == {"user": "u", "client-id": "c"}


@pytest.mark.parametrize("pairs", [[("topics", "t")], [("user", "a"), ("user", "b")], [("User", "a")]])
def test_odd_parts_are_refused(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(UsageError):
        Entity.from_pairs(pairs)


def test_entities_sort_by_type_then_name_defaults_last() -> None:
    entities = [
        Entity.of(ip="1.1.1.1"),
        Entity.of(client_id="a"),
        Entity.of(user=None),
        Entity.of(user="b", client_id="c"),
        Entity.of(user="b"),
    ]
    assert [str(entity) for entity in sorted(entities, key=lambda entity: entity.sort_key)] == [
        "user b",
        "user b, client-id c",
        "default user",
        "client-id a",
        "ip 1.1.1.1",
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("alice", "user alice"),
        ("", "user ''"),
        ("a b", "user 'a b'"),
        ("default user", "user 'default user'"),
        ("é", "user é"),
    ],
)
def test_names_that_could_be_misread_are_quoted(name: str, shown: str) -> None:
    assert str(Entity.of(user=name)) == shown


def test_every_misspelling_leads_to_its_key() -> None:
    for key in QUOTA_KEYS.values():
        assert key.name not in key.misspellings
        for name in (key.name, f" {key.name.upper()} ", *key.misspellings):
            assert suggest_key(name) is key
    assert suggest_key("retention.ms") is None


def test_the_virtual_clock_moves_when_told() -> None:
    clock = VirtualClock(1_000)
    assert clock.advance(-1) == clock.now_ms() == 999
