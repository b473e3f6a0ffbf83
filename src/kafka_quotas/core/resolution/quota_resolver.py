"""Resolution of the entity, limit and bucket of a user and client-id for one quota key, or of an address.

As in Kafka, the first step chooses the bucket by the kinds of levels ever used, and the second one looks the limit up
from the bucket alone. So a client default never limits an empty client-id, on any level. An address has its own limit,
else the default's, and always a bucket of its own. Addresses are compared as addresses, not as text.

A group's limit is no level: its bucket is one more that its clients are charged at, whatever their own limit is.

Invariants: a kind of level once used stays used, removals included. Names are raw, only `bucket_tags` sanitizes.
Sanitizing maps different names to different tags, so buckets of raw names are shared exactly as Kafka's are.
`changed_since` never misses a change that concerns a client, and reports no other client for a change of one entity, as
long as few entities change between two calls.

**Source:** `ClientQuotaManager.updateQuota`, `DefaultQuotaCallback` and `ConnectionQuotas.connectionRateForIp` (4.0),
Java's `InetAddress` for the identity of addresses; static levels 9 and 10: KIP-13.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv6Address, ip_address
from typing import Annotated, Final

from kafka_quotas.core.described import Described
from kafka_quotas.core.errors import InvalidQuotaError, UsageError
from kafka_quotas.core.model.entity import (
    ABSENT,
    Absent,
    Entity,
    desanitize,
    ipv4_literal,
    ipv6_literal,
    sanitize,
    shown_name,
)

Bucket = tuple[str, str]
"""Raw user and client-id of a bucket; `""` for any."""

Level = Annotated[int | str, Described(text="1 to 8 in Kafka's order, ip, or of groups: group or guaranteed")]
"""1 (most specific) to 8, 9 and 10 for static configuration, or `ip`, `ip-default`, `group` and `guaranteed`."""

_Name = str | Absent | None
_Key = tuple[_Name, _Name]

MAX_CHANGES: Final = 1000
"""The number of changed entities to track; beyond it every client repeats its lookup once."""
GROUP_USER: Final = "\0group"
"""In the place of a user, the mark of a group's bucket; the group's name is in the place of the client-id."""
GUARANTEED_USER: Final = "\0guaranteed"
"""The mark of the bucket that measures what a group uses of its guaranteed rate."""
GROUP_LEVELS: Final = {GROUP_USER: "group", GUARANTEED_USER: "guaranteed"}
"""The levels by which the limits of marked buckets are reported."""
GROUP_MARKS: Final = tuple(GROUP_LEVELS)
NEVER: Final = -1
"""The generation of what was never looked up."""

STATIC_OVERRIDE_LEVEL = 9
STATIC_DEFAULT_LEVEL = 10

LEVEL_PATHS: dict[Level, str] = {
    1: "/users/USER/clients/CLIENT",
    2: "/users/USER/clients/<default>",
    3: "/users/USER",
    4: "/users/<default>/clients/CLIENT",
    5: "/users/<default>/clients/<default>",
    6: "/users/<default>",
    7: "/clients/CLIENT",
    8: "/clients/<default>",
    STATIC_OVERRIDE_LEVEL: "static override of CLIENT",
    STATIC_DEFAULT_LEVEL: "static default",
    "ip": "/ips/ADDRESS",
    "ip-default": "/ips/<default>",
    "group": "group NAME",
    "guaranteed": "guaranteed rate of group NAME",
}
"""Every level, most specific first, and how it is written."""


class LevelKind(Enum):
    """The kinds of levels whose use a broker keeps in mind: by client-id, by user, by the pair of both."""

    CLIENT = "client"
    USER = "user"
    PAIR = "pair"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedQuota:
    """A stored limit that applies: its level, its entity, and the limit in the unit of the quota key."""

    level: Level
    entity: Entity
    limit: Annotated[float, Described(text="in the unit of the key")]


def bucket_tags(bucket: Bucket) -> tuple[str, str]:
    """Return the tags by which Kafka names a bucket: the sanitized user and the raw client-id.

    A group's bucket has `:group` or `:guaranteed` in place of a user, which no sanitized user is.
    """
    user, client_id = bucket
    return user.replace("\0", ":") if user in GROUP_MARKS else sanitize(user), client_id


def bucket_of_tags(user: str, client_id: str) -> Bucket:
    """Return the bucket that `bucket_tags` names, with a user that can't be read as it is."""
    mark = user.replace(":", "\0", 1)
    if mark in GROUP_MARKS:
        return mark, client_id
    try:
        return desanitize(user), client_id
    except InvalidQuotaError:
        return user, client_id


def group_text(bucket: Bucket) -> str | None:
    """Return the name of a group's bucket as people read it, None for a client's bucket."""
    mark, group = bucket
    if mark not in GROUP_MARKS:
        return None
    return LEVEL_PATHS[GROUP_LEVELS[mark]].replace("NAME", shown_name(group))


