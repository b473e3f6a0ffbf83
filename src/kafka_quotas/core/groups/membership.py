"""The group of a client: the first that has a member that it fits, the groups within a group before the group itself.

A client that fits members of several groups is in one of them alone, together with the groups around that. A group's
limit is no level of Kafka's, and overrides none: a client is held to the quota of its own by those levels and to the
limit of every group around it, of which the longest throttle time counts.

Client-ids are chosen by clients, so none may make a match slow: exact names are looked up in a table, a name is
compared with a pattern only if it has the pattern's longest text in it, and a comparison runs through a name once. Of a
client-id longer than `LONGEST_CLIENT_ID` prefixes and patterns see its beginning and its end.

Members by listener or address are sorted out per connection: connections that fit the same of them share a table.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.core.groups.group import PARTS, Group, GroupMember, GroupRate, GroupTree, Names
from kafka_quotas.core.model.entity import shown_name
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.resolution.effective import ANONYMOUS, OTHER, EffectiveQuota, QuotaClient
from kafka_quotas.core.resolution.quota_resolver import bucket_tags, canonical_address

MOST_ORIGINS: Final = 256
"""Most different sets of members by listener and address that are kept ready at a time."""
LONGEST_CLIENT_ID: Final = 255
"""The longest client-id that is compared whole with prefixes and patterns, in characters."""
_HALF: Final = LONGEST_CLIENT_ID // 2


class Peer(NamedTuple):
    """What a connection shows before its client has logged in."""

    listener: str = ""
    address: str = ""


UNKNOWN_PEER: Final = Peer()
"""A connection of which neither is known: no member by listener or address fits it."""
Origin: TypeAlias = tuple[int, ...]
"""The members by listener and address that a connection fits, by their numbers."""


class _Candidate:
    """A member that may fit, and its group."""

    __slots__ = ("exact", "group", "is_in_client_id", "is_of_client_id", "member", "needle", "patterns")

    def __init__(self, group: Group, member: GroupMember) -> None:
        asked = user, client_id = [member.names(part) or _ANY for part in PARTS]
        self.group = group.name
        self.member = member
        self.exact: tuple[str | None, ...] | None = None
        """The names, None for any, unless it has a prefix or a pattern."""
        if all(names is _ANY or names.is_exact for names in asked):
            self.exact = tuple(None if names is _ANY else names.head for names in asked)
        self.is_in_client_id = len(client_id.needle) > len(user.needle)
        self.needle = (client_id if self.is_in_client_id else user).needle
        """The longest text that a fitting name has in it, by which most names are ruled out."""
        self.is_of_client_id = client_id is not _ANY and not client_id.is_exact
        """Whether a prefix or pattern is of the client-id, which is shortened for it."""
        self.patterns = [] if self.exact else [names.compiled() for names in asked]
        """The expressions of the user and the client-id, if either has a prefix or a pattern."""


_ANY: Final = Names(("", "*", ""))


class _Matcher:
    """The members of which a connection fits what they say of it, in the order in which they are tried."""

    def __init__(self, candidates: list[_Candidate]) -> None:
        self._groups = [each.group for each in candidates]
        self._exact: dict[tuple[str | None, ...], int] = {}
        self._wildcards: list[tuple[int, _Candidate]] = []
        for number, each in enumerate(candidates):
            if each.exact is None:
                self._wildcards.append((number, each))
            else:
                self._exact.setdefault(each.exact, number)

    def group_of(self, user: str, client_id: str) -> str | None:
        exact, nobody = self._exact, len(self._groups)
        keys = ((user, client_id), (user, None), (None, client_id), (None, None))
        first = min(exact.get(key, nobody) for key in keys)
        short = client_id
        if len(client_id) > LONGEST_CLIENT_ID:  # no text of a pattern has a NUL, so none is in both parts
            short = f"{client_id[:_HALF]}\0{client_id[-_HALF:]}"
        for number, each in self._wildcards:
            if number > first:
                break
            seen = user, short if each.is_of_client_id else client_id
            if each.needle in seen[each.is_in_client_id] and all(
                pattern.match(name) for pattern, name in zip(each.patterns, seen, strict=True)
            ):
                first = number
        return self._groups[first] if first < nobody else None


class Membership:
    """The groups of clients by their names and connections."""

    def __init__(self, tree: GroupTree) -> None:
        self.tree = tree
        self._candidates = [_Candidate(group, member) for group in tree.walk() for member in group.members]
        members = [each.member for each in self._candidates]
        self._by_origin = [at for at, each in enumerate(members) if (each.listener, each.address) != (None, None)]
        self._matcher = lru_cache(maxsize=MOST_ORIGINS)(self._made)
        self._origin_of = lru_cache(maxsize=16 * MOST_ORIGINS)(self._fitting)

    @property
    def has_origins(self) -> bool:
        """Whether any member goes by listener or address."""
        return bool(self._by_origin)

    def group_of(self, user: str, client_id: str, peer: Peer = UNKNOWN_PEER) -> str | None:
        """Return the name of a client's group, or None if it is in none."""
        return self._matcher(self.origin(peer)).group_of(user, client_id)

    def group_of_connection(self, peer: Peer) -> str | None:
        """Return the name of the group that a connection is in before its login, or None if it is in none."""
        fitting = [self._candidates[number] for number in self.origin(peer)]
        return next((each.group for each in fitting if each.member.is_of_connections), None)

    def origin(self, peer: Peer) -> Origin:
        """Return the same for connections whose clients are in the same groups if their names are the same."""
        return self._origin_of(peer) if self._by_origin else ()

    def _fitting(self, peer: Peer) -> Origin:
        address = _address(peer.address)
        members = ((number, self._candidates[number].member) for number in self._by_origin)
        return tuple(number for number, member in members if _fits(member, peer.listener, address))

    def _made(self, origin: Origin) -> _Matcher:
        left_out = {*self._by_origin} - {*origin}
        return _Matcher([each for number, each in enumerate(self._candidates) if number not in left_out])


