"""The quotas that apply to a client by key: the limit, the winner, the losers, the sharing of buckets, and warnings.

A client is a user with a client-id, or an address. An empty client-id is a client that sends none. `OTHER` is any name
that nothing is stored for. The result is that of a freshly started broker with the given entries. Limits hold per
broker.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final

from kafka_quotas.core.described import Described, Limit, Sentences
from kafka_quotas.core.model.entity import ABSENT, CLIENT_ID, IP, USER, Entity, shown_name
from kafka_quotas.core.model.quota_key import CONNECTION_CREATION_RATE, QUOTA_KEYS, QuotaKey
from kafka_quotas.core.resolution.quota_resolver import (
    AppliedQuota,
    Bucket,
    IpQuotaResolver,
    Level,
    LevelKind,
    QuotaResolver,
    bucket_tags,
)


class Other(Enum):
    """The type of `OTHER`."""

    OTHER = "(any other)"


OTHER: Final = Other.OTHER
Name = str | Other


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaClient:
    """A client whose effective quotas are asked for or affected, with None for parts that are left out."""

    user: Name | None = None
    client_id: Name | None = None
    ip: Name | None = None

    @property
    def parts(self) -> tuple[tuple[str, Name], ...]:
        """The parts that are not left out, as pairs of type and name."""
        named = ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip))
        return tuple((kind, name) for kind, name in named if name is not None)

    def __str__(self) -> str:
        return ", ".join(f"{kind} {_shown(name)}" for kind, name in self.parts)


def outcomes_of_user(user: str, entities: Iterable[Entity]) -> list[QuotaClient]:
    """Return a user's clients: each stored client-id that can concern it, any other, and none."""
    concerning = [entity.client_id for entity in entities if not isinstance(entity.user, str) or entity.user == user]
    stored: list[Name] = [*sorted({client_id for client_id in concerning if isinstance(client_id, str)})]
    return [QuotaClient(user=user, client_id=client_id) for client_id in (*stored, OTHER, "")]


def clients_of_store(entities: Iterable[Entity]) -> list[QuotaClient]:
    """Return the clients that stored entities name, with any other of the rest, and addresses."""
    known: dict[QuotaClient, None] = {}
    for entity in sorted(entities, key=lambda each: each.sort_key):
        known.setdefault(_named_by(entity))
    return list(known)


def _named_by(entity: Entity) -> QuotaClient:
    if isinstance(entity.ip, str) or entity.ip is None:
        return QuotaClient(ip=entity.ip or OTHER)
    user, client_id = entity.user, entity.client_id
    return QuotaClient(
        user=user if isinstance(user, str) else OTHER, client_id=client_id if isinstance(client_id, str) else OTHER
    )


def unused_name(taken: Container[str | None]) -> str:
    """Return a name that is not taken, to resolve quotas for `OTHER` with."""
    name = OTHER.value
    while name in taken:
        name += "'"
    return name


def _shown(name: Name) -> str:
    if isinstance(name, Other):
        return name.value
    return shown_name(name) if name else "(none)"


ANONYMOUS = "ANONYMOUS"
"""The user that Kafka sees on a connection without authentication."""

Entries = Iterable[tuple[Entity, Mapping[str, float]]]
"""Entities and their quotas, key name to value in the unit of the key."""

NOTHING_MATCHED = "no quota matches: unlimited"
"""The warning of every answer without a limit."""
_EMPTY_CLIENT_ID = "an empty client-id is never limited by a client default: {entity} does not apply"
_PASSED_OVER = "{entity} fits, but does not apply: the levels in use lead to another bucket"


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveQuota:
    """The quota that applies under one key."""

    key: QuotaKey
    limit: Limit
    entity: Annotated[Entity | None, Described(text="whose quota it is; null for no limit")]
    level: Level | None
    bucket: Annotated[tuple[str, str] | None, Described(text="the names by which clients share the limit", prose=True)]
    """Kafka's tags (sanitized user and client-id, `""` for any), or `ip` and the address; None without a bucket."""
    overridden: tuple[AppliedQuota, ...]
    """The stored limits that match and lose."""
    shared_with: Annotated[str, Described(text="who shares the limit, in words")]
    warnings: Sentences