def level_kind(entity: Entity) -> LevelKind:
    """Return the kind of level that an entity of user and client-id parts belongs to."""
    has_user, has_client = entity.user is not ABSENT, entity.client_id is not ABSENT
    if not (has_user or has_client):
        raise UsageError(f"no user or client-id in this entity: {entity or '(empty)'}")
    if not has_user:
        return LevelKind.CLIENT
    return LevelKind.PAIR if has_client else LevelKind.USER


class QuotaResolver:
    """The quotas of one key over users and client-ids, and the kinds of levels ever used."""

    __slots__ = ("_all_changed", "_changes", "_groups", "_kinds", "_limits", "_static", "generation")

    def __init__(self, history_levels: Iterable[LevelKind] = ()) -> None:
        self._limits: dict[_Key, AppliedQuota] = {}
        self._static: dict[str | None, AppliedQuota] = {}
        self._groups: dict[Bucket, AppliedQuota] = {}
        self._kinds = set(history_levels)
        self.generation = 0
        """Differs after every change that may give a client another limit or bucket."""
        self._all_changed = 0
        self._changes: dict[tuple[str | None, str | None], int] = {}  # None: of any name

    @property
    def count(self) -> int:
        """The number of limits, static ones and those of groups included."""
        return len(self._limits) + len(self._static) + len(self._groups)

    @property
    def enabled(self) -> bool:
        """Whether any quota of this key was ever configured, before which brokers record nothing."""
        return bool(self._kinds or self._static)

    @property
    def kinds_in_use(self) -> frozenset[LevelKind]:
        """The kinds of levels ever used."""
        return frozenset(self._kinds)

    def update(self, entity: Entity, limit: float | None) -> None:
        """Set the limit of an entity, or remove it (None).

        Either puts the entity's kind of level in use for good.
        """
        kind = level_kind(entity)
        is_new_kind = kind not in self._kinds
        self._kinds.add(kind)
        key = (entity.user, entity.client_id)
        if limit is None:
            self._limits.pop(key, None)
        else:
            self._limits[key] = AppliedQuota(level=entity_level(entity), entity=entity, limit=float(limit))
        self._note_change(key, of_all=is_new_kind)

    def update_static(self, entity: Entity, limit: float | None) -> None:
        """Set or remove (None) a static limit: of a client-id (level 9) or the default (level 10)."""
        client_id = entity.client_id
        if isinstance(client_id, Absent) or len(entity.parts) != 1:
            raise UsageError(f"static quotas are set on client-ids, not on {entity}")
        had_any = bool(self._static)
        if limit is None:
            self._static.pop(client_id, None)
        else:
            level = STATIC_DEFAULT_LEVEL if client_id is None else STATIC_OVERRIDE_LEVEL
            self._static[client_id] = AppliedQuota(level=level, entity=entity, limit=float(limit))
        # With the first static limit, and with the last, everybody without another limit changes buckets.
        self._note_change((ABSENT, client_id), of_all=had_any != bool(self._static))

    def update_group(self, bucket: Bucket, limit: float | None) -> None:
        """Set or remove (None) the limit of a group's bucket, which no client gets by its names alone."""
        mark, name = bucket
        if limit is None:
            self._groups.pop(bucket, None)
        else:
            entity = Entity.of(group=name)
            self._groups[bucket] = AppliedQuota(level=GROUP_LEVELS[mark], entity=entity, limit=float(limit))
        self._note_change(bucket, of_all=False)

    def changed_since(self, generation: int, user: str, client_id: str) -> bool:
        """Return whether a change since a generation may concern a client or the bucket of these names.

        Args:
            generation: The `generation` of the last call, `NEVER` for none.
            user: The raw user, empty for a bucket of any user.
            client_id: The raw client-id, empty for a bucket of any client-id.
        """
        if self._all_changed > generation:
            return True
        changes = self._changes
        if not changes:
            return False
        return (
            changes.get((user, None), 0) > generation
            or changes.get((None, client_id), 0) > generation
            or changes.get((user, client_id), 0) > generation
        )

    def _note_change(self, key: _Key, *, of_all: bool) -> None:
        """Note whose lookups a change invalidates, where a default part covers any name."""
        self.generation += 1
        user, client_id = (part if isinstance(part, str) else None for part in key)
        if of_all or (user is None and client_id is None) or len(self._changes) >= MAX_CHANGES:
            self._all_changed = self.generation
            self._changes.clear()
        else:
            self._changes[user, client_id] = self.generation

    def bucket(self, user: str, client_id: str) -> Bucket:
        """Return the bucket of a user's client-id, meaningful only if `enabled`.

        Static limits rank below everything else: only a client without another limit gets their bucket.
        """
        bucket = self._stored_bucket(user, client_id)
        if self._static and self._stored_match(bucket) is None:
            return ("", client_id)
        return bucket

    def match(self, bucket: Bucket) -> AppliedQuota | None:
        """Return the limit of a bucket with its entity and level, or None if it is unlimited."""
        found = self._stored_match(bucket)
        if found is None and self._static and not bucket[0]:
            found = self._static.get(bucket[1]) or self._static.get(None)
        return found

    def limit(self, bucket: Bucket) -> float | None:
        """Return the limit of a bucket, or None if it is unlimited."""
        found = self.match(bucket)
        return None if found is None else found.limit

    def candidates(self, user: str, client_id: str) -> Iterator[AppliedQuota]:
        """Yield every limit whose entity matches a user's client-id, most specific first."""
        keys = {key for bucket in ((user, client_id), (user, ""), ("", client_id)) for key in _bucket_keys(bucket)}
        yield from sorted(
            (self._limits[key] for key in keys if key in self._limits), key=lambda match: int(match.level)
        )
        yield from (self._static[name] for name in (client_id, None) if name in self._static)

    def client_defaults(self, user: str) -> list[AppliedQuota]:
        """Return the stored defaults of client-ids for a user, which an empty client-id escapes."""
        keys: tuple[_Key, ...] = ((user, None), (None, None), (ABSENT, None))
        return [self._limits[key] for key in keys if key in self._limits]

    def _stored_bucket(self, user: str, client_id: str) -> Bucket:
        """Return the bucket by Kafka's rule: the one kind in use, else the first stored of levels 1 to 6."""
        kinds = self._kinds
        if len(kinds) > 1:
            return self._first_stored_bucket(user, client_id)
        if LevelKind.USER in kinds:
            return (user, "")
        if LevelKind.PAIR in kinds:
            return (user, client_id)
        return ("", client_id)

    def _first_stored_bucket(self, user: str, client_id: str) -> Bucket:
        """Return the bucket of the first stored entity of levels 1 to 6, else of the client-id.

        Whether an entity is stored is asked with the names as they are, an empty client-id included.
        """
        limits = self._limits
        if (user, client_id) in limits or (user, None) in limits:
            return (user, client_id)
        if (user, ABSENT) in limits:
            return (user, "")
        if (None, client_id) in limits or (None, None) in limits:
            return (user, client_id)
        if (None, ABSENT) in limits:
            return (user, "")
        return ("", client_id)

    def _stored_match(self, bucket: Bucket) -> AppliedQuota | None:
        """Return the first stored limit among those that a bucket's own kind of level has."""
        if bucket in self._groups:
            return self._groups[bucket]
        for key in _bucket_keys(bucket):
            if key in self._limits:
                return self._limits[key]
        return None


