"""What the page of quotas is made of at one moment, whether a daemon or a store with brokers' metrics provides it."""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from kafka_quotas.commands.insight.usage_source import UsageReading
from kafka_quotas.core.changes.journal_entry import JournalEntry
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.resolution.effective import EffectiveQuotas, SyntheticNames
from kafka_quotas.enforcement.telemetry.status import DaemonStatus, HourRow
from kafka_quotas.stores.store import QuotaEntry

Document: TypeAlias = dict[str, object]
"""An object of JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReading:
    """Rates and throttling at one moment."""

    at_ms: int
    reading: UsageReading
    """The usage, empty where it can't be read."""
    status: DaemonStatus | None
    """The daemon's status, None where brokers' metrics are read, or nothing answers."""
    last_hour: tuple[HourRow, ...]
    sampled_from_ms: int | None
    """Since when this process itself looks for throttling, None where a daemon counts every throttle time."""
    trouble: KafkaQuotasError | None = None
    """Why the usage can't be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStore:
    """The quotas in force at one moment."""

    url: str
    entries: tuple[QuotaEntry, ...]
    resolver: EffectiveQuotas
    probes: SyntheticNames
    """Makes names that nothing is stored for."""
    is_static: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPage:
    """The newest entries of a journal about one store."""

    path: str
    entries: tuple[JournalEntry, ...]
    """Newest first."""
    other_stores: tuple[str, ...]
    """Stores that other recent entries are about."""


class LiveQuotas(Protocol):
    """The provider of everything that the page shows.

    Each call may raise a `KafkaQuotasError`.
    """

    async def usage(self) -> LiveReading:
        """Return the usage now."""
        ...

    async def store(self) -> LiveStore:
        """Return the quotas in force now."""
        ...

    async def journal(self) -> JournalPage:
        """Return the newest changes of the store."""
        ...
