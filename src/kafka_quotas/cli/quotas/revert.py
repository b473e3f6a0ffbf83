"""`kafka-quotas revert`: the journal, and undoing what it has."""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from kafka_quotas.cli.framework.help_page import OPTIONS_HEADING, OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import flag, option, option_group
from kafka_quotas.cli.framework.store_choice import Origin, StoreChoice, choose_known_store
from kafka_quotas.cli.options.stores import (
    ChangesView,
    Reason,
    StoreOptions,
    complete_changes,
    open_journal,
    recorder_for,
)
from kafka_quotas.cli.output.listing import TABLE_VIEW, Listing, View, columns, listed
from kafka_quotas.cli.output.render import change_cells, print_listing, warn, write
from kafka_quotas.commands.declarative.groups import GroupPlace, GroupPlan
from kafka_quotas.commands.declarative.reading import write_plan
from kafka_quotas.commands.quotas.journal import RevertProposal, RevertResult, find_entries, propose, store_of, undo_due
from kafka_quotas.commands.quotas.journal import revert as run_revert
from kafka_quotas.commands.quotas.watch import AnyChange
from kafka_quotas.core.changes.plan import KeptPlan, PlannedChange, StalePlanError
from kafka_quotas.core.clock import SystemClock, format_instant
from kafka_quotas.core.described import Described, StoreAddress, document_of, documents_of
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.model.entity import Entity, shown_name
from kafka_quotas.core.model.value_format import format_count, format_quota
from kafka_quotas.stores import LAST, JournalContent, JournalEntry, Store, is_address_of, settled_ids, stores_with_undos

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
        "entry.undo_at entry.reverts reverted entry.confirmed entry.groups"
    )
    entry: JournalEntry
    reverted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertRow(AnyChange):
    """A change that undoes another, and what became of it."""

    state: Annotated[str, Described(choices=_STATES)]


@dataclass(frozen=True, slots=True)
class UndoneRow:
    """A change that was undone, and where."""

    DOCUMENT: ClassVar = "store change.entity change.key change.old change.new"
    change: PlannedChange
    store: StoreAddress


def _history_listing(result: JournalContent) -> Listing:
    settled = settled_ids(result.entries)
    stores = {entry.store_url for entry in result.entries}
    caption = f"in {stores.pop()}" if len(stores) == 1 else None
    rows = [
        (
            entry.entry_id,
            _shown_time(entry.time_ms),
            f"{entry.command}, {entry.user}",
            _changes_in_words(entry) + ("" if caption else f" in {entry.store_url}"),
            _note(entry, settled),
        )
        for entry in result.entries
    ]
    return listed(
        "journal",
        {"entries": [document_of(JournalRow(entry, entry.entry_id in settled)) for entry in result.entries]},
        "id!, time!, by, changes, note",
        rows,
        caption=caption,
    )


def _proposal_listing(
    proposal: RevertProposal, groups: GroupPlan, where: str, result: RevertResult | None = None
) -> Listing:
    found, entry = proposal.inverse, proposal.entry
    failed = set() if result is None else {entity for entity, _ in result.failed}
    done = "to undo" if result is None else "undone"
    rows = [
        *(RevertRow.of(each, state="failed" if each.entity in failed else done) for each in proposal.plan.changes),
        *(RevertRow.of(_reversed(each, now), state="changed since") for each, now in found.changed_since),
        *(RevertRow.of(_reversed(each, each.old), state="already as before") for each in found.back_already),
        *(RevertRow.of(each, state=done) for each in groups.changes),
    ]
    when, reason = _shown_time(entry.time_ms), f": {entry.reason}" if entry.reason else ""
    columns = PROPOSED_COLUMNS if result is None else DONE_COLUMNS
    cells = [(*change_cells(each), each.state) for each in rows]
    caption = f"{entry.entry_id}, {entry.command} by {entry.user} at {when} in {where}{reason}"
    data = {**document_of(proposal), "changes": documents_of(rows)}
    return listed("revert", data, columns, cells, caption=caption)


def _reversed(change: PlannedChange, now: float | None) -> PlannedChange:
    return replace(change, old=now, new=change.old)


