"""The entities that quotas are set on.

An `Entity` has one or two parts: `user`, `client-id`, the pair of both, or `ip`. The thresholds of this project are set
on `topic` and `broker`, which Kafka's quotas don't have. The name of a part is a text, or None for the default of that
type. A part that is absent is not part of the entity: `user=None` (the default user) and no user at all are different
things, hence the marker `ABSENT`.

Invariants: parts are in the order user, client-id, ip, topic, broker. No type occurs twice. Names are raw, never
sanitized. An `Entity` may hold what a store refuses (an empty name, ip beside user): `core.changes.validation` decides
that.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafka_quotas.core.errors import ProtocolError, UsageError, near_hint

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
TOPIC: Final = "topic"
BROKER: Final = "broker"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)
"""The entity types of Kafka's quotas in the order in which they are written."""
THRESHOLD_TYPES: Final = (TOPIC, BROKER)
"""The types of what thresholds are set on."""


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
    ) -> "Entity":
        """Return the entity with the given parts, where a part of None is the default."""
        named = ((USER, user), (CLIENT_ID, client_id), (IP, ip), (TOPIC, topic), (BROKER, broker))
        return cls(parts=tuple((kind, name) for kind, name in named if not isinstance(name, Absent)))

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, str | None]]) -> "Entity":
        """Return the entity with these (type, name) pairs.

        Raises:
            UsageError: A type that is unknown or named twice.
        """
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
        """Return the entity of a mapping such as `{"user": "alice", "client-id": None}` (None: the default).

        Raises:
            UsageError: An unknown type.
        """
        return cls.from_pairs(mapping.items())

    @classmethod
    def from_text(cls, text: str) -> "Entity":
        """Return the entity that `str` wrote.

        Raises:
            ProtocolError: It is not such a text.
        """
        pairs, end = [], 0
        while part := _PART.match(text, end):
            default, kind, plain, quoted = part.groups()
            name = ast.literal_eval(quoted) if quoted else plain
            pairs.append((name, None) if default else (kind, name))
            end = part.end()
        if not pairs or end < len(text):
            raise ProtocolError(f"not an entity: {text!r}", hint="is the other side of another version?")
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
    """Return whether a name needs quotes."""
    return not name or not name.isprintable() or any(mark in name for mark in " ,'\"") or name.startswith("default")
