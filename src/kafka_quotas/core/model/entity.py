"""The entities that quotas are set on, the filters over them, and their names as ZooKeeper and Java read them.

An `Entity` has one or two parts: `user`, `client-id`, the pair of both, or `ip`. The thresholds of this project are set
on `topic` and `broker`, and limits that clients share on a `group`, all of which Kafka's quotas don't have. The name of
a part is a text, or None for the default of that type. A part that is absent is not part of the entity: `user=None`
(the default user) and no user at all are different things, hence the marker `ABSENT`.

A filter is that of Kafka's DescribeClientQuotas (KIP-546): a component names an entity type and matches one name
(`exact`), the default (`default`) or anything named or default (`any`). A selector says which entities a file owns:
`user=team-a-*`, `client-id`, `ip-default`. Several selectors add up. Commas never split names.

Invariants: parts are in the order user, client-id, ip, topic, broker, group. No type occurs twice. Names are raw, never
sanitized. An `Entity` may hold what a store refuses (an empty name, ip beside user): `core.changes.validation` decides
that. Every name has exactly one sanitized form, made of letters, digits and `.-_%` only, so the default entity's node
name `<default>` is no sanitized name. Reading is more lenient than writing, as it is in Java, which also accepts more
addresses than most: `127.1` and `1` are IPv4 addresses of fewer parts, and an IPv6 address may be in square brackets.

**Source:** `org.apache.kafka.common.utils.Sanitizer` (4.0), which uses Java's URLEncoder and URLDecoder;
`java.net.InetAddress.getAllByName` and `sun.net.util.IPAddressUtil` (JDK 17).
"""

import ast
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import quote

from kafka_quotas.core.errors import InvalidQuotaError, ProtocolError, UsageError, near_hint
from kafka_quotas.core.java import decode_utf8

_IPV4 = re.compile(r"[0-9]+(?:\.[0-9]+){0,3}")
_IPV4_LENGTH = 15
_GROUP = re.compile(r"[0-9a-fA-F]+")
_NUMERIC_ZONE = re.compile(r"[0-9]+")
_GROUPS = 8


def is_address_or_host(name: str, resolves: Callable[[str], bool]) -> bool:
    """Return whether Java finds an address for a name: a literal, or else a host that `resolves` knows.

    An empty name is an address to Java, that of this machine.
    """
    if not name:
        return True
    host, bracketed = name, False
    if name.startswith("["):
        if len(name) <= 2 or not name.endswith("]"):
            return False
        host, bracketed = name[1:-1], True
    if host[0] not in "0123456789abcdefABCDEF:":
        return not bracketed and resolves(host)
    if ipv4_literal(host) is not None:
        return not bracketed
    address, _, zone = host.partition("%")
    if ipv6_literal(address) is not None:
        return "%" not in host or _NUMERIC_ZONE.fullmatch(zone) is not None
    return ":" not in host and resolves(host)


def ipv4_literal(text: str) -> bytes | None:
    """Return the bytes of an IPv4 address of one to four decimal parts, the last filling up, or None."""
    if len(text) > _IPV4_LENGTH or not _IPV4.fullmatch(text):
        return None
    *leading, last = map(int, text.split("."))
    free = 4 - len(leading)
    if any(part > 0xFF for part in leading) or last >= 1 << (8 * free):
        return None
    return bytes(leading) + last.to_bytes(free, "big")


def ipv6_literal(text: str) -> bytes | None:
    """Return the sixteen bytes of an IPv6 address (no brackets, no zone), or None."""
    head, gap, tail = text.partition("::")
    if "::" in tail or tail.startswith(":"):
        return None
    left = _groups(head, last=not gap)
    right = _groups(tail, last=True) if gap else b""
    if left is None or right is None:
        return None
    missing = 2 * _GROUPS - len(left) - len(right)
    if missing < 0 or (missing > 0) != bool(gap):
        return None
    return left + bytes(missing) + right


def _groups(text: str, *, last: bool) -> bytes | None:
    """Return the bytes of groups between colons, the last of which may be an IPv4 address."""
    data = b""
    groups = text.split(":") if text else []
    for index, group in enumerate(groups):
        if last and index == len(groups) - 1 and "." in group:
            address = ipv4_literal(group) if group.count(".") == 3 else None
            if address is None:
                return None
            data += address
        elif _GROUP.fullmatch(group) and int(group, 16) <= 0xFFFF:
            data += int(group, 16).to_bytes(2, "big")
        else:
            return None
    return data


