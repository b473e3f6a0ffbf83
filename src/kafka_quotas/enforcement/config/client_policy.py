"""How a client is held to its quotas, and which entity's policy is a client's.

Invariants: everything here is a value; each setting is looked for on its own, from the most specific entity that fits
a client to the least, as limits are (levels 1 to 8), and falls back to the daemon's own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

from kafka_quotas.core.model.entity import ABSENT, Absent, Entity


class Mode(StrEnum):
    """The algorithm by which a rate is measured and enforced."""

    KAFKA = "kafka"
    """Kafka's sliding window."""
    SMOOTH = "smooth"
    """A bucket of one second, without the window's bursts and rests."""
    SHADOW = "shadow"
    """Kafka's window, measured and logged but not enforced."""


class Scope(StrEnum):
    """The traffic that a limit applies to."""

    BROKER = "broker"
    """Each broker's traffic, as in Kafka."""
    CLUSTER = "cluster"
    """The traffic of all brokers together."""


class FetchOverQuota(StrEnum):
    """The handling of a fetch of a client that may be over a quota."""

    DELIVER = "deliver"
    """It begins when there is room for it, and its data passes."""
    KAFKA = "kafka"
    """It gets an empty response, and its bytes do not count."""


class OnViolation(StrEnum):
    """The handling of a client over its quota: a delay, an error, or both in turn."""

    DELAY = "delay"
    ERROR = "error"
    DELAY_THEN_ERROR = "delay-then-error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPolicy:
    """The settings by which one client is held to its quotas."""

    mode: Mode = Mode.KAFKA
    scope: Scope = Scope.BROKER
    fetch_over_quota: FetchOverQuota = FetchOverQuota.DELIVER
    on_violation: OnViolation = OnViolation.DELAY
    max_throttle_ms: int | None = None
    """Longest throttle time, None for Kafka's own."""
    exempt: bool = False
    """Whether the client is held to no quota."""


_Name: TypeAlias = str | Absent | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPolicy:
    """The settings of one entity that differ from the daemon's."""

    entity: Entity
    settings: dict[str, Any]
    """Values of `ClientPolicy` fields by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTable:
    """The policies of all clients: the daemon's own and those of entities."""

    default: ClientPolicy = field(default_factory=ClientPolicy)
    """Policy of clients that no entity has settings for."""
    entities: tuple[EntityPolicy, ...] = ()
    internal_principals: frozenset[str] = frozenset()
    """Principals exempt where a broker exempts brokers."""
    _by_key: dict[tuple[_Name, _Name], dict[str, Any]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_key = {(each.entity.user, each.entity.client_id): each.settings for each in self.entities}
        object.__setattr__(self, "_by_key", by_key)

    def policy_of(self, user: str, client_id: str) -> ClientPolicy:
        """Return the policy of a user's client-id."""
        if not self.entities:
            return self.default
        settings: dict[str, Any] = {}
        for key in _levels(user, client_id):
            for name, value in self._by_key.get(key, {}).items():
                settings.setdefault(name, value)
        return replace(self.default, **settings)


def _levels(user: str, client_id: str) -> Iterable[tuple[_Name, _Name]]:
    """Return the entities that may fit a client, most specific first."""
    return (
        (user, client_id),
        (user, None),
        (user, ABSENT),
        (None, client_id),
        (None, None),
        (None, ABSENT),
        (ABSENT, client_id),
        (ABSENT, None),
    )