class EffectiveQuotas:
    """The entries of a store, indexed for lookups of many clients."""

    def __init__(self, entries: Entries, *, static: bool = False) -> None:
        """Index the entries, those of a static file with the levels 9 and 10."""
        self._by_key = {key: QuotaResolver() for key in QUOTA_KEYS.values() if not key.for_ip}
        self._by_address = IpQuotaResolver()
        self._taken: set[str | None] = set()
        for entity, quotas in entries:
            self._taken.update(name for _, name in entity.parts)
            if not static:
                self._store(entity, quotas)
                continue
            for name, limit in quotas.items():
                self._by_key[QUOTA_KEYS[name]].update_static(entity, limit)

    @classmethod
    def over(cls, resolvers: Mapping[QuotaKey, QuotaResolver], others: Entries = ()) -> "EffectiveQuotas":
        """Return the resolution over resolvers that keep changing, and over addresses in `others`."""
        found = cls((entity, quotas) for entity, quotas in others if entity.ip is not ABSENT)
        found._by_key = dict(resolvers)
        return found

    def _store(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        """Store the quotas of an entity but unknown keys and those of other entities, which brokers skip."""
        of_ip = entity.ip is not ABSENT
        for name, limit in quotas.items():
            key = QUOTA_KEYS.get(name)
            if key is None or key.for_ip != of_ip:
                continue
            if of_ip:
                self._by_address.update(entity, limit)
            else:
                self._by_key[key].update(entity, limit)

    def for_client(self, user: Name, client_id: Name) -> tuple[EffectiveQuota, ...]:
        """Return the effective quota per key of users and client-ids, where `""` is no client-id."""
        names = self._text(user), self._text(client_id)
        return tuple(_of_client(key, resolver, *names) for key, resolver in self._by_key.items())

    def match(self, key: QuotaKey, client: QuotaClient) -> AppliedQuota | None:
        """Return the limit that applies to a client under one key, or None if it is unlimited."""
        if key.for_ip:
            return self._by_address.match(self._text(client.ip or ""))
        resolver = self._by_key[key]
        bucket = resolver.bucket(self._text(client.user or ""), self._text(client.client_id or ""))
        return resolver.match(bucket) if resolver.enabled else None

    def _text(self, name: Name) -> str:
        return name if isinstance(name, str) else unused_name(self._taken)

    def for_ip(self, ip: Name) -> EffectiveQuota:
        """Return the effective connection quota of an address."""
        ip = self._text(ip)
        found = self._by_address.candidates(ip)
        return EffectiveQuota(
            key=CONNECTION_CREATION_RATE,
            limit=found[0].limit if found else None,
            entity=found[0].entity if found else None,
            level=found[0].level if found else None,
            bucket=self._by_address.bucket(ip) if found else None,
            overridden=tuple(found[1:]),
            shared_with="all connections from this address" if found else "nobody: nothing is counted",
            warnings=() if found else (NOTHING_MATCHED,),
        )


def _of_client(key: QuotaKey, resolver: QuotaResolver, user: str, client_id: str) -> EffectiveQuota:
    bucket = resolver.bucket(user, client_id) if resolver.enabled else None
    match = None if bucket is None else resolver.match(bucket)
    fitting = list(resolver.candidates(user, client_id))
    lost = fitting[fitting.index(match) + 1 :] if match in fitting else []
    return EffectiveQuota(
        key=key,
        limit=match.limit if match else None,
        entity=match.entity if match else None,
        level=match.level if match else None,
        bucket=None if bucket is None else bucket_tags(bucket),
        overridden=tuple(lost),
        shared_with=_sharers(bucket, resolver.kinds_in_use),
        warnings=tuple(_warnings(resolver.client_defaults(user), client_id, match, fitting)),
    )


def _sharers(bucket: Bucket | None, kinds: frozenset[LevelKind]) -> str:
    if bucket is None:
        return "nobody: nothing is counted"
    user, client_id = (shown_name(name) if name else "" for name in bucket)
    if user and client_id:
        return f"only user {user} with client-id {client_id}"
    if user and kinds == {LevelKind.PAIR}:
        return f"only user {user} with no client-id"
    if user:
        exception = " except those with a user+client-id quota" if LevelKind.PAIR in kinds else ""
        return f"all client-ids of user {user}{exception}"
    exception = " except users with a quota of their own or the default user's" if len(kinds) > 1 else ""
    clients = f"client-id {client_id}" if client_id else "no client-id"
    return f"all users with {clients}{exception}"


def _warnings(
    client_defaults: list[AppliedQuota], client_id: str, match: AppliedQuota | None, fitting: list[AppliedQuota]
) -> Iterable[str]:
    if not client_id:
        for default in client_defaults:
            if match is None or int(default.level) < int(match.level):
                yield _EMPTY_CLIENT_ID.format(entity=default.entity)
    before = fitting[: fitting.index(match)] if match in fitting else fitting
    for passed_over in before:
        yield _PASSED_OVER.format(entity=passed_over.entity)
    if match is None:
        yield NOTHING_MATCHED
