"""The client of a question about effective quotas: a user, a client-id or an address.

Invariants: an empty client-id is a client that sends none; `OTHER` is any name that nothing is stored for.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafka_quotas.core.model.entity import Entity, shown_name


class Other(Enum):
    """The type of `OTHER`."""

    OTHER = "(any other)"


OTHER: Final = Other.OTHER
Name = str | Other
"""A name, or any name that nothing is stored for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionedClient:
    """A client to find the effective quotas of: a user with a client-id, or an address.

    The parts that the question leaves out are None.
    """

    user: Name | None = None
    client_id: Name | None = None
    ip: Name | None = None

    def __str__(self) -> str:
        named = (("user", self.user), ("client-id", self.client_id), ("ip", self.ip))
        return ", ".join(f"{kind} {_shown(name)}" for kind, name in named if name is not None)


def outcomes_of_user(user: str, entities: Iterable[Entity]) -> list[QuestionedClient]:
    """Return every distinct kind of client of a user.

    These are each stored client-id that can concern the user, any other client-id, and none.
    """
    concerning = [entity.client_id for entity in entities if not isinstance(entity.user, str) or entity.user == user]
    stored: list[Name] = [*sorted({client_id for client_id in concerning if isinstance(client_id, str)})]
    return [QuestionedClient(user=user, client_id=client_id) for client_id in (*stored, OTHER, "")]


def clients_of_store(entities: Iterable[Entity]) -> list[QuestionedClient]:
    """Return the clients that stored entities name.

    These are pairs, users and client-ids with any other of the rest, and addresses.
    """
    known: dict[QuestionedClient, None] = {}
    for entity in sorted(entities, key=lambda each: each.sort_key):
        known.setdefault(_told_by(entity))
    return list(known)


def _told_by(entity: Entity) -> QuestionedClient:
    if isinstance(entity.ip, str) or entity.ip is None:
        return QuestionedClient(ip=entity.ip or OTHER)
    user, client_id = entity.user, entity.client_id
    return QuestionedClient(
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
        return next(probe for probe in _spellings(OTHER.value) if probe not in self._taken)


def _spellings(text: str) -> Iterator[str]:
    while True:
        yield text
        text += "'"


def _shown(name: Name) -> str:
    if isinstance(name, Other):
        return name.value
    return shown_name(name) if name else "(none)"
