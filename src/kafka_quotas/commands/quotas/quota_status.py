"""The status of each stored quota: whether any client gets it, and which quota wins where none does.

A quota is resolved for the clients that it was made for and that nothing more special concerns: for its own names, and
for an unused name in the place of a default. That is enough, because a client that is named elsewhere as well has more
quotas that win against it, never fewer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

from kafka_quotas.core.described import Described
from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS, is_threshold_entity
from kafka_quotas.core.resolution.effective import ANONYMOUS, OTHER, EffectiveQuota, EffectiveQuotas, Name, QuotaClient
from kafka_quotas.core.resolution.quota_resolver import STATIC_DEFAULT_LEVEL, STATIC_OVERRIDE_LEVEL, Level, entity_level
from kafka_quotas.stores import QuotaEntry


class QuotaStatus(StrEnum):
    """The effect of a stored quota on the clients that it is made for."""

    WINS = "wins"
    """Clients that it is made for get it."""
    PARTLY = "partly"
    """Only those of its clients get it that send no client-id."""
    SHADOWED = "shadowed"
    """Nobody gets it."""
    IGNORED = "ignored"
    """Brokers don't read it: the key is no quota, or not one of this kind of entity."""
    HOLDS = "holds"
    """Every client of the group is held to it, or guaranteed it, whichever quota of Kafka's it gets."""


@dataclass(frozen=True, slots=True)
class StoredQuotaStatus:
    """A stored quota and its status, by position like the row of a table."""

    DOCUMENT: ClassVar = "key level entity value=limit status shadowed_by"
    key: str
    entity: Annotated[Entity, Described(prefix="")]
    level: Level | None
    limit: float
    status: QuotaStatus
    shadowed_by: Entity | None = None

    @property
    def wins(self) -> bool:
        """Whether the clients that it is made for get it."""
        return self.status is QuotaStatus.WINS


def quota_statuses(entries: Sequence[QuotaEntry], *, static: bool = False) -> tuple[StoredQuotaStatus, ...]:
    """Return the status of every stored quota but thresholds, by key as in their table, then by entity."""
    resolver = EffectiveQuotas(entries, static=static)
    found = [
        each
        for entry in sorted(entries, key=lambda entry: entry.entity.sort_key)
        if not is_threshold_entity(entry.entity)
        for each in entry_statuses(entry, resolver, static=static)
    ]
    order = {name: index for index, name in enumerate(QUOTA_KEYS)}
    return tuple(sorted(found, key=lambda each: (order.get(each.key, len(order)), each.key)))


def client_quota_statuses(
    entries: Sequence[QuotaEntry], client: QuotaClient, *, static: bool = False
) -> tuple[StoredQuotaStatus, ...]:
    """Return the status of the stored quotas that fit one client.

    A user without client-id stands for a client-id that nothing is stored for, a client-id without user for a
    connection without authentication, and an empty client-id for a client that sends none.
    """
    resolver = EffectiveQuotas(entries, static=static)
    answers: tuple[EffectiveQuota, ...] = ()
    user, client_id = client.user, client.client_id
    if user is not None or client_id is not None:
        answers = resolver.for_client(ANONYMOUS if user is None else user, OTHER if client_id is None else client_id)
    if client.ip is not None:
        answers += (resolver.for_ip(client.ip),)
    return tuple(each for answer in answers for each in _of_answer(answer))


def entry_statuses(entry: QuotaEntry, resolver: EffectiveQuotas, *, static: bool) -> Iterator[StoredQuotaStatus]:
    """Yield the status of each quota of one entity, by key."""
    entity = entry.entity
    user, ip = (name if isinstance(name, str) else OTHER for name in (entity.user, entity.ip))
    of_ip = entity.ip is not ABSENT
    # Those with its client-id, or one with any other and one without.
    client_ids: tuple[Name, ...] = (entity.client_id,) if isinstance(entity.client_id, str) else (OTHER, "")
    clients = [QuotaClient(ip=ip)] if of_ip else [QuotaClient(user=user, client_id=each) for each in client_ids]
    level = _level(entity, static=static)
    for name, limit in sorted(entry.quotas.items()):
        key = QUOTA_KEYS.get(name)
        if key is None or key.for_ip != of_ip:
            yield StoredQuotaStatus(name, entity, None, limit, QuotaStatus.IGNORED)
            continue
        matches = [resolver.match(key, client) for client in clients]
        first, *others = (None if match is None else match.entity for match in matches)
        if first == entity:
            yield StoredQuotaStatus(name, entity, level, limit, QuotaStatus.WINS)
        else:
            status = QuotaStatus.PARTLY if entity in others else QuotaStatus.SHADOWED
            yield StoredQuotaStatus(name, entity, level, limit, status, first)


def _level(entity: Entity, *, static: bool) -> Level:
    if entity.ip is not ABSENT:
        return "ip-default" if entity.ip is None else "ip"
    if static:
        return STATIC_DEFAULT_LEVEL if entity.client_id is None else STATIC_OVERRIDE_LEVEL
    return entity_level(entity)


def _of_answer(answer: EffectiveQuota) -> Iterator[StoredQuotaStatus]:
    if answer.limit is None or answer.entity is None:
        return
    key = answer.key.name
    yield StoredQuotaStatus(key, answer.entity, answer.level, answer.limit, QuotaStatus.WINS)
    for lost in answer.overridden:
        yield StoredQuotaStatus(key, lost.entity, lost.level, lost.limit, QuotaStatus.SHADOWED, answer.entity)
