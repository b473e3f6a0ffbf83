"""The one interface of every store, and the values that cross it.

Invariants: names are raw, and sanitizing is the store's own business. Values are doubles. One `Alteration` per entity,
whose changes are applied together or not at all. The entities of one call succeed or fail independently.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import QuotaFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntry:
    """An entity and its stored quotas."""

    entity: Entity
    quotas: Mapping[str, float]
    """Values by key name, in the unit of the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """Changes to one entity."""

    entity: Entity
    changes: Mapping[str, float | None]
    """New values by key name, None to remove the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterationResult:
    """The result of one alteration."""

    entity: Entity
    error: KafkaQuotasError | None = None
    """Why it failed, None where it was applied, or would be with `validate_only`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The whole content of a store at one moment."""

    revision: str
    """A text that differs whenever the content does."""
    entries: tuple[QuotaEntry, ...]


NEVER_WRITTEN: Final = "never-written"
"""The revision of an empty store that its first change has yet to create."""


class Store(Protocol):
    """A place where quotas are stored.

    Every call may raise `StoreUnreachableError` or `StoreRefusedError`.
    """

    url: str
    """The address under which `open_store` opens it again, without secrets."""

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        """Return the matching entries, sorted by entity.

        Raises:
            InvalidQuotaError: The filter itself is refused.
        """
        ...

    def alter(self, entries: Sequence[Alteration], *, validate_only: bool = False) -> list[AlterationResult]:
        """Apply the alterations, or only check them with `validate_only`.

        Returns:
            One result per alteration, in order.
        """
        ...

    def watch(self, since: str | None, *, timeout_s: float) -> Snapshot | None:
        """Wait until the content's revision differs from `since`, and return the content.

        Args:
            since: The revision that the caller has, None to return at once.
            timeout_s: The longest wait (seconds).

        Returns:
            The content, None after `timeout_s`.
        """
        ...

    def close(self) -> None:
        """Release connections and files.

        A second call has no effect.
        """
        ...
