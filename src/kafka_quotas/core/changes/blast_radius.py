"""The clients that a change of stored quotas affects: those whose winning entity or limit differs.

The known clients are those that stored entities name, before or after: pairs, users and client-ids with any other of
the rest, users together with client-ids that have a quota of their own, clients without a client-id, addresses, and
any other client. A user's client-id that no quota names together with the user is reported only if its quotas differ
from those of any other client-id of that user and of any other user of that client-id. The result is that of a freshly
started broker, before and after.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, NamedTuple

from kafka_quotas.core.changes.plan import Content, Plan, applied
from kafka_quotas.core.described import Described, Limit
from kafka_quotas.core.model.entity import Absent, Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS, QuotaKey
from kafka_quotas.core.resolution.effective import OTHER, EffectiveQuotas, Name, QuotaClient, unused_name
from kafka_quotas.core.resolution.quota_resolver import AppliedQuota

_NAMED: Final = "names by entity type; a type that is left out is any other name"
MOST_COMBINATIONS: Final = 100_000
"""The maximum number of combinations of users with client-ids per quota key."""


class ClientQuotas(NamedTuple):
    """The quota that applies to a client."""

    limit: Limit
    entity: Entity | None
    """The entity that wins; None: unlimited."""


_Both = tuple[ClientQuotas, ClientQuotas]
"""What applies before and after."""


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
    after = applied(stored, plan.changes)
    known = sorted({*stored, *after}, key=lambda entity: entity.sort_key)
    sides = EffectiveQuotas(stored.items()), EffectiveQuotas(after.items())
    affected: list[Affected] = []
    left_out = 0
    for name in dict.fromkeys(change.key for change in sorted(plan.changes, key=lambda change: change.key)):
        key = QUOTA_KEYS.get(name)
        if key is None:
            continue
        limited = {entity for side in (stored, after) for entity, quotas in side.items() if name in quotas}
        comparison = _Comparison(key, sides, known, limited)
        if key.for_ip:
            affected += comparison.of_addresses()
        else:
            affected += comparison.of_clients({change.entity for change in plan.changes if change.key == name})
            left_out += comparison.left_out
    return BlastRadius(affected=tuple(affected), combinations_left_out=left_out)


class _Comparison:
    def __init__(
        self,
        key: QuotaKey,
        sides: tuple[EffectiveQuotas, EffectiveQuotas],
        known: Sequence[Entity],
        limited: Collection[Entity],
    ) -> None:
        self.left_out = 0
        self._key = key
        self._sides = sides
        # If no limit is by client-id at all, a client without one fares as any other.
        self._by_client_id = any(not isinstance(entity.client_id, Absent) for entity in limited)
        self._other = unused_name({name for entity in known for _, name in entity.parts})
        self._addresses = _names(entity.ip for entity in known if entity in limited)
        self._users = _names(entity.user for entity in known)
        self._client_ids = _names(entity.client_id for entity in known if not isinstance(entity.user, str))
        self._pairs = {
            (entity.user, entity.client_id): None
            for entity in known
            if isinstance(entity.user, str) and isinstance(entity.client_id, str)
        }

    def of_addresses(self) -> Iterator[Affected]:
        for name in (*self._addresses, None):
            compared = self._both(QuotaClient(ip=self._other if name is None else name))
            yield from self._changed(QuotaClient(ip=_or_other(name)), compared)

    def of_clients(self, touched: set[Entity]) -> Iterator[Affected]:
        """Yield the affected clients, user by user, then by client-id."""
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

    def _unnamed(self, user: str | None, usual: _Both) -> list[tuple[str | None, _Both]]:
        """Return any other client-id, and the empty one if its quotas differ."""
        without = self._compared(user, "") if self._by_client_id else usual
        return [(None, usual)] if without == usual else [(None, usual), ("", without)]

    def _differing(self, user: str | None, found: Sequence[tuple[str | None, _Both]]) -> Iterator[Affected]:
        for client_id, both in found:
            yield from self._changed(QuotaClient(user=_or_other(user), client_id=_or_other(client_id)), both)

    def _changed(self, client: QuotaClient, both: _Both) -> Iterator[Affected]:
        if both[0] != both[1]:
            yield Affected(client, self._key.name, *both)

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

    def _compared(self, user: str | None, client_id: str | None) -> _Both:
        user, client_id = (self._other if name is None else name for name in (user, client_id))
        return self._both(QuotaClient(user=user, client_id=client_id))

    def _both(self, client: QuotaClient) -> _Both:
        before, after = (side.match(self._key, client) for side in self._sides)
        return _client_quotas(before), _client_quotas(after)


def _client_quotas(match: AppliedQuota | None) -> ClientQuotas:
    return ClientQuotas(None, None) if match is None else ClientQuotas(match.limit, match.entity)


def _names(parts: Iterable[str | Absent | None]) -> list[str]:
    return list(dict.fromkeys(name for name in parts if isinstance(name, str)))


def _or_other(name: str | None) -> Name:
    return OTHER if name is None else name
