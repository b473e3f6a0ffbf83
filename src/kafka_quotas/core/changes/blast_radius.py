"""The clients that a change of stored quotas affects: those whose winning entity or limit differs.

The known clients are those that stored entities name, before or after: pairs, users and client-ids with any other of
the rest, users together with client-ids that have a quota of their own, clients without a client-id, addresses, and
any other client. A user's client-id that no quota names together with the user is reported only if its quotas differ
from those of any other client-id of that user and of any other user of that client-id. The result is that of a freshly
started broker, before and after.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, NamedTuple

from kafka_quotas.core.changes.plan import Content, Plan
from kafka_quotas.core.described import Described, Limit
from kafka_quotas.core.model.entity import Absent, Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS, QuotaKey
from kafka_quotas.core.resolution.effective import OTHER, Name, QuotaClient, unused_name
from kafka_quotas.core.resolution.quota_resolver import AppliedQuota, IpQuotaResolver, QuotaResolver

_NAMED: Final = "names by entity type; a type that is left out is any other name"
MOST_COMBINATIONS: Final = 100_000
"""The maximum number of combinations of users with client-ids per quota key."""


class ClientQuotas(NamedTuple):
    """The quota that applies to a client."""

    limit: Limit
    entity: Entity | None
    """The entity that wins; None: unlimited."""


@dataclass(frozen=True, slots=True)
class Affected:
    """A client and a quota key whose effective quota changes."""

    DOCUMENT: ClassVar = "client=named key before after"
    client: QuotaClient
    key: str
    before: ClientQuotas
    after: ClientQuotas

    @property
    def named(self) -> Annotated[Mapping[str, str], Described(text=_NAMED)]:
        """The names of the client by entity type."""
        return {kind: name for kind, name in self.client.parts if isinstance(name, str)}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlastRadius:
    """The affected clients by key and client."""

    affected: Annotated[tuple[Affected, ...], Described(text="the clients whose effective quota changes")]
    combinations_left_out: Annotated[int, Described(text="pairs of a user and a client-id that were not looked at")]


def blast_radius(stored: Content, plan: Plan) -> BlastRadius:
    """Return the clients whose effective quotas a plan changes."""
    after = plan.applied_to(stored)
    known = sorted({*stored, *after}, key=lambda entity: entity.sort_key)
    affected: list[Affected] = []
    left_out = 0
    for name in dict.fromkeys(change.key for change in sorted(plan.changes, key=lambda change: change.key)):
        key = QUOTA_KEYS.get(name)
        if key is None:
            continue
        limits = _limits(stored, key), _limits(after, key)
        if key.for_ip:
            affected += _affected_addresses(key, *limits)
            continue
        touched = {change.entity for change in plan.changes if change.key == name}
        comparison = _Comparison(key, *limits, known)
        affected += comparison.affected(touched)
        left_out += comparison.left_out
    return BlastRadius(affected=tuple(affected), combinations_left_out=left_out)


_Limits = Mapping[Entity, float]


def _limits(content: Content, key: QuotaKey) -> _Limits:
    """Return the limits under one key, skipping entities of another kind than the key's as brokers do."""
    return {
        entity: quotas[key.name]
        for entity, quotas in content.items()
        if key.name in quotas and key.for_ip != isinstance(entity.ip, Absent)
    }


def _client_quotas(match: AppliedQuota | None) -> ClientQuotas:
    return ClientQuotas(None, None) if match is None else ClientQuotas(match.limit, match.entity)