def _bucket_keys(bucket: Bucket) -> tuple[_Key, ...]:
    user, client_id = bucket
    if user and client_id:
        return ((user, client_id), (user, None), (None, client_id), (None, None))
    if user:
        return ((user, ABSENT), (None, ABSENT))
    return ((ABSENT, client_id), (ABSENT, None)) if client_id else ()


def entity_level(entity: Entity) -> Level:
    """Return the level of an entity of user and client-id parts, 1 to 8."""
    user, client_id = entity.user, entity.client_id
    if user is ABSENT:
        return 8 if client_id is None else 7
    of_client = 2 if client_id is ABSENT else 1 if client_id is None else 0
    return 1 + of_client + (3 if user is None else 0)


def canonical_address(text: str) -> str:
    """Return the canonical spelling of an address, or the text itself if it is no address.

    An IPv4 address inside IPv6 is that IPv4 address, and a zone makes no difference.
    """
    packed = _packed(text)
    if packed is None:
        return text
    address = ip_address(packed)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def is_address(text: str) -> bool:
    """Return whether the text is an address and not a host name, which only a broker resolves."""
    return _packed(text) is not None


def _packed(text: str) -> bytes | None:
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    return ipv4_literal(host) or ipv6_literal(host.partition("%")[0])


class IpQuotaResolver:
    """The connection quotas by address."""

    __slots__ = ("_default", "_limits")

    def __init__(self) -> None:
        self._limits: dict[str, tuple[Entity, float]] = {}
        self._default: float | None = None

    def update(self, entity: Entity, limit: float | None) -> None:
        """Set the limit of an address or of the default, or remove it (None)."""
        ip = entity.ip
        if isinstance(ip, Absent) or len(entity.parts) != 1:
            raise UsageError(f"connection quotas are set on addresses, not on {entity}")
        if ip is None:
            self._default = limit
        elif limit is None:
            self._limits.pop(canonical_address(ip), None)
        else:
            self._limits[canonical_address(ip)] = (entity, float(limit))

    def bucket(self, ip: str) -> tuple[str, str]:
        """Return the bucket of an address: the pair of `ip` and its canonical spelling."""
        return ("ip", canonical_address(ip))

    def match(self, ip: str) -> AppliedQuota | None:
        """Return the limit of an address (connections per second) with its entity and level (None: unlimited)."""
        return next(iter(self.candidates(ip)), None)

    def candidates(self, ip: str) -> list[AppliedQuota]:
        """Return the stored limits of the address itself and of the default, the winner first."""
        found = []
        own = self._limits.get(canonical_address(ip))
        if own is not None:
            found.append(AppliedQuota(level="ip", entity=own[0], limit=own[1]))
        if self._default is not None:
            found.append(AppliedQuota(level="ip-default", entity=Entity.of(ip=None), limit=self._default))
        return found
