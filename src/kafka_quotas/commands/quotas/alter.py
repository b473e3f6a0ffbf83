"""Set and remove quotas: those of one entity with all that is to say about it, or those of many in chunks.

The store validates and writes, the journal records, the result reports.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from kafka_quotas import stores
from kafka_quotas.commands.quotas.quota_checks import Finding, findings_of_change
from kafka_quotas.core.changes.plan import PlannedChange, applied, planned
from kafka_quotas.core.described import Described, StoreAddress
from kafka_quotas.core.errors import KafkaQuotasError, NotVisibleError, StoreError, StoreUnreachableError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import NEW_KEYS, is_threshold_entity

if TYPE_CHECKING:
    from kafka_quotas.core.changes.blast_radius import BlastRadius


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterResult:
    """The changes made, or with `dry_run` planned, where, and who checked them."""

    DOCUMENT: ClassVar = "store=store_url dry_run checked_by entity changes findings affected=radius.affected"
    entity: Entity
    store_url: StoreAddress
    changes: tuple[PlannedChange, ...]
    dry_run: bool
    checked_by_broker: bool
    """Whether a broker checked them by its validate-only, beside this program."""
    undo_at_ms: int | None = None
    radius: Annotated["BlastRadius | None", Described(text="null without --dry-run")] = None
    findings: tuple[Finding, ...] = ()
    """What is odd about the changes, those about the entity itself first."""
    warnings: tuple[str, ...] = ()
    """Why brokers may ignore a change, and what could not be checked."""

    @property
    def checked_by(self) -> tuple[str, ...]:
        """Who checked the changes."""
        return ("client", "broker") if self.checked_by_broker else ("client",)


def alter(
    store: stores.Store,
    *,
    entity: Entity,
    changes: Mapping[str, float | None],
    dry_run: bool = False,
    recorder: stores.JournalWriter | None = None,
    for_ms: int | None = None,
) -> AlterResult:
    """Change the quotas of an entity and return what changed, or with `dry_run` what would.

    A key to remove must be set, as with kafka-configs: a misspelt one would otherwise pass as done. With `for_ms` the
    journal schedules the revert.

    Raises:
        InvalidQuotaError: The change is refused.
        KafkaQuotasError: A key to remove is not set.
        StoreRefusedError: The store refuses the change.
    """
    (result,) = store.alter([stores.Alteration(entity=entity, changes=changes, only_set=True)], validate_only=dry_run)
    made = tuple(
        PlannedChange(entity=entity, key=key, old=result.before.get(key), new=new) for key, new in changes.items()
    )
    undo_at_ms = None
    if recorder is not None and not dry_run:
        errors = {} if result.error is None else {entity: result.error}
        undo_at_ms = None if for_ms is None else recorder.clock.now_ms() + for_ms
        if not recorder.record_outcomes(store.url, _to_record(made, store, recorder), errors, undo_at_ms=undo_at_ms):
            undo_at_ms = None
    if result.error is not None:
        raise result.error
    warnings = _warnings(store, changes)
    findings: tuple[Finding, ...] = ()
    radius = None
    if not is_threshold_entity(entity):
        try:
            stored = stores.content_of(store)
        except KafkaQuotasError as error:
            if dry_run:
                raise
            warnings += (f"not checked who gets it, because the store can't be read: {error.message}",)
        else:
            # The store shows the changes already, or not yet.
            before = applied(stored, [replace(each, old=each.new, new=each.old) for each in made])
            findings = findings_of_change(before, applied(stored, made), made)
            if dry_run:
                from kafka_quotas.core.changes.blast_radius import blast_radius  # noqa: PLC0415 - only it pays for it

                radius = blast_radius(before, planned(before, made))
    return AlterResult(
        entity=entity,
        store_url=store.url,
        changes=made,
        dry_run=dry_run,
        checked_by_broker=store.kind.broker_validates,
        undo_at_ms=undo_at_ms,
        radius=radius,
        findings=findings,
        warnings=warnings,
    )


def _to_record(
    made: Sequence[PlannedChange], store: stores.Store, recorder: stores.JournalWriter
) -> tuple[PlannedChange, ...]:
    """Return the changes that the journal needs.

    One that left its value as it was is needed where it takes a time limit away from an earlier change, or sets a
    later one.
    """
    if not any(change.is_unchanged for change in made):
        return tuple(made)
    pending = recorder.temporary_quotas(store.url)
    return tuple(each for each in made if not each.is_unchanged or (each.entity, each.key) in pending)


def _warnings(store: stores.Store, changes: Mapping[str, float | None]) -> tuple[str, ...]:
    new = [key for key in NEW_KEYS if changes.get(key) is not None]
    old: tuple[str, ...] = ()
    with suppress(StoreError):  # a cluster that can't be asked
        old = store.old_brokers() if new else ()
    return (f"broker {', '.join(old)} is older than Kafka 2.7 and ignores {', '.join(new)}",) if old else ()


FIRST_CHUNK: Final = 100
"""The number of entities that go to the store at first; later chunks are as large as it does in `CHUNK_S`."""
CHUNK_S: Final = 3.0
MOST_GROWTH: Final = 10
"""Each chunk costs a Kafka store one more look at everything, so chunks grow soon."""

Progress = Callable[[int, int], None]
"""Called with how many entities are done, of how many."""
Made = Callable[[Sequence[PlannedChange], Mapping[Entity, KafkaQuotasError]], object]
"""Called with the changes of each chunk and what failed, so that an interruption loses nothing of what was done."""


def alter_many(
    store: stores.Store, changes: Sequence[PlannedChange], *, validate_only: bool, progress: Progress, made: Made
) -> dict[Entity, KafkaQuotasError]:
    """Write the changes in chunks until the store is lost, and return why entities failed.

    Raises:
        KafkaQuotasError: The store fails before anything was written.
    """
    alterations = stores.alterations_of(changes)
    failed: dict[Entity, KafkaQuotasError] = {}
    done, size = 0, FIRST_CHUNK
    while done < len(alterations):
        chunk = alterations[done : done + size]
        begin_s = time.monotonic()
        try:
            errors = stores.errors_of(store.alter(chunk, validate_only=validate_only))
        except KafkaQuotasError as error:
            if done == 0:
                raise
            return failed | {each.entity: error for each in alterations[done:]}
        if not validate_only:
            entities = {each.entity for each in chunk}
            made([change for change in changes if change.entity in entities], errors)
        failed |= errors
        done += len(chunk)
        progress(done, len(alterations))
        for gone in errors.values():  # a change that does not show in time says nothing about the next
            if isinstance(gone, StoreUnreachableError) and not isinstance(gone, NotVisibleError):
                return failed | {each.entity: gone for each in alterations[done:]}
        size = next_chunk(size, time.monotonic() - begin_s)
    return failed


def next_chunk(size: int, took_s: float) -> int:
    """Return how many entities the store changes in `CHUNK_S`, and never less than the first chunk."""
    growth = min(MOST_GROWTH, CHUNK_S / max(took_s, 1e-9))
    return max(FIRST_CHUNK, int(size * growth))