DEFAULT_NAME = "<default>"
"""The node name of a default entity; never a sanitized name."""

_ESCAPED = re.compile(r"(?:%..)+|[%+]", re.DOTALL)


def sanitize(name: str) -> str:
    """Return the name percent-encoded in upper-case hex, but for letters, digits, `.`, `-` and `_`."""
    # `quote` never encodes a tilde, Java always does; one in its output can only come from the name itself.
    return quote(name.encode("utf-8", "replace"), safe="").replace("~", "%7E")


def desanitize(text: str) -> str:
    """Return the name of a sanitized text.

    `+` is a space, and bytes that are not UTF-8 become U+FFFD.

    Raises:
        InvalidQuotaError: A `%` is not followed by two hexadecimal digits.
    """
    return _ESCAPED.sub(lambda match: _decoded(match[0]), text)


def _decoded(escaped: str) -> str:
    """Return the characters of a plus sign or of a run of escapes, which are decoded together."""
    if escaped == "+":
        return " "
    if escaped == "%":
        raise InvalidQuotaError("a name ends within a percent escape", hint="a percent sign itself is written %25")
    data = bytes(_byte(escaped[start : start + 2]) for start in range(1, len(escaped), 3))
    return decode_utf8(data)


def _byte(digits: str) -> int:
    """Return the byte of the two characters after a percent sign, read like Java's `Integer.parseInt`."""
    signed = digits[1:] if digits[0] in "+-" else digits  # it takes a sign, and any Unicode digit
    values = [_digit(character) for character in signed]
    if any(value is None for value in values) or (digits[0] == "-" and values != [0]):
        raise InvalidQuotaError(
            f"not a percent escape: %{digits}",
            hint="two hexadecimal digits follow a percent sign; a percent sign itself is written %25",
        )
    return int("".join(f"{value:x}" for value in values), 16)


def _digit(character: str) -> int | None:
    """Return the value of a hexadecimal digit in any script below U+10000, or None."""
    if ord(character) > 0xFFFF:
        return None
    folded = unicodedata.normalize("NFKC", character) if "\uff21" <= character <= "\uff46" else character
    if folded in "abcdefABCDEF":
        return int(folded, 16)
    return unicodedata.decimal(character, None)


USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
TOPIC: Final = "topic"
BROKER: Final = "broker"
GROUP: Final = "group"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)
"""The entity types of Kafka's quotas in the order in which they are written."""
THRESHOLD_TYPES: Final = (TOPIC, BROKER)


class Absent(Enum):
    """The type of `ABSENT`, the marker of a part that an entity does not have."""

    ABSENT = "absent"

    def __bool__(self) -> bool:
        return False


ABSENT: Final = Absent.ABSENT

