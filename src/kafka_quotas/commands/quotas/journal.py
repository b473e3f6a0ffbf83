"""The journal looked up, and its changes undone, by proposal or as soon as their time is up."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from kafka_quotas import stores
from kafka_quotas.core.changes.plan import Content, Plan, PlannedChange, applied, planned, same_value
from kafka_quotas.core.clock import parse_instant
from kafka_quotas.core.described import StoreAddress
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.model.entity import Entity

_WHOLE_ID: Final = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)-[0-9a-f]{6}")
_CLOCK_STEP_MS: Final = 3_600_000
"""So far this machine's clock may have been set back during a run without hiding its first entries."""


def find_entries(journal: stores.Journal, entry_id: str, place: stores.StoreUrl) -> tuple[stores.JournalEntry, ...]:
    """Return the entries of the run with this id or prefix, or the `last` run that changed the store."""
    found: list[stores.JournalEntry] = []
    newest: stores.JournalEntry | None = None
    wanted, begin_ms = entry_id, _begin_ms(entry_id)
    for entry in journal.newest_first() if entry_id else ():
        newest = newest or entry
        if wanted == stores.LAST:
            if not stores.is_address_of(entry.store_url, place):
                continue
            wanted = entry.entry_id
            begin_ms = _begin_ms(wanted)
        if begin_ms is not None and entry.time_ms < begin_ms - _CLOCK_STEP_MS:
            break  # whatever comes now was written before that run began
        if entry.entry_id.startswith(wanted):
            found.append(entry)
    ids = {entry.entry_id for entry in found}
    if not found:
        raise _not_found(entry_id, place, newest)
    if len(ids) > 1 and wanted not in ids:
        raise UsageError(f"several entries begin with {entry_id!r}", hint=f"for example {', '.join(sorted(ids)[:3])}")
    return tuple(entry for entry in reversed(found) if entry.entry_id == wanted or wanted not in ids)


def _not_found(entry_id: str, place: stores.StoreUrl, newest: stores.JournalEntry | None) -> UsageError:
    hint = "kafka-quotas revert --list shows them"
    if entry_id != stores.LAST:
        return UsageError(f"the journal has no entry {entry_id!r}", hint=hint)
    if newest is not None:
        hint = f"the last change is {newest.entry_id}, of {newest.store_url}: kafka-quotas revert {newest.entry_id}"
    return UsageError(f"the journal has no change of {place}", hint=hint)


def _begin_ms(entry_id: str) -> int | None:
    """Return when the run of a whole id began (milliseconds since the epoch), None for any other text."""
    match = _WHOLE_ID.fullmatch(entry_id)
    if match is None:
        return None
    try:
        return parse_instant("{}-{}-{}T{}:{}:{}Z".format(*match.groups()))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class InverseChange:
    """The inverse of some changes."""

    to_make: tuple[PlannedChange, ...]
    changed_since: tuple[tuple[PlannedChange, float | None], ...]
    """The changes whose quotas have another value now, with the values found."""
    back_already: tuple[PlannedChange, ...]


def merged_changes(entries: Iterable[stores.JournalEntry]) -> tuple[PlannedChange, ...]:
    """Return the changes of several entries as one per quota, with its first old and its last new value."""
    merged: dict[tuple[Entity, str], PlannedChange] = {}
    for entry in entries:
        for change in entry.changes:
            before = merged.get((change.entity, change.key))
            old = change.old if before is None else before.old
            merged[change.entity, change.key] = replace(change, old=old)
    return tuple(merged.values())


def inverse_of(changes: Iterable[PlannedChange], stored: Content, *, force: bool = False) -> InverseChange:
    """Return the inverse of the changes, with `force` also of quotas that have another value by now."""
    to_make, changed_since, back_already = [], [], []
    for change in changes:
        found = stored.get(change.entity, {}).get(change.key)
        if same_value(found, change.old):
            back_already.append(change)
        elif force or same_value(found, change.new):
            to_make.append(replace(change, old=found, new=change.old))
        else:
            changed_since.append((change, found))
    return InverseChange(to_make=tuple(to_make), changed_since=tuple(changed_since), back_already=tuple(back_already))


