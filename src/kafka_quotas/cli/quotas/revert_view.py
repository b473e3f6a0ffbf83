"""What is shown of the journal and of undoing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from kafka_quotas.cli.output.document import document_of, documents_of
from kafka_quotas.cli.output.render import Column, Listing, Table, columns
from kafka_quotas.cli.output.values import change_cells
from kafka_quotas.commands.quotas.revert import RevertProposal, RevertResult
from kafka_quotas.core.changes.journal_entry import JournalEntry, settled_ids
from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.clock import format_instant
from kafka_quotas.core.described import Described, StoreAddress
from kafka_quotas.stores.files.journal import JournalContent

_SHOWN_CHANGES = 3
_STATES = ("to undo", "undone", "failed", "changed since", "already as before")
PROPOSED_COLUMNS = columns("entity, key!, current>!, after revert>!, state")
DONE_COLUMNS = columns("entity, key!, was>!, is>!, state")
UNDONE_COLUMNS = columns("entity, key!, was>!, is>!, store")


@dataclass(frozen=True, slots=True)
class JournalRow:
    """An entry of the journal, and whether a later one undid it."""

    DOCUMENT: ClassVar = (
        "id=entry.entry_id entry.time entry.command by=entry.user store=entry.store_url entry.changes entry.reason "
        "entry.undo_at entry.reverts reverted entry.confirmed"
    )
    entry: JournalEntry
    reverted: bool


@dataclass(frozen=True, slots=True)
class RevertRow:
    """A change that undoes another, and what became of it."""

    DOCUMENT: ClassVar = "change.entity change.key change.old change.new state"
    change: PlannedChange
    state: Annotated[str, Described(choices=_STATES)]


@dataclass(frozen=True, slots=True)
class UndoneRow:
    """A change that was undone, and where."""

    DOCUMENT: ClassVar = "store change.entity change.key change.old change.new"
    change: PlannedChange
    store: StoreAddress


def history_listing(result: JournalContent) -> Listing:
    """List the entries of the journal, oldest first."""
    settled = settled_ids(result.entries)
    stores = {entry.store_url for entry in result.entries}
    caption = f"in {stores.pop()}" if len(stores) == 1 else None
    return Listing(
        noun="journal",
        items="entries",
        apart=True,
        data={"entries": [document_of(JournalRow(entry, entry.entry_id in settled)) for entry in result.entries]},
        table=Table(
            columns=columns("id!, time!, by, changes, note"),
            rows=[
                (
                    entry.entry_id,
                    _shown_time(entry.time_ms),
                    f"{entry.command}, {entry.user}",
                    _changes_in_words(entry) + ("" if caption else f" in {entry.store_url}"),
                    _note(entry, settled),
                )
                for entry in result.entries
            ],
            caption=caption,
        ),
    )


def proposal_listing(proposal: RevertProposal, where: str, result: RevertResult | None = None) -> Listing:
    """List the inverse of an entry's changes in a store, quota by quota.

    With a result it lists the outcome of each.
    """
    found, entry = proposal.inverse, proposal.entry
    failed = set() if result is None else {entity for entity, _ in result.failed}
    done = "to undo" if result is None else "undone"
    rows = [
        *(RevertRow(change, "failed" if change.entity in failed else done) for change in proposal.plan.changes),
        *(RevertRow(_reversed(change, now), "changed since") for change, now in found.changed_since),
        *(RevertRow(_reversed(change, change.old), "already as before") for change in found.back_already),
    ]
    when, reason = _shown_time(entry.time_ms), f": {entry.reason}" if entry.reason else ""
    caption = f"{entry.entry_id}, {entry.command} by {entry.user} at {when} in {where}{reason}"
    return Listing(
        noun="revert",
        items="changes",
        data={**document_of(proposal), "changes": documents_of(rows)},
        table=replace(
            _table([(each.change, each.state) for each in rows], PROPOSED_COLUMNS if result is None else DONE_COLUMNS),
            caption=caption,
        ),
    )


def result_listing(results: Sequence[RevertResult]) -> Listing:
    """List what was reverted, store by store."""
    rows = [UndoneRow(change, result.store_url) for result in results for change in result.undone]
    return Listing(
        noun="undone",
        items="changes",
        data={"changes": documents_of(rows)},
        table=_table([(each.change, each.store) for each in rows], UNDONE_COLUMNS),
    )


def _table(rows: Sequence[tuple[PlannedChange, str]], columns: Sequence[Column]) -> Table:
    return Table(columns=columns, rows=[(*change_cells(change), text) for change, text in rows])


def _reversed(change: PlannedChange, now: float | None) -> PlannedChange:
    return PlannedChange(entity=change.entity, key=change.key, old=now, new=change.old)


def _changes_in_words(entry: JournalEntry) -> str:
    shown = map(change_cells, entry.changes[:_SHOWN_CHANGES])
    words = [f"{entity}: {key} {old} -> {new}" for entity, key, old, new in shown]
    more = len(entry.changes) - len(words)
    return "; ".join(words) + (f"; and {more} more" if more else "")


def _shown_time(time_ms: int) -> str:
    return f"{format_instant(time_ms)[:19].replace('T', ' ')}Z"


def _note(entry: JournalEntry, settled: set[str]) -> str:
    """Return the reason of an entry, what it reverts, and whether or when it is reverted itself."""
    notes = [entry.reason or "", "" if entry.confirmed else "not confirmed"]
    notes.append(f"reverts {entry.reverts}" if entry.reverts is not None else "")
    if entry.entry_id in settled:
        notes.append("reverted")
    elif entry.undo_at_ms is not None:
        notes.append(f"until {format_instant(entry.undo_at_ms)[:16]}Z")
    return ", ".join(note for note in notes if note)
