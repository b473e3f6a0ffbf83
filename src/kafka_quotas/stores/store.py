"""The one interface of every store, the values that cross it, and what all stores do alike.

Invariants: names are raw, and sanitizing is the store's own business. Values are doubles. One `Alteration` per entity,
whose changes are applied together or not at all. The entities of one call succeed or fail independently. Our own
refusals come first, then the rules of Kafka that a kind of store follows. A name that Kafka accepts and ZooKeeper can't
hold is refused for ZooKeeper stores only. A wait tries its condition at least once, even with no time left; `stop`
ends it from any thread, and an error of the condition after `stop` counts as its end.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, TypeVar

from kafka_quotas.core.changes.plan import PlannedChange, new_values
from kafka_quotas.core.changes.validation import RELATIVE_NODES, kraft_verdict, our_refusals, zookeeper_verdict
from kafka_quotas.core.described import Described
from kafka_quotas.core.errors import InvalidQuotaError, KafkaQuotasError, StoreError
from kafka_quotas.core.model.entity import (
    EVERYTHING,
    Entity,
    QuotaFilter,
    entity_filter,
    filter_verdict_kraft,
    filter_verdict_local,
    filter_verdict_zk,
    matches,
)
from kafka_quotas.core.model.quota_key import is_threshold_entity, no_place_for
from kafka_quotas.stores.address import StoreKind

if TYPE_CHECKING:
    from kafka_quotas.core.groups.group import Group

Found = TypeVar("Found")


class Polling:
    """A wait that tries a condition at a fixed interval until it holds."""

    def __init__(
        self,
        interval_s: float,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        """Prepare a wait that has not begun.

        `pause` waits for a number of seconds and returns whether to stop. With None it is a wait that `stop` ends.
        """
        self._interval_s = interval_s
        self._monotonic_s = monotonic_s
        self._stopped = threading.Event()
        self._pause = pause or self._stopped.wait

    def check_open(self, url: str) -> None:
        """Raise a `StoreError` for a call of the store at `url` after `stop`."""
        if self._stopped.is_set():
            raise StoreError(f"the store was closed: {url}")

    def stop(self) -> None:
        """End every present and later wait at once."""
        self._stopped.set()

    def until(self, holds: Callable[[], bool], *, timeout_s: float) -> bool:
        """Wait until the condition holds, and return whether it did within the timeout and before `stop`."""
        return self.first(lambda: holds() or None, timeout_s=timeout_s) is not None

    def first(self, find: Callable[[], Found | None], *, timeout_s: float) -> Found | None:
        """Return the first result of `find` that is not None, or None after `timeout_s` seconds or `stop`."""
        deadline_s = self._monotonic_s() + timeout_s
        while not self._stopped.is_set():
            try:
                found = find()
            except StoreError:
                if self._stopped.is_set():
                    return None
                raise
            left_s = deadline_s - self._monotonic_s()
            if found is not None or left_s <= 0 or self._pause(min(self._interval_s, left_s)):
                return found
        return None


NEVER_WRITTEN: Final = "never-written"
"""The revision of an empty store that its first change has yet to create."""
BROKER_THROTTLES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
TOPIC_THROTTLES: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


class QuotaEntry(NamedTuple):
    """An entity and its stored quotas."""

    entity: Annotated[Entity, Described(prefix="")]
    quotas: Annotated[Mapping[str, float], Described(text="values by quota key", columns=("key", "value"))]


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
    groups: "tuple[Group, ...]" = ()
    """Groups of clients, of a store that holds them."""


def content_of(store: "Store") -> dict[Entity, Mapping[str, float]]:
    """Return everything that a store holds."""
    return dict(store.describe(EVERYTHING))


def alterations_of(changes: Iterable[PlannedChange]) -> list[Alteration]:
    """Return one alteration per entity with all of its changes."""
    return [Alteration(entity=entity, changes=new) for entity, new in new_values(changes).items()]


def errors_of(results: Iterable[AlterationResult]) -> dict[Entity, KafkaQuotasError]:
    """Return the errors of the failed alterations."""
    return {result.entity: result.error for result in results if result.error is not None}


ReplicationThrottle = tuple[str, str, str]
"""A throttle of replication traffic: the broker or topic, the name of the property, and its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """The facts that one look at a cluster found."""

    callbacks: Mapping[str, str] = field(default_factory=dict)
    threads: Mapping[str, int] = field(default_factory=dict)
    replication_throttles: tuple[ReplicationThrottle, ...] = ()
    reassigning: bool | None = None
    """Whether partitions are being moved, None where that is not known."""
    too_old: tuple[str, ...] = ()
    unanswered: Mapping[str, str] = field(default_factory=dict)
    """The brokers that the cluster lists and that did not answer, with the reason."""
    empty_znodes: tuple[str, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    """The znodes that can't be read, with the reasons."""
    readable: tuple[QuotaEntry, ...] = ()
    """The quotas of all other znodes, where some are unreadable."""
    unknown: tuple[str, ...] = ()


class BrokerAnswerError(StoreError):
    """An error that a broker answered, with its own text, and Kafka's name of the error as `code`."""

    def __init__(self, message: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


def refusal(alteration: Alteration, *, kind: StoreKind, allow_invalid: bool = False) -> InvalidQuotaError | None:
    """Return the error by which the rules of a kind of store refuse it, None where it is accepted."""
    entity, changes = alteration.entity, tuple(alteration.changes.items())
    refused = _unwritable_name(entity)
    if refused is None and not allow_invalid:
        refused = our_refusals(entity, alteration.changes)
    if refused is not None:
        return refused
    if is_threshold_entity(entity):
        return None if kind.holds_thresholds else no_place_for(entity)
    if kind is StoreKind.ZOOKEEPER and not has_znode(entity):
        return InvalidQuotaError(f"ZooKeeper can't hold this name: {entity}")
    if kind is StoreKind.LOCAL or (kind is StoreKind.ZOOKEEPER and not allow_invalid):
        refused = kraft_verdict(entity.parts, changes, resolves=name_resolves)
    if refused is None and kind is StoreKind.ZOOKEEPER:
        refused = zookeeper_verdict(entity.parts, changes, resolves=name_resolves)
    return refused  # the brokers of a Kafka store decide themselves


def has_znode(entity: Entity) -> bool:
    """Return whether ZooKeeper can have a znode for an entity, as no path has `.` or `..` in it."""
    return not any(name in RELATIVE_NODES for _, name in entity.parts)


def name_resolves(host: str) -> bool:
    """Return whether this machine resolves a host name, as the controller would have to."""
    import socket  # noqa: PLC0415 - only host names as ip entities need it

    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return True


def _unwritable_name(entity: Entity) -> InvalidQuotaError | None:
    """Return the refusal of a name that is not valid UTF-8, as from a terminal in another encoding."""
    for kind, name in entity.parts:
        try:
            (name or "").encode()
        except UnicodeEncodeError:
            return InvalidQuotaError(
                f"the {kind} name is not valid UTF-8: {name!a}",
                hint="check the encoding of the terminal or of the file it came from",
            )
    return None


class Store(ABC):
    """A place of quotas, whose calls may raise a `StoreUnreachableError` or `StoreRefusedError`."""

    kind: StoreKind
    interval_s: float
    """Between two looks of a watch."""

    def __init__(self, url: str, *, polling: Polling | None = None, allow_invalid: bool = False) -> None:
        self.url = url
        """The address under which `open_store` opens it again, without secrets."""
        self._allow_invalid = allow_invalid
        self._polling = polling or Polling(self.interval_s)

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        """Return the matching entries, sorted by entity.

        Raises:
            InvalidQuotaError: The filter itself is refused.
        """
        self._polling.check_open(self.url)
        refused = _FILTER_VERDICTS.get(self.kind, filter_verdict_kraft)(quota_filter)
        if refused is not None:
            raise refused
        return [entry for entry in self._read(quota_filter) if matches(quota_filter, entry.entity)]

    def alter(self, entries: Sequence[Alteration], *, validate_only: bool = False) -> list[AlterationResult]:
        """Apply the alterations that pass the checks, or only check them with `validate_only`.

        Returns:
            One result per alteration, in order.
        """
        self._polling.check_open(self.url)
        results = [self._checked(entry) for entry in entries]
        accepted = [entry for entry, result in zip(entries, results, strict=True) if result.error is None]
        errors = iter(self._write(accepted, validate_only=validate_only) if accepted else ())
        return [replace(each, error=next(errors)) if each.error is None else each for each in results]

    def _checked(self, alteration: Alteration) -> AlterationResult:
        """Return the result of an alteration before it is written: its refusal, or what it finds stored.

        The entity is read, if the alteration is `only_set` and valid.
        """
        entity, changes = alteration.entity, alteration.changes
        refused = refusal(alteration, kind=self.kind, allow_invalid=self._allow_invalid)
        if refused is not None or not alteration.only_set:
            return AlterationResult(entity=entity, error=refused)
        entries = self.describe(entity_filter(entity))
        before = entries[0].quotas if entries else {}
        unset = ", ".join(key for key, new in changes.items() if new is None and key not in before)
        there = f"set there: {', '.join(sorted(before))}" if before else "nothing is set there"
        error = KafkaQuotasError(f"not set on {entity}, so not removed: {unset}", hint=there) if unset else None
        return AlterationResult(entity=entity, error=error, before=before)

    def groups(self) -> "tuple[Group, ...]":
        """Return the groups of clients in their order, none of a store that can't hold any."""
        self._polling.check_open(self.url)
        return self._read_groups()

    def replace_groups(self, groups: "Sequence[Group]", *, expected: "Sequence[Group]") -> None:
        """Replace all groups, given those that the caller found.

        Raises:
            UsageError: The groups don't fit together, or the store can't hold any.
            StoreRefusedError: The store holds other groups than expected by now.
        """
        from kafka_quotas.core.groups.group import GroupTree  # noqa: PLC0415 - most runs have to do with no group

        self._polling.check_open(self.url)
        if groups and not self.kind.holds_groups:
            raise no_place_for(groups[0].entity)
        self._write_groups(GroupTree(groups).groups, tuple(expected))

    def watch(self, since: str | None, *, timeout_s: float) -> Snapshot | None:
        """Return the content once its revision differs from `since`, or None after the timeout."""
        return self._polling.first(lambda: self._changed(since), timeout_s=timeout_s)

    def cluster_info(self) -> ClusterInfo:
        """Return the facts that the cluster of the store reports."""
        return ClusterInfo(unknown=("a local store: no brokers to check",))

    def cluster_id(self) -> str | None:
        """Return the id of the cluster, None without one, or if its brokers never started."""
        return None

    def old_brokers(self) -> tuple[str, ...]:
        """Return the ids of brokers that are older than 2.7."""
        return ()

    def close(self) -> None:
        """Release connections and files, and end every `watch`, in any thread.

        A second call has no effect.
        """
        self._polling.stop()
        self._release()

    def _release(self) -> None:  # noqa: B027 - a file that is read anew each time has none
        """Release connections and files."""

    @abstractmethod
    def _read(self, quota_filter: QuotaFilter) -> Sequence[QuotaEntry]:
        """Return at least the entries that match, sorted by entity."""

    @abstractmethod
    def _write(self, accepted: Sequence[Alteration], *, validate_only: bool) -> Sequence[KafkaQuotasError | None]:
        """Apply alterations that were checked, and return the error of each."""

    def _read_groups(self) -> "tuple[Group, ...]":
        """Return the groups of clients."""
        return ()

    def _write_groups(self, groups: "tuple[Group, ...]", expected: "tuple[Group, ...]") -> None:  # noqa: B027 - as above
        """Replace groups that fit together."""

    @abstractmethod
    def _changed(self, since: str | None) -> Snapshot | None:
        """Return the content if its revision is not `since`."""


_FILTER_VERDICTS: Final[Mapping[StoreKind, Callable[[QuotaFilter], InvalidQuotaError | None]]] = {
    StoreKind.LOCAL: filter_verdict_local,
    StoreKind.ZOOKEEPER: filter_verdict_zk,
}
