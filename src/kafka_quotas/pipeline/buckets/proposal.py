"""The quota bucket of each recorded client under proposed or stored quotas, with its limit.

Buckets ("entities" in the tables) hold per cluster and broker. Kafka's resolution decides, with the user and client-id
levels 1 to 8 and static ones below. Where no quota of a type is set at all, every client has a bucket of its own.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.groups.group import Group, GroupTree
from kafka_quotas.core.groups.membership import Membership
from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS, QuotaKey, QuotaType, suggest_key
from kafka_quotas.core.model.value_format import format_quota_value, parse_quota_value
from kafka_quotas.core.resolution.quota_resolver import AppliedQuota, Bucket, LevelKind, QuotaResolver


class DefaultScope(StrEnum):
    """The clients that a default quota holds for: each user, each client-id, or each pair of both."""

    USER = "user"
    CLIENT_ID = "client-id"
    PAIR = "pair"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns with the names of such a client."""
        return ("user", "client_id") if self is DefaultScope.PAIR else (self.value.replace("-", "_"),)

    @property
    def default_entity(self) -> Entity:
        """The entity of the default."""
        return Entity.from_pairs((column.replace("_", "-"), None) for column in self.columns)

    def entity(self, user: str | None, client_id: str | None) -> Entity:
        """Return the entity of one client."""
        names = {"user": user or "", "client_id": client_id or ""}
        return Entity.from_pairs((column.replace("_", "-"), names[column]) for column in self.columns)


class BucketName(NamedTuple):
    """A bucket at a broker, with both names of its client if it is of one client alone."""

    cluster: str
    broker_id: int
    user: str
    """User, empty if clients share the bucket across users."""
    client_id: str
    """Client-id, empty if clients share the bucket across client-ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Named quotas: a file's, a step's of a sweep, or a store's."""

    name: str
    entries: Sequence[tuple[Entity, Mapping[str, float]]]
    """The quotas of each entity, as a store's `describe` returns them."""
    static: Sequence[tuple[Entity, Mapping[str, float]]] = ()
    """Quotas that rank below all others."""
    later: "tuple[tuple[int, Proposal], ...]" = ()
    """Quotas that take the place of all of these from a time on, in ms since 1970 and whole seconds, ascending."""
    groups: tuple[Group, ...] = ()
    """The groups of clients, at all times."""


class ProposedQuotas:
    """One proposal for one quota type, which resolves any number of clients.

    `history` are the kinds of levels that were in use before.
    """

    def __init__(self, proposal: Proposal, quota_type: QuotaType, history: Iterable[LevelKind] = ()) -> None:
        self._resolver = QuotaResolver(history)
        key = quota_type.key.name
        self.stored: Final = {
            entity: quotas[key]
            for entity, quotas in proposal.entries
            if key in quotas and (entity.user is not ABSENT or entity.client_id is not ABSENT)
        }
        """The limits of users and client-ids."""
        self.static: Final = {entity: quotas[key] for entity, quotas in proposal.static if key in quotas}
        """The limits that rank below all others."""
        has_groups = any(key in group.by_key for group in proposal.groups)
        self.groups: Final = Membership(GroupTree(proposal.groups)) if has_groups else None
        """The groups of clients, None if none has a limit of the type."""
        for entity, limit in self.stored.items():
            self._resolver.update(entity, limit)
        for entity, limit in self.static.items():
            self._resolver.update_static(entity, limit)
        kinds = self.kinds
        names = frozenset(self.stored) if self.static or len(kinds) > 1 else frozenset()
        later, used = [], kinds
        for from_ms, each in proposal.later:
            later.append((from_ms, ProposedQuotas(each, quota_type, used)))
            used = later[-1][1].kinds
        self.later: Final = tuple(later)
        """The quotas of the type from later times on."""
        alone = proposal.name if later or has_groups else ""
        self.sharing: Final = (self._resolver.enabled, kinds, names, frozenset(self.static), alone)
        """Sharing of buckets: proposals with equal values differ in limits alone."""

    @property
    def kinds(self) -> frozenset[LevelKind]:
        """The kinds of levels in use."""
        return self._resolver.kinds_in_use

    @property
    def limits(self) -> bool:
        """Whether any quota of the type is proposed, at any time."""
        return self._resolver.enabled or self.groups is not None or any(each.limits for _, each in self.later)

    @property
    def partition_columns(self) -> frozenset[str]:
        """The columns that distinguish every two buckets: both, one, or none where that differs by client."""
        own = self._partition_columns()
        return own.intersection(*(each.partition_columns for _, each in self.later))

    def _partition_columns(self) -> frozenset[str]:
        _, kinds, _, static, _ = self.sharing
        if not self._resolver.enabled or (kinds == {LevelKind.PAIR} and not static):
            return frozenset({"user", "client_id"})
        if kinds == {LevelKind.USER} and not static:
            return frozenset({"user"})
        return frozenset({"client_id"}) if kinds <= {LevelKind.CLIENT} else frozenset()

    def bucket(self, user: str, client_id: str) -> Bucket:
        """Return the bucket of a client, its own where no quota is proposed."""
        return self._resolver.bucket(user, client_id) if self._resolver.enabled else (user, client_id)

    def match(self, bucket: Bucket) -> AppliedQuota | None:
        """Return the limit of a bucket with its level, None if it is unlimited."""
        return self._resolver.match(bucket) if self._resolver.enabled else None