def _fits(member: GroupMember, listener: str, address: IPv4Address | IPv6Address | None) -> bool:
    if member.listener is not None and member.listener != listener:
        return False
    return member.address is None or (address is not None and address in member.address)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(canonical_address(text))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientGroups:
    """The group of a client, and the rates of the groups around it."""

    group: str | None
    """The innermost one, None if the client is in none."""
    rates: tuple[GroupRate, ...] = ()
    """By key, the innermost group first."""
    needs_address: bool = False
    """Whether there are groups by listener or address, which a client's names alone don't show."""

    def beside(self, quotas: Iterable[EffectiveQuota]) -> tuple[EffectiveQuota, ...]:
        """Return a client's own quotas, each before the limits and guaranteed rates of its groups."""
        found = [
            EffectiveQuota(
                key=QUOTA_KEYS[bound.key],
                limit=bound.rate,
                entity=bound.entity,
                level=bound.level,
                bucket=bucket_tags(bound.bucket),
                overridden=(),
                shared_with=f"all clients in group {shown_name(bound.group)}",
                warnings=(),
            )
            for rate in self.rates
            for bound in rate.bounds()
        ]
        own = list(quotas)
        keys = dict.fromkeys(quota.key for quota in (*own, *found))
        return tuple(quota for key in keys for quota in (*own, *found) if quota.key is key)


UNKNOWN_GROUPS: Final = ClientGroups(group=None)
"""Those of a client if nobody says what groups there are."""


def groups_of(groups: Membership, client: QuotaClient) -> ClientGroups:
    """Return the groups of a client by its names, and of its connections by its address."""
    peer = Peer(address=client.ip if isinstance(client.ip, str) else "")
    of_connections = groups.group_of_connection(peer)
    group, around = of_connections, groups.tree.chain(of_connections)
    rates = [rate for rate in _rates(around) if client.ip is not None and QUOTA_KEYS[rate.key].for_ip]
    if client.user is not None or client.client_id is not None:
        names = ANONYMOUS if client.user is None else client.user, client.client_id or ""
        user, client_id = (name if isinstance(name, str) else OTHER.value for name in names)
        group = groups.group_of(user, client_id, peer)
        own = _rates(groups.tree.chain(group))
        rates = [*(rate for rate in own if not QUOTA_KEYS[rate.key].for_ip), *rates]
    return ClientGroups(group=group, rates=tuple(rates), needs_address=groups.has_origins)


def _rates(groups: Sequence[Group]) -> list[GroupRate]:
    found = [rate for group in groups for rate in group.rates()]
    return [rate for key in QUOTA_KEYS for rate in found if rate.key == key]