class _Comparison:
    def __init__(self, key: QuotaKey, before: _Limits, after: _Limits, entities: Sequence[Entity]) -> None:
        self.left_out = 0
        self._key = key.name
        self._sides = _resolver(before), _resolver(after)
        # Where no limit is by client-id at all, a client without one fares as any other.
        self._by_client_id = any(
            not isinstance(entity.client_id, Absent) for side in (before, after) for entity in side
        )
        taken = {name for entity in entities for _, name in entity.parts}
        self._other = unused_name(taken)
        self._users = list(dict.fromkeys(entity.user for entity in entities if isinstance(entity.user, str)))
        self._client_ids = list(
            dict.fromkeys(
                entity.client_id
                for entity in entities
                if isinstance(entity.client_id, str) and not isinstance(entity.user, str)
            )
        )
        self._pairs = {
            (entity.user, entity.client_id): None
            for entity in entities
            if isinstance(entity.user, str) and isinstance(entity.client_id, str)
        }

    def affected(self, touched: set[Entity]) -> Iterator[Affected]:
        """Return the affected clients, user by user, then by client-id."""
        general = {client_id: self._compared(None, client_id) for client_id in (*self._client_ids, None)}
        crossings = self._crossings(touched)
        named: dict[str, list[str]] = {}
        for user, client_id in self._pairs:
            named.setdefault(user, []).append(client_id)
        for user in self._users:
            usual = self._compared(user, None)
            own = [(client_id, self._compared(user, client_id)) for client_id in named.get(user, ())]
            crossed = [
                (client_id, found)
                for client_id in crossings.get(user, ())
                if (user, client_id) not in self._pairs
                and (found := self._compared(user, client_id)) not in (usual, general[client_id])
            ]
            yield from self._differing(user, [*sorted([*own, *crossed]), *self._unnamed(user, usual)])
        rest = [(client_id, general[client_id]) for client_id in self._client_ids]
        yield from self._differing(None, [*rest, *self._unnamed(None, general[None])])

    def _unnamed(
        self, user: str | None, usual: tuple[ClientQuotas, ClientQuotas]
    ) -> list[tuple[str | None, tuple[ClientQuotas, ClientQuotas]]]:
        """Return any other client-id, and the empty one if its quotas differ."""
        without = self._compared(user, "") if self._by_client_id else usual
        return [(None, usual)] if without == usual else [(None, usual), ("", without)]

    def _differing(
        self, user: str | None, found: list[tuple[str | None, tuple[ClientQuotas, ClientQuotas]]]
    ) -> Iterator[Affected]:
        for client_id, (before, after) in found:
            if before != after:
                client = QuotaClient(user=_or_other(user), client_id=_or_other(client_id))
                yield Affected(client, self._key, before, after)

    def _crossings(self, touched: set[Entity]) -> dict[str, list[str]]:
        """Return client-ids to look at with a user: all, where too many those that change, or none."""
        if len(self._users) * len(self._client_ids) <= MOST_COMBINATIONS:
            return dict.fromkeys(self._users, self._client_ids)
        users = {entity.user for entity in touched}
        touched_client_ids = {entity.client_id for entity in touched}
        client_ids = [name for name in self._client_ids if name in touched_client_ids]
        full = [user for user in self._users if user in users]
        count = len(full) * len(self._client_ids) + (len(self._users) - len(full)) * len(client_ids)
        if count > MOST_COMBINATIONS:
            self.left_out = count
            return {}
        return {user: self._client_ids if user in users else client_ids for user in self._users}

    def _compared(self, user: str | None, client_id: str | None) -> tuple[ClientQuotas, ClientQuotas]:
        """Return what applies before and after, where None is a name without stored quotas."""
        pair = (self._other if user is None else user, self._other if client_id is None else client_id)
        before, after = self._sides
        return _of(before, pair), _of(after, pair)


def _or_other(name: str | None) -> Name:
    return OTHER if name is None else name


def _of(resolver: QuotaResolver, pair: tuple[str, str]) -> ClientQuotas:
    return _client_quotas(resolver.match(resolver.bucket(*pair)) if resolver.enabled else None)


def _resolver(limits: _Limits) -> QuotaResolver:
    resolver = QuotaResolver()
    for entity, limit in limits.items():
        resolver.update(entity, limit)
    return resolver


def _affected_addresses(key: QuotaKey, before: _Limits, after: _Limits) -> Iterator[Affected]:
    sides = IpQuotaResolver(), IpQuotaResolver()
    for resolver, limits in zip(sides, (before, after), strict=True):
        for entity, limit in limits.items():
            resolver.update(entity, limit)
    entities = sorted({*before, *after}, key=lambda entity: entity.sort_key)
    names = list(dict.fromkeys(entity.ip for entity in entities if isinstance(entity.ip, str)))
    other = unused_name(set(names))
    for name in (*names, None):
        old, new = (_client_quotas(resolver.match(other if name is None else name)) for resolver in sides)
        if old != new:
            yield Affected(QuotaClient(ip=_or_other(name)), key.name, old, new)