def partition_columns(proposals: Iterable[Proposal]) -> tuple[str, ...]:
    """Return the columns whose equal values keep together clients that may share any bucket."""
    names = frozenset({"user", "client_id"})
    for proposal in proposals:
        for quota_type in QuotaType:
            names &= ProposedQuotas(proposal, quota_type).partition_columns
    return ("cluster", "broker_id", *sorted(names, reverse=True))


DEFAULT_STEPS: Final = 10
_RANGE: Final = re.compile(r"(?P<low>[^.]+(?:\.\d[^.]*)?)\.\.(?P<high>.+)")
_HINT: Final = "--sweep producer_byte_rate=1MiB..64MiB, or producer_byte_rate=1MiB,5MiB,20MiB"


def parse_sweep(
    text: str, default: DefaultScope, base: Proposal | None = None, *, steps: int = DEFAULT_STEPS
) -> list[Proposal]:
    """Return a proposal for each value of `KEY=LOW..HIGH` or `KEY=A,B,C`, ascending.

    It has the default set to the value, and all other quotas of `base`. A range has `steps` values of equal ratio, both
    ends included.

    Raises:
        UsageError: The key is not per client, a value is invalid, or the range is empty.
    """
    name, equals, values = text.partition("=")
    key = QUOTA_KEYS.get(name.strip())
    if not equals or key is None or key.for_ip:
        suggested = suggest_key(name)
        hint = f"did you mean {suggested.name}?" if suggested else _HINT
        raise UsageError(f"--sweep {text!r} names no quota key of clients", hint=hint)
    if match := _RANGE.fullmatch(values.strip()):
        low, high = (_value(key, match[end]) for end in ("low", "high"))
        if not low < high:
            raise UsageError(f"--sweep {text!r} is empty: {match['low']} is not below {match['high']}", hint=_HINT)
        factor, whole = (high / low) ** (1 / (steps - 1)), key.name.endswith("byte_rate")
        inner = (low * factor**step for step in range(1, steps - 1))
        found = {low, *(float(round(value)) if whole else float(f"{value:.6g}") for value in inner), high}
    else:
        found = {_value(key, each) for each in values.split(",")}
    entity, base = default.default_entity, base or Proposal(name="", entries=())
    return [_with_quota(base, entity, key, value) for value in sorted(found)]


def _value(key: QuotaKey, text: str) -> float:
    value = parse_quota_value(key, text)
    if not value > 0:
        raise UsageError(f"{key.name} must be above 0, not {text.strip()}", hint=_HINT)
    return value


def _with_quota(base: Proposal, entity: Entity, key: QuotaKey, value: float) -> Proposal:
    entries = dict(base.entries)
    own = {**entries.pop(entity, {}), key.name: value}
    return replace(
        base,
        name=f"{key.name}={format_quota_value(key, value)}",
        entries=(*entries.items(), (entity, own)),
        later=tuple((from_ms, _with_quota(each, entity, key, value)) for from_ms, each in base.later),
    )


_FOUR: Final = "(VALUES (true, true), (true, false), (false, true), (false, false)) AS four (takes_user, takes_client)"
_TAKEN: Final = """CASE WHEN takes_user THEN user ELSE '' END AS one_user,
    CASE WHEN takes_client THEN client_id ELSE '' END AS one_client"""


def common_requests(buckets: str, figures: Sequence[str]) -> str:
    """Return a query for the sums of figures over all buckets that may have requests in common with each.

    Two may have one in common where their users and their client-ids are equal, or empty in one of them: a bucket has
    an empty name where its requests are of any. Figures are summed by user and client-id, by either, and over all. A
    bucket asks for the sums by the names that it has itself: of its own, and of those that are empty in other buckets.

    `buckets` also have two texts: their `part`, and `asks`, the part of those that they may have requests in common
    with. The query gives `asks`, `user` and `client_id` of buckets with such others, each once, and the sums.
    """
    sums = ", ".join(f"CAST(sum({each}) AS BIGINT) AS {each}" for each in figures)
    return f"""SELECT asks, user, client_id, {sums}
        FROM (SELECT asks, user, client_id, user <> '' AS by_user, client_id <> '' AS by_client, {_TAKEN}
                FROM (SELECT DISTINCT asks, user, client_id FROM {buckets}) AS wanted CROSS JOIN {_FOUR}
                WHERE (user <> '' OR NOT takes_user) AND (client_id <> '' OR NOT takes_client)) AS asked
            JOIN (SELECT part AS asks, takes_user AS by_user, takes_client AS by_client, one_user, one_client, {sums}
                FROM (SELECT *, {_TAKEN} FROM {buckets} CROSS JOIN {_FOUR}) AS leveled
                GROUP BY part, takes_user, takes_client, one_user, one_client) AS given
            USING (asks, by_user, by_client, one_user, one_client)
        GROUP BY asks, user, client_id"""
