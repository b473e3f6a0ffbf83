"""The one interface of every store, and the values that cross it.

Invariants: names are raw (sanitizing is the store's own business); values are doubles; one `Alteration` per entity, its
changes applied together or not at all; entities of one call succeed or fail each on its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import QuotaFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntry:
    """An entity and its stored quotas, key name to value (units of the key)."""

    entity: Entity
    quotas: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """Changes to one entity: key name to its new value, or to None to remove the key."""

    entity: Entity
    changes: Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterationResult:
    """What became of one alteration: `error` is None where it was done (or would be, with validate_only)."""

    entity: Entity
    error: KafkaQuotasError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a store held at one moment; `revision` differs whenever the content does."""

    revision: str
    entries: tuple[QuotaEntry, ...]


NEVER_WRITTEN: Final = "never-written"
"""The revision of a store that is made by its first change and was not made yet: nothing is in it."""


class Store(Protocol):
    """Where quotas are kept. Every call may raise `StoreUnreachableError` or `StoreRefusedError`."""

    url: str
    """The address under which `open_store` opens it again; carries no secret."""

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        """The matching entries, sorted by entity.

        Raises `InvalidQuotaError` where the filter itself is refused.
        """
        ...

    def alter(self, entries: Sequence[Alteration], *, validate_only: bool = False) -> list[AlterationResult]:
        """One result per alteration, in order; with `validate_only` nothing is written."""
        ...

    def watch(self, since: str | None, *, timeout_s: float) -> Snapshot | None:
        """The current content as soon as its revision differs from `since` (None: at once); None after `timeout_s`."""
        ...

    def close(self) -> None:
        """Nothing; connections and files are released. A second call does nothing."""
        ...
