"""The differences between a store's content and its last one, found in the thread that reads the store.

A store returns its whole content after any change. The event loop gets only the differences, so a change of one limit
costs it one limit, however many others there are.
Invariants: the differences are from the content with the revision `since`; a receiver with another revision in force
takes all entries instead, so it loses nothing when a content could not be used.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.enforcement.quotas.quota_registry import NO_QUOTAS, Quotas, quotas_of
from kafka_quotas.stores.store import QuotaEntry, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSnapshot(Snapshot):
    """A store's content, and its differences from the content of an earlier revision."""

    since: str | None
    """Revision that `changed` starts from, None for the first content."""
    changed: Mapping[Entity, Quotas]
    """Changed entity -> its limits, none for a removed entity."""
    other_entries: tuple[QuotaEntry, ...]
    """All entries without a user and client-id: addresses, topics, brokers."""


class ChangeTracker:
    """The last content of a store, kept while the store is closed and opened again."""

    def __init__(self) -> None:
        self._revision: str | None = None
        self._before: dict[Entity, Mapping[str, float]] = {}

    def changed(self, snapshot: Snapshot) -> ChangedSnapshot:
        """Compare a content with the last one, and return it with the differences."""
        before, other_entries = self._before, []
        now: dict[Entity, Mapping[str, float]] = {}
        changed: dict[Entity, Quotas] = {}
        for entry in snapshot.entries:
            entity = entry.entity
            if entity.user is ABSENT and entity.client_id is ABSENT:
                other_entries.append(entry)
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
            other_entries=tuple(other_entries),
        )
