"""Groups of clients that share limits, groups within groups, and the checks of all of them together.

    [[group]]
    name = "payments"
    producer_byte_rate = "50MiB"

    [[group]]
    name = "payments/checkout"                # within payments
    members = [{ user = "checkout" }, { client_id_prefix = "checkout-" }]
    guaranteed = { producer_byte_rate = "20MiB" }

Contract: a name is a path, and every group that it leads through is declared as well. A limit is held by one bucket for
all clients of the group and of the groups within it. A guaranteed rate is a part of the limit of a group around it:
while a group is below it, no limit around it throttles its clients. What the groups within a group are guaranteed adds
up to its limit at most, so keeping every guarantee keeps every limit.

Connections have no user or client-id yet: a limit on them takes groups whose members are by listener and address alone.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache, partial
from glob import escape
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import chain
from typing import Annotated, Final, NamedTuple, TypeAlias

from kafka_quotas.core.changes.validation import our_refusals
from kafka_quotas.core.described import Described
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.nodes import SourceLocation
from kafka_quotas.core.formats.typed_document import FieldSpec
from kafka_quotas.core.model.entity import Entity, shown_name
from kafka_quotas.core.model.quota_key import CONNECTION_CREATION_RATE, QUOTA_KEYS, QuotaKey
from kafka_quotas.core.model.value_format import format_number, parse_quota_value
from kafka_quotas.core.resolution.quota_resolver import GROUP_LEVELS, GROUP_MARKS, Bucket

MOST_LEVELS: Final = 8
"""Most groups that lie within each other."""
PARTS: Final = ("user", "client_id")
"""The names of a client that a member may ask for."""
_MAPPED_BITS: Final = 96
"""The bits of an IPv6 address before the IPv4 address in it."""
_Network: TypeAlias = IPv4Network | IPv6Network


def _value(key: QuotaKey, value: float | str) -> float:
    figure = parse_quota_value(key, value) if isinstance(value, str) else float(value)
    refused = our_refusals(Entity.of(ip="any") if key.for_ip else Entity.of(user="any"), {key.name: figure})
    if refused is not None:
        raise refused
    return figure


def _rate(name: str) -> FieldSpec:
    return FieldSpec(partial(_value, QUOTA_KEYS[name]), takes=int | float | str | None, about=QUOTA_KEYS[name].summary)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRates:
    """Rates by quota key, in the unit of the key, with None for those that are not set."""

    producer_byte_rate: Annotated[float | None, _rate("producer_byte_rate")] = None
    consumer_byte_rate: Annotated[float | None, _rate("consumer_byte_rate")] = None
    request_percentage: Annotated[float | None, _rate("request_percentage")] = None
    controller_mutation_rate: Annotated[float | None, _rate("controller_mutation_rate")] = None
    connection_creation_rate: Annotated[float | None, _rate("connection_creation_rate")] = None

    @property
    def by_key(self) -> dict[str, float]:
        """The rates that are set, by the name of their key."""
        return {name: rate for name in QUOTA_KEYS if (rate := getattr(self, name)) is not None}


def _network(text: str) -> _Network:
    try:
        network = ip_network(text)
    except ValueError as error:
        raise UsageError(f"not a range of addresses: {shown_name(text)} ({error})", hint="10.1.0.0/16") from None
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    # A connection counts for the IPv4 address that its IPv6 form has in it.
    return network if mapped is None else IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))


class Names(NamedTuple):
    """The names that fit an exact name, a prefix or a pattern."""

    parts: tuple[str, ...]
    """Texts, and between each two of them `*` for any text or `?` for any letter."""

    @property
    def is_exact(self) -> bool:
        """Whether it is one name."""
        return len(self.parts) == 1

    @property
    def head(self) -> str:
        """The text that they all begin with."""
        return self.parts[0]

    @property
    def needle(self) -> str:
        """The longest text that they all have in them."""
        return max(self.parts[::2], key=len)

    def compiled(self) -> re.Pattern[str]:
        """Return the regular expression of them, which takes one pass through a name."""
        return re.compile(translate("".join(text if at % 2 else escape(text) for at, text in enumerate(self.parts))))

    def fits(self, name: str) -> bool:
        """Return whether a name is one of them."""
        return _compiled(self).match(name) is not None

    def example(self, any_text: str) -> str:
        """Return one of them, with a text in place of each `*`."""
        return "".join({"*": any_text, "?": "x"}[text] if at % 2 else text for at, text in enumerate(self.parts))

    def __str__(self) -> str:
        return "".join(self.parts)


_compiled: Final = lru_cache(maxsize=4096)(Names.compiled)


def _filled(text: str) -> str:
    if not text:
        raise UsageError("it is empty", hint="a member names a user, a client-id, a listener or an address")
    return text


_Text: TypeAlias = Annotated[str | None, FieldSpec(_filled)]
_Glob: TypeAlias = Annotated[str | None, FieldSpec(_filled, about="Any text for *, any letter for ?.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """The clients that fit every part that is given here."""

    user: _Text = None
    user_prefix: _Text = None
    user_pattern: _Glob = None
    client_id: _Text = None
    client_id_prefix: _Text = None
    client_id_pattern: _Glob = None
    listener: _Text = None
    address: Annotated[
        _Network | None, FieldSpec(_network, takes=str | None, example='"10.1.0.0/16"', about="An address or a range.")
    ] = None

    def __post_init__(self) -> None:
        given = self.given
        if not given:
            raise UsageError("it names nobody", hint='user = "checkout", or client_id_prefix = "checkout-"')
        for part in PARTS:
            ways = [name for name in given if name.startswith(part)]
            if len(ways) > 1:
                raise UsageError(f"{' and '.join(ways)} exclude each other", hint="write a member for each")

    @property
    def given(self) -> dict[str, str]:
        """The parts that are given, as texts by name."""
        parts = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return {name: str(value) for name, value in parts if value is not None}

    def names(self, part: str) -> "Names | None":
        """Return what it asks of one of the `PARTS`, None for nothing."""
        name, prefix, pattern = getattr(self, part), getattr(self, f"{part}_prefix"), getattr(self, f"{part}_pattern")
        if pattern is not None:
            return Names(tuple(re.split("([*?])", pattern)))
        return Names((name,)) if name is not None else None if prefix is None else Names((prefix, "*", ""))

    @property
    def is_of_connections(self) -> bool:
        """Whether a connection shows that it fits before its client has logged in."""
        return all(self.names(part) is None for part in PARTS)

    def __str__(self) -> str:
        return ", ".join(f"{name} {shown_name(text)}" for name, text in self.given.items())


def _path(text: str) -> str:
    names = text.split("/")
    if not all(names) or not text.isprintable() or len(text) > _LONGEST:
        raise UsageError(
            f"not the name of a group: {shown_name(text)}", hint="payments, or payments/checkout for one within it"
        )
    if len(names) > MOST_LEVELS:
        raise UsageError(f"{text} lies within {len(names) - 1} groups, and {MOST_LEVELS - 1} are the most")
    return text


_LONGEST: Final = 255
_NO_FILE: Final = SourceLocation(source="")
_ROUNDING: Final = 1e-9
"""The part of a limit by which sums of rates may be off."""


class GroupBound(NamedTuple):
    """The bound of one bucket of a group."""

    group: str
    key: str
    mark: str
    """Whether it is a limit or a guaranteed rate, by one of the `GROUP_MARKS`."""
    rate: float

    @property
    def bucket(self) -> Bucket:
        """The name of the bucket."""
        return self.mark, self.group

    @property
    def level(self) -> str:
        """The level by which it is reported."""
        return GROUP_LEVELS[self.mark]

    @property
    def entity(self) -> Entity:
        """The entity by which it is reported."""
        return Entity.of(group=self.group)


class GroupRate(NamedTuple):
    """What one group has under one key."""

    group: str
    key: str
    limit: Annotated[float | None, Described(text="in the unit of the key; null for no limit of its own")]
    guaranteed: Annotated[float | None, Described(text="of the limits around it; null for nothing")]

    def bounds(self) -> list[GroupBound]:
        """Return the bounds of its buckets, the limit first."""
        rates = zip(GROUP_MARKS, (self.limit, self.guaranteed), strict=True)
        return [GroupBound(self.group, self.key, mark, rate) for mark, rate in rates if rate is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(GroupRates):
    """A group: its clients, its limits, and what it is guaranteed of the limits of the groups around it."""

    name: Annotated[str, FieldSpec(_path, about="A path: payments/checkout lies within payments.")]
    members: tuple[GroupMember, ...] = ()
    guaranteed: GroupRates = field(default_factory=GroupRates)
    location: SourceLocation = field(default=_NO_FILE, compare=False, repr=False)

    @property
    def parent(self) -> str | None:
        """The name of the group that it lies within, None for none."""
        return self.name.rpartition("/")[0] or None

    @property
    def entity(self) -> Entity:
        """The entity by which its limits are reported."""
        return Entity.of(group=self.name)

    def rates(self) -> list[GroupRate]:
        """Return what it has under each key that it has a limit or a guaranteed rate of."""
        limits, guaranteed = self.by_key, self.guaranteed.by_key
        keys = (key for key in QUOTA_KEYS if key in limits or key in guaranteed)
        return [GroupRate(self.name, key, limits.get(key), guaranteed.get(key)) for key in keys]

    def bounds(self) -> list[GroupBound]:
        """Return the bounds of its buckets by key, the limit first."""
        return [bound for rate in self.rates() for bound in rate.bounds()]


class GroupProblem(NamedTuple):
    """Something wrong with a group."""

    group: str
    message: str
    hint: str | None = None


class GroupTree:
    """Groups that fit together, each with those within it.

    Raises:
        UsageError: They don't fit together; the message has the first problem.
    """

    def __init__(self, groups: Iterable[Group] = (), *, may_not_fit: bool = False) -> None:
        self.groups = tuple(groups)
        self._by_name = {group.name: group for group in self.groups}
        self._children: dict[str | None, list[Group]] = {}
        self._around: dict[str | None, dict[str, list[GroupBound]]] = {}
        for group in self.groups:
            self._children.setdefault(group.parent, []).append(group)
        problem = None if may_not_fit else next(group_problems(self.groups), None)
        if problem is not None:
            raise UsageError(f"group {problem.group}: {problem.message}", hint=problem.hint)

    def within(self, name: str | None) -> tuple[Group, ...]:
        """Return the groups right within a group, or those within none (None)."""
        return tuple(self._children.get(name, ()))

    def chain(self, name: str | None) -> tuple[Group, ...]:
        """Return a group (None: no group) and those around it, the innermost first."""
        group = self._by_name.get(name or "")
        return () if group is None else (group, *self.chain(group.parent))

    def walk(self, name: str | None = None) -> Iterator[Group]:
        """Yield the groups within a group (None: all), each after those within it, otherwise as declared."""
        for group in self.within(name):
            yield from self.walk(group.name)
            yield group

    def __bool__(self) -> bool:
        return bool(self.groups)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GroupTree) and other.groups == self.groups

    __hash__ = None  # type: ignore[assignment]

    def bounds(self) -> list[GroupBound]:
        """Return the bounds of all buckets, by group as declared and key."""
        return [bound for group in self.groups for bound in group.bounds()]

    def bounds_around(self, name: str | None, key: str) -> list[GroupBound]:
        """Return the bounds under a key of a group (None: none) and those around it, as they count.

        The outermost group is first, and its guaranteed rate before its limit.
        """
        found = self._around.get(name)
        if found is None:
            bounds = [bound for group in self.chain(name) for bound in group.bounds()][::-1]
            found = self._around[name] = {each: [bound for bound in bounds if bound.key == each] for each in QUOTA_KEYS}
        return found.get(key, [])


def group_problems(groups: Iterable[Group]) -> Iterator[GroupProblem]:
    """Yield whatever keeps groups from fitting together."""
    known = GroupTree(groups, may_not_fit=True)
    for name, count in Counter(group.name for group in known.groups).items():
        if count > 1:
            yield GroupProblem(group=name, message="it is declared twice", hint="keep one of them")
    for group in {group.name: group for group in known.groups}.values():
        if group.parent is not None and not known.chain(group.parent):
            hint = f'add a [[group]] with name = "{group.parent}"'
            yield GroupProblem(group=group.name, message=f"there is no group {group.parent} around it", hint=hint)
        else:
            yield from _rate_problems(group, known)


def _rate_problems(group: Group, known: GroupTree) -> Iterator[GroupProblem]:
    limits = group.by_key
    for key, rate in group.guaranteed.by_key.items():
        if rate > limits.get(key, rate):
            message = f"guaranteed {key} {format_number(rate)} is more than its limit {format_number(limits[key])}"
            yield GroupProblem(group=group.name, message=message, hint="lower it, or raise the limit")
        if not any(key in each.by_key for each in known.chain(group.parent)):
            message = f"no group around it has a limit of {key}, of which it could be guaranteed a part"
            yield GroupProblem(group=group.name, message=message, hint=f"set {key} in {group.parent or 'a group'}")
    for key, limit in limits.items():
        claimed = sum(_claimed(child, key, known) for child in known.within(group.name))
        if claimed > limit * (1 + _ROUNDING):
            message = f"the groups within it are guaranteed {key} {format_number(claimed)} of {format_number(limit)}"
            yield GroupProblem(group=group.name, message=message, hint="lower what they are guaranteed")
    of_connections = CONNECTION_CREATION_RATE.name in {*limits, *group.guaranteed.by_key}
    if of_connections and (member := _needs_login(group, known)) is not None:
        message = f"{CONNECTION_CREATION_RATE.name} takes members by listener and address alone, not {member}"
        hint = "nobody is known before the login; make a group of its own for connections"
        yield GroupProblem(group=group.name, message=message, hint=hint)


def _claimed(group: Group, key: str, known: GroupTree) -> float:
    within = sum(_claimed(child, key, known) for child in known.within(group.name))
    return max(group.guaranteed.by_key.get(key, 0.0), within)


def _needs_login(group: Group, known: GroupTree) -> GroupMember | None:
    """Return a member that only a login shows, of a group or of those within it, or None."""
    found = (member for member in group.members if not member.is_of_connections)
    within = (each for child in known.within(group.name) if (each := _needs_login(child, known)))
    return next(chain(found, within), None)