def _changes_in_words(entry: JournalEntry) -> str:
    shown = map(change_cells, entry.changes[:_SHOWN_CHANGES])
    words = [f"{entity}: {key} {old} -> {new}" for entity, key, old, new in shown]
    more = len(entry.changes) - len(words)
    words += [str(Entity.of(group=name)) for name in entry.groups[:_SHOWN_CHANGES]]
    more += len(entry.groups[_SHOWN_CHANGES:])
    return "; ".join(words) + (f"; and {more} more" if more else "")


def _shown_time(time_ms: int) -> str:
    return f"{format_instant(time_ms)[:19].replace('T', ' ')}Z"


def _note(entry: JournalEntry, settled: set[str]) -> str:
    notes = [entry.reason or "", "" if entry.confirmed else "not confirmed"]
    notes.append(f"reverts {entry.reverts}" if entry.reverts is not None else "")
    if entry.entry_id in settled:
        notes.append("reverted")
    elif entry.undo_at_ms is not None:
        notes.append(f"until {format_instant(entry.undo_at_ms)[:16]}Z")
    return ", ".join(note for note in notes if note)


EntryId = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        help="The entry of the journal to undo: its id, how the id begins, or 'last' for the last change of the store.",
        show_default=False,
        autocompletion=complete_changes,
    ),
]


@option_group(OPTIONS_HEADING)
class _RevertOptions:
    list_: bool = flag("--list", help="Show the journal, oldest entries first.")
    due: bool = flag("--due", help="Undo all expired temporary changes, those of 'alter --for'.")
    yes: bool = flag("--yes", "-y", help="Undo it now. Without this option it is only shown.")
    out: Path | None = option(
        "--out FILE", rich_help_panel=OUTPUT_HEADING, help="Write the inverse change as a plan file for 'apply'."
    )
    force: bool = flag("--force", help="Undo also quotas that have changed since.")
    allow_invalid: bool = flag(
        "--allow-invalid", help="With a zk:// store: restore also values such as 0, which ZooKeeper accepts."
    )
    reason: Reason = None


def revert(
    *, entry_id: EntryId = None, asked: _RevertOptions, store: StoreOptions, output: ChangesView = TABLE_VIEW
) -> int:
    """Undo a change that was made with this tool, from its journal on this machine.

    Without --yes the inverse change is only shown, against the store as it is now. 'last' is the last change of the
    store in use; a change of another store is undone there by its id, with the login of its context or of
    --command-config. Groups go back all together. --list and --due are about all stores unless an option names one.
    With --list, --limit counts the last entries.
    """
    if (entry_id is not None) + asked.list_ + asked.due != 1:
        raise UsageError(
            "name one entry to undo, or give --list or --due", hint="kafka-quotas revert --list shows the entries"
        )
    if (asked.out or asked.force) and entry_id is None:
        raise UsageError("--out and --force are for one entry", hint="kafka-quotas revert ID --yes")
    if asked.list_:
        _list(store, output)
        return 0
    if asked.due:
        return _undo_due(store, asked.reason, output, allow_invalid=asked.allow_invalid)
    chosen, entries = _entries(entry_id or "", store)
    with closing(chosen.open(allow_invalid=asked.allow_invalid)) as opened:
        proposal = propose(opened, entries, force=asked.force)
        place, groups = _groups_back(opened, entries, force=asked.force)
        if not asked.yes or proposal.inverse.changed_since:
            print_listing(_proposal_listing(proposal, groups, chosen.place), output)
        if asked.out is not None and not proposal.inverse.changed_since:
            write_plan(asked.out, KeptPlan(plan=proposal.plan, store_url=proposal.store_url, groups=groups.kept()))
        if not asked.yes:
            return _report_proposal(proposal, groups, asked.out)
        recorder = recorder_for("revert", reason=asked.reason)
        if groups.changes and not proposal.inverse.changed_since:
            place.put(groups)
            # Where quotas go back too, the entry is undone with them: they may be refused.
            undone = None if proposal.plan.changes else proposal.entry.entry_id
            recorder.record(opened.url, (), groups=groups.changed, undo_groups=groups.undo(), reverts=undone)
        result = run_revert(opened, proposal, recorder=recorder)
    print_listing(_proposal_listing(proposal, groups, chosen.place, result), output)
    return _report_result(result)


