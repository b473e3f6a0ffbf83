"""A client as quotas see it: a user with a client-id, or an address.

Invariants: an empty client-id is a client that sends none; `OTHER` is any name that nothing is stored for.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafka_quotas.core.model.entity import CLIENT_ID, IP, USER, Entity, shown_name


class Other(Enum):
    """The type of `OTHER`."""

    OTHER = "(any other)"


OTHER: Final = Other.OTHER
Name = str | Other
"""A name, or any name that nothing is stored for."""


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


class SyntheticNames:
    """Unused names, to resolve quotas for `OTHER` with."""

    def __init__(self, entities: Iterable[Entity]) -> None:
        self._taken = {name for entity in entities for _, name in entity.parts}

    def text(self, name: Name) -> str:
        """Return the name itself, or an unused name for `OTHER`."""
        if isinstance(name, str):
            return name
        return unused_name(self._taken)


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
