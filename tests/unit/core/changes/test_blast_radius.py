"""For whom a change counts: the worked cases, and everybody by brute force."""

import itertools
import random

import pytest

from kafka_quotas.core.changes import blast_radius as module
from kafka_quotas.core.changes.blast_radius import Affected, blast_radius
from kafka_quotas.core.changes.plan import Content, applied, plan_changes
from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.resolution.effective import OTHER, EffectiveQuotas, QuotaClient

PRODUCE, CONNECTIONS = "producer_byte_rate", "connection_creation_rate"


def told(
    stored: Content, desired: Content, *, prune: bool = False
) -> list[tuple[str, str, float | None, float | None]]:
    """(client, key, limit before, limit after) of everyone affected."""
    found = blast_radius(stored, plan_changes(stored, desired, prune=prune)).affected
    return [(str(each.client), each.key, each.before.limit, each.after.limit) for each in found]


def test_a_user_default_counts_for_every_known_user_without_one_of_its_own() -> None:
    stored = {Entity.of(user="own"): {PRODUCE: 5.0}, Entity.of(user="other"): {"consumer_byte_rate": 1.0}}
    assert told(stored, {Entity.of(user=None): {PRODUCE: 9.0}}) == [
        ("user other, client-id (any other)", PRODUCE, None, 9.0),
        ("user (any other), client-id (any other)", PRODUCE, None, 9.0),
    ]


def test_a_change_that_is_shadowed_counts_for_nobody() -> None:
    stored = {Entity.of(user="a", client_id="c"): {PRODUCE: 1.0}, Entity.of(user="a", client_id=None): {PRODUCE: 2.0}}
    found = blast_radius(stored, plan_changes(stored, {Entity.of(user="a"): {PRODUCE: 3.0}}))
    assert [str(each.client) for each in found.affected] == ["user a, client-id (none)"]


def test_another_winner_with_the_same_limit_counts() -> None:
    stored = {Entity.of(user=None): {PRODUCE: 5.0}}
    (found,) = blast_radius(stored, plan_changes(stored, {Entity.of(user="a"): {PRODUCE: 5.0}})).affected
    assert (found.before.entity, found.after.entity) == (Entity.of(user=None), Entity.of(user="a"))


def test_a_client_falls_from_its_user_to_its_own_quota() -> None:
    stored = {Entity.of(user="a"): {PRODUCE: 5.0}, Entity.of(client_id="c"): {PRODUCE: 7.0}}
    assert told(stored, {Entity.of(client_id="c"): {PRODUCE: 7.0}}, prune=True) == [
        ("user a, client-id c", PRODUCE, 5.0, 7.0),
        ("user a, client-id (any other)", PRODUCE, 5.0, None),
    ]


def test_addresses_count_by_their_own_and_by_default() -> None:
    stored = {Entity.of(ip="10.0.0.1"): {CONNECTIONS: 5.0}}
    assert told(stored, {Entity.of(ip=None): {CONNECTIONS: 9.0}, Entity.of(ip="10.0.0.2"): {CONNECTIONS: 1.0}}) == [
        ("ip 10.0.0.2", CONNECTIONS, None, 1.0),
        ("ip (any other)", CONNECTIONS, None, 9.0),
    ]


def test_too_many_combinations_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_COMBINATIONS", 3)
    stored = {Entity.of(user=f"u{number}"): {PRODUCE: 5.0} for number in range(4)}
    stored |= {Entity.of(client_id=f"c{number}"): {PRODUCE: 7.0} for number in range(4)}
    pruned = {Entity.of(user="u0"): {PRODUCE: 1.0}, Entity.of(user="u1"): {PRODUCE: 1.0}}
    found = blast_radius(stored, plan_changes(stored, pruned))
    assert found.combinations_left_out == 8
    assert [str(each.client) for each in found.affected] == [
        "user u0, client-id (any other)", "user u1, client-id (any other)",
    ]  # fmt: skip


NAMES = ("a", "b", None, ABSENT)
ENTITIES = [
    Entity.of(user=user, client_id=client_id)
    for user, client_id in itertools.product(NAMES, NAMES)
    if (user, client_id) != (ABSENT, ABSENT)
]


@pytest.mark.parametrize("seed", range(40))
def test_nobody_is_missing_and_nobody_is_told_wrongly(seed: int) -> None:
    chance = random.Random(seed)
    stored = {
        entity: {PRODUCE: float(chance.randint(1, 3))} for entity in chance.sample(ENTITIES, chance.randint(0, 6))
    }
    desired = {
        entity: {PRODUCE: float(chance.randint(1, 3))} for entity in chance.sample(ENTITIES, chance.randint(1, 6))
    }
    plan = plan_changes(stored, desired, prune=chance.random() < 0.5)
    after = applied(stored, plan.changes)
    affected = {each.client: each for each in blast_radius(stored, plan).affected}
    sides = [EffectiveQuotas(side.items()) for side in (stored, after)]
    named = {name for entity in {*stored, *after} for name in (entity.user,) if isinstance(name, str)}
    client_ids = {name for entity in {*stored, *after} for name in (entity.client_id,) if isinstance(name, str)}
    for user, client_id in itertools.product([*sorted(named), None], [*sorted(client_ids), None, ""]):
        outcomes = [_outcome(side, user, client_id) for side in sides]
        told_as = affected.get(client(user, client_id))
        if told_as is not None:
            assert _told(told_as) == outcomes
        elif outcomes[0] != outcomes[1]:
            general = [affected.get(client(u, c)) for u, c in ((user, None), (None, client_id))]
            assert outcomes in [_told(each) for each in general if each is not None]


def client(user: str | None, client_id: str | None) -> QuotaClient:
    return QuotaClient(user=OTHER if user is None else user, client_id=OTHER if client_id is None else client_id)


def _outcome(side: EffectiveQuotas, user: str | None, client_id: str | None) -> tuple[float | None, Entity | None]:
    answers = side.for_client(*(OTHER.value if name is None else name for name in (user, client_id)))
    (answer,) = (each for each in answers if each.key.name == PRODUCE)
    return (answer.limit, answer.entity)


def _told(affected: Affected) -> list[tuple[float | None, Entity | None]]:
    return [tuple(affected.before), tuple(affected.after)]