def contents_between(
    stored: Content, newest_first: Iterable[stores.JournalEntry], *, store_url: str, first_ms: int, last_ms: int
) -> tuple[tuple[int, Content], ...]:
    """Return what a store held between two times, each content with the time from which on it did.

    An unconfirmed change counts as made where the store had its new value afterwards. Times are in ms since the epoch.
    """
    content: dict[Entity, Mapping[str, float]] = dict(stored)
    found: list[tuple[int, Content]] = []
    for entry in newest_first:
        if entry.time_ms <= first_ms:
            break
        if entry.store_url == store_url:
            if entry.time_ms <= last_ms:
                found.append((entry.time_ms, dict(content)))
            for change in reversed(entry.changes):
                quotas = dict(content.get(change.entity, {}))
                if entry.confirmed or same_value(quotas.get(change.key), change.new):
                    quotas.pop(change.key, None)
                    content[change.entity] = quotas if change.old is None else {**quotas, change.key: change.old}
    found.append((first_ms, content))
    return tuple(reversed(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertProposal:
    """The inverse of what one run changed, as a plan for the store as it is now."""

    DOCUMENT: ClassVar = "entry=entry.entry_id store=store_url entry.time entry.command by=entry.user entry.reason"
    entry: stores.JournalEntry
    """The first entry of that run."""
    store_url: StoreAddress
    plan: Plan
    inverse: InverseChange


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertResult:
    """The outcome of a revert."""

    store_url: str
    undone: tuple[PlannedChange, ...]
    failed: tuple[tuple[Entity, KafkaQuotasError], ...]
    changed_since: tuple[tuple[PlannedChange, float | None], ...] = ()
    """Changes whose quota has another value by now."""


def store_of(entries: Sequence[stores.JournalEntry]) -> str:
    """Return the address of the one store that the entries changed, or raise a `UsageError` for several."""
    urls = {entry.store_url for entry in entries}
    if len(urls) > 1:
        raise UsageError(
            f"this entry changed several stores: {', '.join(sorted(urls))}", hint="name one of them with --store URL"
        )
    return urls.pop()


def propose(store: stores.Store, entries: Sequence[stores.JournalEntry], *, force: bool = False) -> RevertProposal:
    """Return the inverse of what the entries changed, with `force` also of quotas changed since then."""
    stored = stores.content_of(store)
    found = inverse_of(merged_changes(entries), stored, force=force)
    return RevertProposal(entry=entries[0], store_url=store.url, plan=planned(stored, found.to_make), inverse=found)


def revert(store: stores.Store, proposal: RevertProposal, *, recorder: stores.JournalWriter) -> RevertResult:
    """Carry out the proposal and return what was reverted and which entities failed."""
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


def undo_due(
    store: stores.Store, entries: Sequence[stores.JournalEntry], *, recorder: stores.JournalWriter
) -> RevertResult:
    """Revert the changes in a store whose time is up, and return the outcome.

    Each call tries again what failed before. Somebody else changed a quota with another value than the change gave it:
    such a quota is left alone and settled.
    """
    undos = stores.due_undos(entries, store_url=store.url, now_ms=recorder.clock.now_ms())
    content = {entity: dict(quotas) for entity, quotas in stores.content_of(store).items()} if undos else {}
    undone: list[PlannedChange] = []
    changed_since: list[tuple[PlannedChange, float | None]] = []
    failed: dict[Entity, KafkaQuotasError] = {}
    for undo in undos:
        pending = tuple(change for change in undo.changes if change.entity not in failed)
        found = inverse_of(pending, content)
        failed |= _write(store, found.to_make)
        made = tuple(change for change in found.to_make if change.entity not in failed)
        recorder.record_outcomes(store.url, (*found.to_make, *_as_found(found)), failed, reverts=undo.entry_id)
        content = applied(content, made)
        undone += made
        changed_since += found.changed_since
    return RevertResult(
        store_url=store.url, undone=tuple(undone), failed=tuple(failed.items()), changed_since=tuple(changed_since)
    )


def _write(store: stores.Store, changes: Sequence[PlannedChange]) -> dict[Entity, KafkaQuotasError]:
    return stores.errors_of(store.alter(stores.alterations_of(changes))) if changes else {}


def _as_found(found: InverseChange) -> tuple[PlannedChange, ...]:
    """Return the quotas that stayed as found, in the form that settles them in the journal."""
    stayed = [(change, change.old) for change in found.back_already] + list(found.changed_since)
    return tuple(replace(change, old=value, new=value) for change, value in stayed)