_PART: Final = re.compile(r"""(?:(default)|([a-z-]+)) (?:([^ ,'"]+)|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))(?:, |$)""")
"""One part as people read it: a default and its type, or a type and its name, which may be quoted."""
_TYPE_ORDER = {entity_type: index for index, entity_type in enumerate((*ENTITY_TYPES, *THRESHOLD_TYPES))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """An entity as pairs (type, name) with None for the default, hashable and equal by its parts."""

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(
        cls,
        *,
        user: str | Absent | None = ABSENT,
        client_id: str | Absent | None = ABSENT,
        ip: str | Absent | None = ABSENT,
        topic: str | Absent = ABSENT,
        broker: str | Absent | None = ABSENT,
        group: str | Absent = ABSENT,
    ) -> "Entity":
        """Return the entity with the given parts, where a part of None is the default."""
        named = ((USER, user), (CLIENT_ID, client_id), (IP, ip), (TOPIC, topic), (BROKER, broker), (GROUP, group))
        return cls(parts=tuple((kind, name) for kind, name in named if not isinstance(name, Absent)))

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, str | None]]) -> "Entity":
        """Return the entity with these (type, name) pairs."""
        parts: dict[str, str | None] = {}
        for kind, name in pairs:
            if kind not in _TYPE_ORDER:
                hint = near_hint(kind, _TYPE_ORDER, otherwise="the types are user, client-id, ip, topic and broker")
                raise UsageError(f"unknown entity type: {kind!r}", hint=hint)
            if kind in parts:
                raise UsageError(f"entity type named twice: {kind}")
            parts[kind] = name
        return cls(parts=tuple(sorted(parts.items(), key=lambda part: _TYPE_ORDER[part[0]])))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, str | None]) -> "Entity":
        """Return the entity of a mapping such as `{"user": "alice", "client-id": None}` (None: the default)."""
        return cls.from_pairs(mapping.items())

    @classmethod
    def from_text(cls, text: str) -> "Entity":
        """Return the entity that `str` wrote."""
        pairs, end = [], 0
        while part := _PART.match(text, end):
            default, kind, plain, quoted = part.groups()
            name = ast.literal_eval(quoted) if quoted else plain
            pairs.append((name, None) if default else (kind, name))
            end = part.end()
        if not pairs or end < len(text):
            raise ProtocolError(f"not an entity: {text!r}", hint="is the other side of another version?")
        if pairs[0][0] == GROUP:
            return cls.of(group=pairs[0][1] or "")
        return cls.from_pairs(pairs)

    def to_mapping(self) -> dict[str, str | None]:
        """Return the mapping that `from_mapping` reads."""
        return dict(self.parts)

    def part(self, entity_type: str) -> str | Absent | None:
        """Return the name under a type, None for its default, `ABSENT` where the entity has no such part."""
        for kind, name in self.parts:
            if kind == entity_type:
                return name
        return ABSENT

    @property
    def user(self) -> str | Absent | None:
        """The user's name, None for the default user, `ABSENT` for none."""
        return self.part(USER)

    @property
    def client_id(self) -> str | Absent | None:
        """The client-id, None for the default client-id, `ABSENT` for none."""
        return self.part(CLIENT_ID)

    @property
    def ip(self) -> str | Absent | None:
        """The address, None for the default address, `ABSENT` for none."""
        return self.part(IP)

    @property
    def topic(self) -> str | Absent | None:
        """The topic's name, or `ABSENT` for none. Topics have no default, so None is invalid."""
        return self.part(TOPIC)

    @property
    def broker(self) -> str | Absent | None:
        """The broker's node id, None for all brokers without a total of their own, `ABSENT` for none."""
        return self.part(BROKER)

    @property
    def sort_key(self) -> tuple[tuple[int, bool, str], ...]:
        """The sort key of listings: type by type, the default after the names."""
        return tuple((_TYPE_ORDER.get(kind, 9), name is None, name or "") for kind, name in self.parts)

    def __str__(self) -> str:
        return ", ".join(
            f"default {kind}" if name is None else f"{kind} {shown_name(name)}" for kind, name in self.parts
        )


def shown_name(name: str) -> str:
    """Return the name as text for people, quoted if it is ambiguous or could steer a terminal."""
    return repr(name) if _odd(name) else name


def _odd(name: str) -> bool:
    return not name or not name.isprintable() or any(mark in name for mark in " ,'\"") or name.startswith("default")


class Match(Enum):
    """The ways in which a component matches a name."""

    EXACT = "exact"
    DEFAULT = "default"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterComponent:
    """One condition: the entity has a part of this type whose name matches."""

    entity_type: str
    match: Match
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFilter:
    """A filter whose components must all match."""

    components: tuple[FilterComponent, ...] = ()
    strict: bool = False
    """Whether entities with other types do not match."""


EVERYTHING = QuotaFilter()

_ZK_NAMES = {USER: "user", CLIENT_ID: "client", IP: "ip"}


def matches(quota_filter: QuotaFilter, entity: Entity) -> bool:
    """Return whether an entity passes a filter that the verdicts below let pass."""
    if quota_filter.strict and len(entity.parts) != len(quota_filter.components):
        return False
    return all(_component_matches(component, entity) for component in quota_filter.components)


