"""The one interface of every store, and the values that cross it.

Invariants: names are raw, and sanitizing is the store's own business. Values are doubles. One `Alteration` per entity,
whose changes are applied together or not at all. The entities of one call succeed or fail independently.
`ClusterInfo` has facts about a cluster, beside its quotas, that decide whether and how the stored quotas work.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from kafka_quotas.core.changes.plan import PlannedChange, new_values
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import EVERYTHING, QuotaFilter
from kafka_quotas.stores.url import StoreKind

NEVER_WRITTEN: Final = "never-written"
"""The revision of an empty store that its first change has yet to create."""
BROKER_THROTTLES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
TOPIC_THROTTLES: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


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
    only_set: bool = False
    """Whether to refuse the removal of a key that is not set, and to report the quotas before, as an extra read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterationResult:
    """The result of one alteration."""

    entity: Entity
    error: KafkaQuotasError | None = None
    """Why it failed, None where it was applied, or would be with `validate_only`."""
    before: Mapping[str, float] = field(default_factory=dict)
    """The quotas of the entity before, read for a valid alteration of keys that are `only_set`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The whole content of a store at one moment."""

    revision: str
    """A text that differs whenever the content does."""
    entries: tuple[QuotaEntry, ...]


class Store(Protocol):
    """A place where quotas are stored.

    Every call may raise `StoreUnreachableError` or `StoreRefusedError`.
    """

    url: str
    """The address under which `open_store` opens it again, without secrets."""
    kind: StoreKind

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

    def close(self) -> None:
        """Release connections and files, and end every `watch`, in any thread.

        A second call has no effect.
        """


def content_of(store: Store) -> dict[Entity, Mapping[str, float]]:
    """Return everything that a store holds."""
    return {entry.entity: entry.quotas for entry in store.describe(EVERYTHING)}


def alterations_of(changes: Iterable[PlannedChange]) -> list[Alteration]:
    """Return one alteration per entity with all of its changes."""
    return [Alteration(entity=entity, changes=new) for entity, new in new_values(changes).items()]


def errors_of(results: Iterable[AlterationResult]) -> dict[Entity, KafkaQuotasError]:
    """Return the errors of the failed alterations."""
    return {result.entity: result.error for result in results if result.error is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationThrottle:
    """A throttle of replication traffic, set on a broker or a topic."""

    place: str
    """The broker or topic, such as `broker 1`."""
    name: str
    """The name of the property."""
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableZnode:
    """A znode that could not be read, with the reason."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """The facts that one look at a cluster found."""

    callbacks: Mapping[str, str] = field(default_factory=dict)
    """The class that decides about quotas in Kafka's place, by broker."""
    threads: Mapping[str, int] = field(default_factory=dict)
    """The number of I/O and network threads, by broker."""
    replication_throttles: tuple[ReplicationThrottle, ...] = ()
    reassigning: bool | None = None
    """Whether partitions are being moved, None where that is not known."""
    too_old: tuple[str, ...] = ()
    """The brokers older than 2.7."""
    unanswered: Mapping[str, str] = field(default_factory=dict)
    """The brokers that the cluster lists and that did not answer, with the reason."""
    empty_znodes: tuple[str, ...] = ()
    """The znodes of entities that no longer hold anything."""
    unreadable: tuple[UnreadableZnode, ...] = ()
    """The znodes that can't be read."""
    readable: tuple[QuotaEntry, ...] = ()
    """The quotas of all other znodes, where some are unreadable."""
    unknown: tuple[str, ...] = ()
    """The facts that could not be found out, a line each."""
