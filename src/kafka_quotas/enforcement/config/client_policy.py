"""On which terms a client is held to its quotas, and which entity's terms are a client's.

Invariants: everything here is a value; each setting is looked for on its own, from the most specific entity that fits
a client to the least, as limits are (levels 1 to 8), and falls back to the daemon's own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

from kafka_quotas.core.model.entity import ABSENT, Absent, Entity


class Mode(StrEnum):
    """How a rate is measured and what follows from it."""

    KAFKA = "kafka"
    """Kafka's sliding window."""
    SMOOTH = "smooth"
    """A bucket of one second, without the window's bursts and rests."""
    SHADOW = "shadow"
    """Kafka's window, of which only notes are taken."""


class Scope(StrEnum):
    """What a limit is of."""

    BROKER = "broker"
    """Each broker's traffic, as in Kafka."""
    CLUSTER = "cluster"
    """The traffic of all brokers together."""


class FetchOverQuota(StrEnum):
    """What becomes of a fetch that takes its client over a quota."""

    DELIVER = "deliver"
    """Its data is handed over and paid for afterwards."""
    KAFKA = "kafka"
    """It is answered empty, and its bytes count for nothing."""


class OnViolation(StrEnum):
    """What a client over its quota gets."""

    DELAY = "delay"
    ERROR = "error"
    DELAY_THEN_ERROR = "delay-then-error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPolicy:
    """The terms of one client. `max_throttle_ms` cuts throttle times, None leaves them as long as Kafka makes them."""

    mode: Mode = Mode.KAFKA
    scope: Scope = Scope.BROKER
    fetch_over_quota: FetchOverQuota = FetchOverQuota.DELIVER
    on_violation: OnViolation = OnViolation.DELAY
    max_throttle_ms: int | None = None
    exempt: bool = False


TERM_NAMES: Final = tuple(setting.name for setting in fields(ClientPolicy))

_Name: TypeAlias = str | Absent | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPolicy:
    """What an entity's terms say otherwise than the daemon's: some of the settings of `ClientPolicy` by name."""

    entity: Entity
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTable:
    """The daemon's own terms, those of entities, and who is internal: exempt where a broker exempts brokers."""

    default: ClientPolicy = field(default_factory=ClientPolicy)
    entities: tuple[EntityPolicy, ...] = ()
    internal_principals: frozenset[str] = frozenset()
    _by_key: dict[tuple[_Name, _Name], dict[str, Any]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_key = {(terms.entity.user, terms.entity.client_id): terms.settings for terms in self.entities}
        object.__setattr__(self, "_by_key", by_key)

    def terms_of(self, user: str, client_id: str) -> ClientPolicy:
        """The terms of a user's client-id."""
        if not self.entities:
            return self.default
        settings: dict[str, Any] = {}
        for key in _levels(user, client_id):
            for name, value in self._by_key.get(key, {}).items():
                settings.setdefault(name, value)
        return replace(self.default, **settings)


def _levels(user: str, client_id: str) -> Iterable[tuple[_Name, _Name]]:
    """The entities that may fit a client, most specific first."""
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