def _groups_back(opened: Store, entries: Sequence[JournalEntry], *, force: bool) -> tuple[GroupPlace, GroupPlan]:
    """Return the place of the groups that a run changed, and what puts them back."""
    kept = next((entry.undo_groups for entry in entries if entry.undo_groups is not None), None)
    place = GroupPlace(opened, None if kept is None or kept.place == opened.url else Path(kept.place))
    for name in dict.fromkeys(name for entry in entries if entry.undo_groups is None for name in entry.groups):
        write(f"note: not undone: group {shown_name(name)}; apply an earlier file of it", sys.stderr)
    try:
        return place, place.left_of(kept, force=force)
    except StalePlanError as error:
        hint = "--force puts those of before in their place all the same"
        raise KafkaQuotasError(f"the groups in {place.name} have changed since", hint=hint) from error


def _entries(entry_id: str, store: StoreOptions) -> tuple[StoreChoice, Sequence[JournalEntry]]:
    choice = store.choose()
    entries = find_entries(open_journal(), entry_id, choice.address)
    here = [entry for entry in entries if is_address_of(entry.store_url, choice.address)]
    if here and (entry_id == LAST or choice.url.origin is Origin.OPTION or choice.login is not None):
        return choice, here
    url = store_of(entries)
    if store.names_store:
        raise UsageError(
            f"{entries[0].entry_id} is a change of {url}, not of {choice.address}",
            hint="leave out the option that names the store: a change is undone where it was made",
        )
    return choose_known_store(url, command_config=store.command_config), entries


def _list(store: StoreOptions, output: View) -> None:
    journal = open_journal()
    place = store.choose().address if store.names_store else None
    result = journal.read(limit=output.limit or None, of=lambda url: place is None or is_address_of(url, place))
    print_listing(_history_listing(result), output)
    if not result.entries:
        of = "" if place is None else f" of {place}"
        write(f"note: nothing{of} is in the journal {journal.path}", sys.stderr)
    if result.damaged_lines:
        warn(f"{format_count(result.damaged_lines, 'damaged line')} of the journal {journal.path} left out")


def _undo_due(named: StoreOptions, reason: str | None, output: View, *, allow_invalid: bool) -> int:
    """Revert what is due in every store, or in the one that an option names, and return the exit code.

    An unreachable store doesn't stop the others. The code is 1 for any failure.
    """
    entries = open_journal().since_oldest_pending()
    results: list[RevertResult] = []
    failed = False
    place = named.choose().address if named.names_store else None
    for url in stores_with_undos(entries, now_ms=SystemClock().now_ms()):
        if place is not None and not is_address_of(url, place):
            continue
        try:
            choice = choose_known_store(url, command_config=named.command_config)
            with closing(choice.open(allow_invalid=allow_invalid)) as store:
                results.append(undo_due(store, entries, recorder=recorder_for("revert", reason=reason)))
        except KafkaQuotasError as error:
            warn(f"nothing was undone in {url}: {error.message}")
            failed = True
    if not output.is_table or any(result.undone for result in results):  # cron mails whatever is printed
        rows = [UndoneRow(change, result.store_url) for result in results for change in result.undone]
        cells = [(*change_cells(each.change), each.store) for each in rows]
        data = {"changes": documents_of(rows)}
        print_listing(listed("undone", data, UNDONE_COLUMNS, cells), output)
    return max([_report_result(result) for result in results] + [int(failed)])


def _report_proposal(proposal: RevertProposal, groups: GroupPlan, out: Path | None) -> int:
    changed_since = len(proposal.inverse.changed_since)
    if changed_since:
        warn(f"{format_count(changed_since, 'quota')} changed since; --force goes back all the same")
        if out is not None:
            raise KafkaQuotasError(f"{out} was not written", hint="--force writes the plan anyway")
    elif not (proposal.plan.changes or groups.changes):
        write("note: nothing is left to undo", sys.stderr)
    elif out is None:
        write("note: nothing was changed; --yes undoes it, --out FILE keeps it as a plan", sys.stderr)
    return 0


def _report_result(result: RevertResult) -> int:
    for change, found in result.changed_since:
        quota = f"{change.key} of {change.entity} in {result.store_url}"
        write(f"note: left alone, changed since: {quota} is {format_quota(change.key, found)}", sys.stderr)
    for entity, error in result.failed:
        write(f"error: {entity}: {error.message}", sys.stderr)
    return 1 if result.failed else 0
