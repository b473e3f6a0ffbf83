"""The group of a client: the first that has a member that it fits, the groups within a group before the group itself.

A client that fits members of several groups is in one of them alone, together with the groups around that.

Client-ids are chosen by clients, so none may make a match slow: exact names are looked up in a table, a name is
compared with a pattern only if it has the pattern's longest text in it, and a comparison runs through a name once. A
client-id longer than `LONGEST_CLIENT_ID` fits no prefix or pattern of client-ids.

Members by listener or address are sorted out per connection: connections that fit the same of them share a table.
"""

import re
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.core.groups.group import Group, GroupMember, GroupTree
from kafka_quotas.core.resolution.quota_resolver import canonical_address

MOST_ORIGINS: Final = 256
"""Most different sets of members by listener and address that are kept ready at a time."""


LONGEST_CLIENT_ID: Final = 255
"""The longest client-id that is compared with prefixes and patterns, in characters."""


class Peer(NamedTuple):
    """What a connection shows before its client has logged in."""

    listener: str = ""
    address: str = ""


UNKNOWN_PEER: Final = Peer()
"""A connection of which neither is known: no member by listener or address fits it."""
Origin: TypeAlias = tuple[int, ...]
"""The members by listener and address that a connection fits, by their numbers."""


class _Candidate(NamedTuple):
    """A member that may still fit, and its group."""

    group: Group
    member: GroupMember


class _Wildcards(NamedTuple):
    """A member with a prefix or a pattern."""

    number: int
    needle: str
    """The longest text that a fitting name has in it, by which most names are ruled out."""
    is_in_client_id: bool
    is_of_client_id: bool
    """Whether a prefix or pattern is of the client-id."""
    fits: re.Pattern[str]
    """An expression for the user, a NUL and the client-id."""


class _Matcher:
    """The members of which a connection fits what they say of it, in the order in which they are tried."""

    def __init__(self, candidates: list[_Candidate]) -> None:
        self._groups = [each.group.name for each in candidates]
        self._exact: dict[tuple[str | None, str | None], int] = {}
        self._wildcards: list[_Wildcards] = []
        for number, (_, member) in enumerate(candidates):
            user, client_id = member.ways("user"), member.ways("client_id")
            if any(way is not None for way in (*user[1:], *client_id[1:])):
                self._wildcards.append(_wildcards(number, user, client_id))
            else:
                self._exact.setdefault((member.user, member.client_id), number)

    def group_of(self, user: str, client_id: str) -> str | None:
        exact, nobody = self._exact, len(self._groups)
        keys = ((user, client_id), (user, None), (None, client_id), (None, None))
        first = min(exact.get(key, nobody) for key in keys)
        # A user is no text of a client's choice, and has no NUL: the first one is the end of it.
        names, is_long = f"{user}\0{client_id}", len(client_id) > LONGEST_CLIENT_ID
        for number, needle, is_in_client_id, is_of_client_id, fits in self._wildcards:
            if number > first:
                break
            if is_long and is_of_client_id:
                continue
            if needle in (client_id if is_in_client_id else user) and fits.fullmatch(names):
                first = number
        return self._groups[first] if first < nobody else None


_Ways: TypeAlias = tuple[str | None, str | None, str | None]


def _wildcards(number: int, user: _Ways, client_id: _Ways) -> _Wildcards:
    of_user, of_client_id = _needle(*user), _needle(*client_id)
    is_longer = len(of_client_id) > len(of_user)
    fits = re.compile(_expression(*user, letter="[^\0]") + "\0" + _expression(*client_id, letter="."), re.DOTALL)
    is_of_client_id = client_id[1:] != (None, None)
    return _Wildcards(number, of_client_id if is_longer else of_user, is_longer, is_of_client_id, fits)


def _needle(exact: str | None, prefix: str | None, pattern: str | None) -> str:
    return exact or prefix or max(re.split(r"[*?]", pattern or ""), key=len)


def _expression(exact: str | None, prefix: str | None, pattern: str | None, *, letter: str) -> str:
    if exact is not None:
        return re.escape(exact)
    if pattern is None:
        return f"{re.escape(prefix or '')}{letter}*"
    pieces = pattern.split("*")
    head, *rest = ["".join(letter if each == "?" else re.escape(each) for each in piece) for piece in pieces]
    if not rest:
        return head
    *inner, tail = rest
    # Each inner piece is taken at its first place, for good: at a later one less of the name would be left to the rest.
    return f"{head}{''.join(f'(?>{letter}*?{piece})' for piece in inner if piece)}{letter}*{tail}"


class Membership:
    """The groups of clients by their names and connections."""

    def __init__(self, tree: GroupTree) -> None:
        self.tree = tree
        self._candidates = [_Candidate(group, member) for group in tree.walk() for member in group.members]
        self._by_origin = [number for number, each in enumerate(self._candidates) if _has_origin(each.member)]
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
        return next((group.name for group, member in fitting if member.is_of_connections), None)

    def origin(self, peer: Peer) -> Origin:
        """Return the same for connections whose clients are in the same groups if their names are the same."""
        return self._origin_of(peer) if self._by_origin else ()

    def _fitting(self, peer: Peer) -> Origin:
        return tuple(number for number in self._by_origin if fits_peer(self._candidates[number].member, peer))

    def _made(self, origin: Origin) -> _Matcher:
        passing = set(origin)
        return _Matcher(
            [each for number, each in enumerate(self._candidates) if number in passing or not _has_origin(each.member)]
        )


def _has_origin(member: GroupMember) -> bool:
    return member.listener is not None or member.address is not None


def fits_names(member: GroupMember, user: str | None, client_id: str | None) -> bool:
    """Return whether a client has the names that a member asks for, where None fits none."""
    return all(
        ways == (None, None, None) or (name is not None and _fitting(ways).fullmatch(name) is not None)
        for ways, name in ((member.ways("user"), user), (member.ways("client_id"), client_id))
    )


@lru_cache(maxsize=4096)
def _fitting(ways: _Ways) -> re.Pattern[str]:
    return re.compile(_expression(*ways, letter="."), re.DOTALL)


def fits_peer(member: GroupMember, peer: Peer) -> bool:
    """Return whether the listener and address of a connection are those of a member, if it names them."""
    if member.listener is not None and member.listener != peer.listener:
        return False
    if member.address is None:
        return True
    try:
        return ip_address(canonical_address(peer.address)) in member.address
    except ValueError:
        return False
