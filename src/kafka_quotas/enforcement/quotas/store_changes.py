"""What a store's content differs by from the one before, found in the thread that reads it.

A store says all of its content whenever any of it changes. The event loop is told what differs, so that a change of one
limit costs it that limit, however many others there are.
Invariants: the differences are from the content with the revision `since`; who has not put that in force takes all
entries instead, so that nothing is lost where a content could not be used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.model.quota_filter import QuotaFilter
from kafka_quotas.enforcement.quotas.quota_registry import NO_QUOTAS, Quotas, quotas_of
from kafka_quotas.stores.store import Alteration, AlterationResult, QuotaEntry, Snapshot, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSnapshot(Snapshot):
    """A store's content, and what it differs by from the content of the revision `since`."""

    since: str | None
    """None where this is the first content."""
    changed: Mapping[Entity, Quotas]
    """The limits of entities that have other ones than before, none for those that are gone."""
    of_places: tuple[QuotaEntry, ...]
    """All entries of what is no client: addresses, topics, brokers."""


class ChangeTracker:
    """Remembers a store's last content, also while the store is closed and opened again."""

    def __init__(self) -> None:
        self._revision: str | None = None
        self._before: dict[Entity, Mapping[str, float]] = {}

    def track(self, store: Store) -> Store:
        """Return the store, whose contents are `ChangedSnapshot` from now on."""
        return _TrackedStore(store, self)

    def changed(self, snapshot: Snapshot) -> ChangedSnapshot:
        """Return a content with what it differs by from the one that was given before."""
        before, of_places = self._before, []
        now: dict[Entity, Mapping[str, float]] = {}
        changed: dict[Entity, Quotas] = {}
        for entry in snapshot.entries:
            entity = entry.entity
            if entity.user is ABSENT and entity.client_id is ABSENT:
                of_places.append(entry)
                continue
            now[entity] = entry.quotas
            if before.get(entity) != entry.quotas:
                changed[entity] = quotas_of(entry)
        changed.update((entity, NO_QUOTAS) for entity in before.keys() - now.keys())
        since, self._revision, self._before = self._revision, snapshot.revision, now
        return ChangedSnapshot(
            revision=snapshot.revision,
            entries=snapshot.entries,
            since=since,
            changed=changed,
            of_places=tuple(of_places),
        )


class _TrackedStore:
    """A store whose contents say what they differ by; everything else is the store's own."""

    def __init__(self, store: Store, tracker: ChangeTracker) -> None:
        self.url = store.url
        self._store = store
        self._tracker = tracker

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        return self._store.describe(quota_filter)

    def alter(self, entries: Sequence[Alteration], *, validate_only: bool = False) -> list[AlterationResult]:
        return self._store.alter(entries, validate_only=validate_only)

    def watch(self, since: str | None, *, timeout_s: float) -> Snapshot | None:
        snapshot = self._store.watch(since, timeout_s=timeout_s)
        return None if snapshot is None else self._tracker.changed(snapshot)

    def close(self) -> None:
        self._store.close()
