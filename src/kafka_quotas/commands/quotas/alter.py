"""Set and remove quotas of one entity: check, compare with what is stored, write, report the changes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kafka_quotas.commands.quotas.history import JournalWriter
from kafka_quotas.core.changes.plan import PlannedChange, planned
from kafka_quotas.core.changes.validation import our_refusals
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import EVERYTHING, FilterComponent, Match, QuotaFilter
from kafka_quotas.core.model.threshold import refuse_elsewhere
from kafka_quotas.stores.store import Alteration, AlterationResult, Store

if TYPE_CHECKING:
    from kafka_quotas.core.changes.blast_radius import BlastRadius


class Checker(StrEnum):
    """Who has checked an alteration."""

    CLIENT = "client"
    """This program, by its own rules and those of the store's Kafka."""
    BROKER = "broker"
    """A broker, by its validate-only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    """One key before and after a change."""

    key: str
    old: float | None
    """In the unit of the key, None where it was not set."""
    new: float | None
    """In the unit of the key, None where it is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterResult:
    """The changes made, or with `dry_run` planned, where, and who checked them."""

    entity: Entity
    store_url: str
    changes: tuple[QuotaChange, ...]
    dry_run: bool
    checked_by: tuple[Checker, ...]
    undo_at_ms: int | None = None
    """When the journal schedules the revert, in milliseconds since the epoch, None for never."""
    radius: "BlastRadius | None" = None
    """The affected clients, with `dry_run` only."""


def alter(
    store: Store,
    *,
    entity: Entity,
    changes: Mapping[str, float | None],
    dry_run: bool = False,
    allow_invalid: bool = False,
    recorder: JournalWriter | None = None,
    for_ms: int | None = None,
) -> AlterResult:
    """Change the quotas of an entity and return what changed.

    A key to remove must be set, as with kafka-configs: a misspelt one would otherwise pass as done. A dry run checks
    everything and writes nothing. `recorder` writes the change into the journal, which schedules the revert after
    `for_ms` milliseconds, never if None.

    Raises:
        InvalidQuotaError: The change is refused.
        KafkaQuotasError: A key to remove is not set.
        StoreUnreachableError: The store can't be reached.
        StoreRefusedError: The store refuses the change.
    """
    if not allow_invalid:
        refused = our_refusals(entity, changes)
        if refused is not None:
            raise refused
    refuse_elsewhere(store.url, entity)
    stored = stored_quotas(store, entity)
    _refuse_unset(entity, changes, stored)
    (result,) = store.alter([Alteration(entity=entity, changes=changes)], validate_only=dry_run)
    made = tuple(QuotaChange(key=key, old=stored.get(key), new=new) for key, new in changes.items())
    undo_at_ms = None
    if recorder is not None and not dry_run:
        undo_at_ms = _recorded(recorder, store.url, made, result, for_ms)
    if result.error is not None:
        raise result.error
    return AlterResult(
        entity=entity,
        store_url=store.url,
        changes=made,
        dry_run=dry_run,
        checked_by=(Checker.CLIENT, Checker.BROKER) if store.url.startswith("kafka:") else (Checker.CLIENT,),
        undo_at_ms=undo_at_ms,
        radius=_radius(store, entity, made) if dry_run else None,
    )


def stored_quotas(store: Store, entity: Entity) -> Mapping[str, float]:
    """Return the values stored for exactly this entity, by key name."""
    components = tuple(
        FilterComponent(entity_type=kind, match=Match.DEFAULT if name is None else Match.EXACT, name=name)
        for kind, name in entity.parts
    )
    entries = store.describe(QuotaFilter(components=components, strict=True))
    return entries[0].quotas if entries else {}


def _radius(store: Store, entity: Entity, made: Iterable[QuotaChange]) -> "BlastRadius":
    """Return the clients that the changes would affect."""
    from kafka_quotas.core.changes.blast_radius import blast_radius  # noqa: PLC0415 - only a dry run pays for it

    stored = {entry.entity: entry.quotas for entry in store.describe(EVERYTHING)}
    changes = [PlannedChange(entity=entity, key=change.key, old=change.old, new=change.new) for change in made]
    return blast_radius(stored, planned(stored, changes))


def _recorded(
    recorder: JournalWriter, store_url: str, made: Iterable[QuotaChange], result: AlterationResult, for_ms: int | None
) -> int | None:
    """Write the changes into the journal and return when it schedules their revert.

    Returns:
        In milliseconds since the epoch, None for never or if the journal can't be written.
    """
    undo_at_ms = None if for_ms is None else recorder.clock.now_ms() + for_ms
    changes = [PlannedChange(entity=result.entity, key=change.key, old=change.old, new=change.new) for change in made]
    errors = {} if result.error is None else {result.entity: result.error}
    return undo_at_ms if recorder.record_outcomes(store_url, changes, errors, undo_at_ms=undo_at_ms) else None


def _refuse_unset(entity: Entity, changes: Mapping[str, float | None], stored: Mapping[str, float]) -> None:
    unset = [key for key, new in changes.items() if new is None and key not in stored]
    if unset:
        there = f"set there: {', '.join(sorted(stored))}" if stored else "nothing is set there"
        raise KafkaQuotasError(f"not set on {entity}, so not removed: {', '.join(unset)}", hint=there)
