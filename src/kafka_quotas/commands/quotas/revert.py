"""Undo what the journal has: propose the inverse change, make it, or make all that are due."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from kafka_quotas.commands.quotas.history import JournalWriter
from kafka_quotas.core.changes.journal_entry import InverseChange, JournalEntry, due_undos, inverse_of, merged_changes
from kafka_quotas.core.changes.plan import Plan, PlannedChange, planned
from kafka_quotas.core.described import StoreAddress
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores.store import Store, alterations_of, content_of, errors_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertProposal:
    """The inverse of what one run changed, as a plan for the store as it is now."""

    DOCUMENT: ClassVar = "entry=entry.entry_id store=store_url entry.time entry.command by=entry.user entry.reason"
    entry: JournalEntry
    """The first entry of that run."""
    store_url: StoreAddress
    plan: Plan
    inverse: InverseChange


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertResult:
    """The outcome of a revert."""

    store_url: str
    undone: tuple[PlannedChange, ...]
    """The changes that were reverted."""
    failed: tuple[tuple[Entity, KafkaQuotasError], ...]
    """The entities that could not be reverted, and why."""
    changed_since: tuple[tuple[PlannedChange, float | None], ...] = ()
    """Changes whose quota has another value by now."""


def store_of(entries: Sequence[JournalEntry]) -> str:
    """Return the address of the one store that the entries changed, or raise a `UsageError` for several."""
    urls = {entry.store_url for entry in entries}
    if len(urls) > 1:
        raise UsageError(
            f"this entry changed several stores: {', '.join(sorted(urls))}", hint="name one of them with --store URL"
        )
    return urls.pop()


def propose(store: Store, entries: Sequence[JournalEntry], *, force: bool = False) -> RevertProposal:
    """Return the inverse of what the entries changed, with `force` also of quotas changed since then."""
    stored = content_of(store)
    found = inverse_of(merged_changes(entries), stored, force=force)
    return RevertProposal(entry=entries[0], store_url=store.url, plan=planned(stored, found.to_make), inverse=found)


def revert(store: Store, proposal: RevertProposal, *, recorder: JournalWriter) -> RevertResult:
    """Carry out the proposal and return what was reverted and which entities failed.

    Raises:
        KafkaQuotasError: A quota of it has changed since. Then nothing is reverted.
    """
    if proposal.inverse.changed_since:
        raise KafkaQuotasError(
            f"{len(proposal.inverse.changed_since)} of the quotas have changed since; nothing was undone",
            hint="check the proposal; --force undoes it anyway",
        )
    failed = _write(store, proposal.inverse.to_make)
    undone = tuple(change for change in proposal.plan.changes if change.entity not in failed)
    settled = (*proposal.plan.changes, *_as_found(proposal.inverse))
    recorder.record_outcomes(store.url, settled, failed, reverts=proposal.entry.entry_id)
    return RevertResult(store_url=store.url, undone=undone, failed=tuple(failed.items()))


def undo_due(store: Store, entries: Sequence[JournalEntry], *, recorder: JournalWriter) -> RevertResult:
    """Revert the changes in a store whose time is up, and return the outcome.

    Each call tries again what failed before. Somebody else changed a quota with another value than the change gave it:
    such a quota is left alone and settled.
    """
    undos = due_undos(entries, store_url=store.url, now_ms=recorder.clock.now_ms())
    content = {entity: dict(quotas) for entity, quotas in content_of(store).items()} if undos else {}
    undone: list[PlannedChange] = []
    changed_since: list[tuple[PlannedChange, float | None]] = []
    failed: dict[Entity, KafkaQuotasError] = {}
    for undo in undos:
        pending = tuple(change for change in undo.changes if change.entity not in failed)
        found = inverse_of(pending, content)
        failed |= _write(store, found.to_make)
        made = tuple(change for change in found.to_make if change.entity not in failed)
        recorder.record_outcomes(store.url, (*found.to_make, *_as_found(found)), failed, reverts=undo.entry_id)
        content = planned(content, made).applied_to(content)
        undone += made
        changed_since += found.changed_since
    return RevertResult(
        store_url=store.url, undone=tuple(undone), failed=tuple(failed.items()), changed_since=tuple(changed_since)
    )


def _write(store: Store, changes: Sequence[PlannedChange]) -> dict[Entity, KafkaQuotasError]:
    return errors_of(store.alter(alterations_of(changes))) if changes else {}


def _as_found(found: InverseChange) -> tuple[PlannedChange, ...]:
    """Return the quotas that stayed as found, in the form that settles them in the journal."""
    stayed = [(change, change.old) for change in found.back_already] + list(found.changed_since)
    return tuple(PlannedChange(entity=change.entity, key=change.key, old=value, new=value) for change, value in stayed)