def filter_verdict_kraft(quota_filter: QuotaFilter) -> InvalidQuotaError | None:
    """Return a KRaft broker's error for a filter, or None.

    **Source:** `ClientQuotasImage.describe` (Kafka 4.0).
    """
    seen: set[str] = set()
    for component in quota_filter.components:
        error = _kraft_component_verdict(component, seen)
        if error is not None:
            return error
        seen.add(component.entity_type)
    if IP in seen and seen & {USER, CLIENT_ID}:
        return InvalidQuotaError(
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
    return None


def filter_verdict_local(quota_filter: QuotaFilter) -> InvalidQuotaError | None:
    """Return the local store's error for a filter, a KRaft broker's but for thresholds, or None."""
    kinds = [component.entity_type for component in quota_filter.components]
    if any(kind in THRESHOLD_TYPES for kind in kinds):
        if len(kinds) > 1:
            return InvalidQuotaError("a topic or broker can't be combined with anything else in a filter")
        return None
    return filter_verdict_kraft(quota_filter)


def filter_verdict_zk(quota_filter: QuotaFilter) -> InvalidQuotaError | None:
    """Return the error of a broker in ZooKeeper mode for a filter, or None.

    **Source:** `ZkAdminManager.describeClientQuotas` (Kafka 3.9).
    """
    seen: set[str] = set()
    for component in quota_filter.components:
        kind = component.entity_type
        if kind in seen:
            return InvalidQuotaError(f"Duplicate {_ZK_NAMES[kind]} filter component entity type")
        if kind == "":
            return InvalidQuotaError("Unexpected empty filter component entity type")
        if kind not in _ZK_NAMES:
            return InvalidQuotaError(f"Custom entity type '{kind}' not supported", code="UNSUPPORTED_VERSION")
        seen.add(kind)
    if IP in seen and seen & {USER, CLIENT_ID}:
        return InvalidQuotaError(
            "Invalid entity filter component combination, IP filter component should not be used with "
            "user or clientId filter component."
        )
    if _names_one_znode(quota_filter) and any(component.name == "" for component in quota_filter.components):
        return InvalidQuotaError(
            "a broker in ZooKeeper mode fails at an empty name: no znode has one", code="UNKNOWN_SERVER_ERROR"
        )
    return None


def _names_one_znode(quota_filter: QuotaFilter) -> bool:
    """Return whether a broker in ZooKeeper mode reads only the znode that the filter names."""
    named = {component.entity_type for component in quota_filter.components if component.match is not Match.ANY}
    alone = quota_filter.strict and len(quota_filter.components) == 1
    return IP in named or named == {USER, CLIENT_ID} or (alone and bool(named))


def _component_matches(component: FilterComponent, entity: Entity) -> bool:
    name = entity.part(component.entity_type)
    if isinstance(name, Absent):
        return False
    if component.match is Match.EXACT:
        return name == component.name
    return component.match is Match.ANY or name is None


def _kraft_component_verdict(component: FilterComponent, seen: set[str]) -> InvalidQuotaError | None:
    kind, match = component.entity_type, component.match
    if not kind:
        return InvalidQuotaError("Invalid empty entity type.")
    if kind in seen:
        return InvalidQuotaError(f"Entity type {kind} cannot appear more than once in the filter.")
    if kind not in ENTITY_TYPES:
        return InvalidQuotaError(f"Unsupported entity type {kind}", code="UNSUPPORTED_VERSION")
    if match is Match.EXACT and component.name is None:
        return InvalidQuotaError("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if match is not Match.EXACT and component.name is not None:
        wire_name = "MATCH_TYPE_DEFAULT" if match is Match.DEFAULT else "MATCH_TYPE_SPECIFIED"
        return InvalidQuotaError(f"Request specified {wire_name}, but also specified a match string.")
    return None


_HINT = "for example user=team-a-*, client-id=web, user-default, ip, group=payments*"
_KINDS = (*ENTITY_TYPES, *THRESHOLD_TYPES, GROUP)


def owner(selectors: Sequence[str]) -> Callable[[Entity], bool]:
    """Return the test whether any of the selectors matches an entity.

    Without selectors every entity matches.
    """
    tests = [_test(selector) for selector in selectors]
    return lambda entity: not tests or any(test(entity) for test in tests)


def _test(selector: str) -> Callable[[Entity], bool]:
    kind, equals, pattern = selector.partition("=")
    default_of = kind.removesuffix("-default")
    if not equals and default_of != kind and default_of in _KINDS:
        return lambda entity: entity.part(default_of) is None
    if kind not in _KINDS or (equals and not pattern):
        raise UsageError(f"not a selector: {selector!r}", hint=_HINT)
    if not equals:
        return lambda entity: not isinstance(entity.part(kind), Absent)
    return lambda entity: isinstance(name := entity.part(kind), str) and fnmatchcase(name, pattern)


def single_entity(quota_filter: QuotaFilter) -> Entity | None:
    """Return the one entity that a valid filter can match, or None if it may match several."""
    if not quota_filter.strict or not quota_filter.components:
        return None
    if any(component.match is Match.ANY for component in quota_filter.components):
        return None
    return Entity.from_pairs((component.entity_type, component.name) for component in quota_filter.components)


def entity_filter(entity: Entity) -> QuotaFilter:
    """Return the filter that matches one entity only, the inverse of `single_entity`."""
    components = (
        FilterComponent(entity_type=kind, match=Match.DEFAULT if name is None else Match.EXACT, name=name)
        for kind, name in entity.parts
    )
    return QuotaFilter(components=tuple(components), strict=True)
