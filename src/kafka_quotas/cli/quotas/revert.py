"""`kafka-quotas revert`: the journal, and undoing what it has."""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.framework.help_page import OPTIONS_HEADING, OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import option, option_group
from kafka_quotas.cli.framework.store_choice import Origin, StoreChoice, choose_known_store
from kafka_quotas.cli.options.journal import Reason, complete_changes, open_journal, recorder_for
from kafka_quotas.cli.options.stores import ListingView, StoreOptions
from kafka_quotas.cli.output.render import TABLE_VIEW, View, print_listing, warn, write
from kafka_quotas.cli.output.selection import check_columns
from kafka_quotas.cli.quotas.revert_view import (
    DONE_COLUMNS,
    PROPOSED_COLUMNS,
    UNDONE_COLUMNS,
    history_listing,
    proposal_listing,
    result_listing,
)
from kafka_quotas.commands.quotas.history import LAST, find_entries
from kafka_quotas.commands.quotas.revert import RevertProposal, RevertResult, propose, store_of, undo_due
from kafka_quotas.commands.quotas.revert import revert as run_revert
from kafka_quotas.core.changes.journal_entry import JournalEntry, stores_with_undos
from kafka_quotas.core.changes.plan import KeptPlan, plan_text
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.model.value_format import format_count, format_quota
from kafka_quotas.stores.url import is_address_of
from kafka_quotas.system_clock import SystemClock

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
class RevertOptions:
    """The options of `revert` about what is undone, and how."""

    list_: bool = option("--list", default=False, help="Show the journal, oldest entries first.")
    due: bool = option("--due", default=False, help="Undo all expired temporary changes, those of 'alter --for'.")
    yes: bool = option("--yes", "-y", default=False, help="Undo it now. Without this option it is only shown.")
    out: Path | None = option(
        "--out FILE", rich_help_panel=OUTPUT_HEADING, help="Write the inverse change as a plan file for 'apply'."
    )
    force: bool = option("--force", default=False, help="Undo also quotas that have changed since.")
    allow_invalid: bool = option(
        "--allow-invalid",
        default=False,
        help="With a zk:// store: restore also values such as 0, which ZooKeeper accepts.",
    )
    reason: Reason = None


def revert(
    *, entry_id: EntryId = None, asked: RevertOptions, store: StoreOptions, output: ListingView = TABLE_VIEW
) -> int:
    """Undo a change that was made with this tool, from its journal on this machine.

    Without --yes the inverse change is only shown, against the store as it is now. 'last' is the last change of the
    store in use; a change of another store is undone there by its id, with the login of its context or of
    --command-config. --list and --due are about all stores unless an option names one. With --list, --limit counts the
    last entries.
    """
    _check_options(entry_id, list_=asked.list_, due=asked.due, single=bool(asked.out or asked.force))
    if asked.list_:
        _list(store, output)
        return 0
    if asked.due:
        return _undo_due(store, asked.reason, output, allow_invalid=asked.allow_invalid)
    check_columns(output, "revert", DONE_COLUMNS if asked.yes else PROPOSED_COLUMNS)
    chosen, entries = _entries(entry_id or "", store)
    with closing(chosen.open(allow_invalid=asked.allow_invalid)) as opened:
        proposal = propose(opened, entries, force=asked.force)
        if not asked.yes or proposal.inverse.changed_since:
            listing = proposal_listing(proposal, chosen.place)
            print_listing(listing, replace(output, columns=()) if asked.yes else output)
        if asked.out is not None and not proposal.inverse.changed_since:
            _write_plan(asked.out, KeptPlan(plan=proposal.plan, store_url=proposal.store_url))
        if not asked.yes:
            return _report_proposal(proposal, asked.out)
        result = run_revert(opened, proposal, recorder=recorder_for("revert", reason=asked.reason))
    print_listing(proposal_listing(proposal, chosen.place, result), output)
    return _report_result(result)


def _entries(entry_id: str, store: StoreOptions) -> tuple[StoreChoice, Sequence[JournalEntry]]:
    """Return the entries to undo, and the store that they changed.

    Raises:
        UsageError: An option names another store than the one that was changed.
    """
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


def _check_options(entry_id: str | None, *, list_: bool, due: bool, single: bool) -> None:
    if (entry_id is not None) + list_ + due != 1:
        raise UsageError(
            "name one entry to undo, or give --list or --due", hint="kafka-quotas revert --list shows the entries"
        )
    if single and entry_id is None:
        raise UsageError("--out and --force are for one entry", hint="kafka-quotas revert ID --yes")


def _list(store: StoreOptions, output: View) -> None:
    journal = open_journal()
    place = store.choose().address if store.names_store else None
    result = journal.read(limit=output.limit or None, of=lambda url: place is None or is_address_of(url, place))
    print_listing(history_listing(result), output)
    if not result.entries:
        of = "" if place is None else f" of {place}"
        write(f"note: nothing{of} is in the journal {journal.path}", sys.stderr)
    if result.damaged_lines:
        warn(f"{format_count(result.damaged_lines, 'damaged line')} of the journal {journal.path} left out")


def _undo_due(named: StoreOptions, reason: str | None, output: View, *, allow_invalid: bool) -> int:
    """Revert what is due in every store, or in the one that an option names, and return the exit code.

    An unreachable store doesn't stop the others. The code is 1 for any failure.
    """
    check_columns(output, "undone", UNDONE_COLUMNS)
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
        print_listing(result_listing(results), output)
    return max([_report_result(result) for result in results] + [int(failed)])


def _write_plan(path: Path, plan: KeptPlan) -> None:
    try:
        path.write_text(plan_text(plan), encoding="utf-8")
    except OSError as error:
        raise KafkaQuotasError(f"cannot write {path}: {error.strerror or error}") from error


def _report_proposal(proposal: RevertProposal, out: Path | None) -> int:
    """Report what changed since or is left to revert, and return the exit code 0.

    Raises:
        KafkaQuotasError: A plan was asked for, but quotas have changed since.
    """
    changed_since = len(proposal.inverse.changed_since)
    if changed_since:
        warn(f"{format_count(changed_since, 'quota')} changed since; --force goes back all the same")
        if out is not None:
            raise KafkaQuotasError(f"{out} was not written", hint="--force writes the plan anyway")
    elif not proposal.plan.changes:
        write("note: nothing is left to undo", sys.stderr)
    elif out is None:
        write("note: nothing was changed; --yes undoes it, --out FILE keeps it as a plan", sys.stderr)
    return 0


def _report_result(result: RevertResult) -> int:
    """Report failures and quotas left alone, and return the exit code, 1 for any failure."""
    for change, found in result.changed_since:
        now = format_quota(change.key, found)
        write(
            f"note: left alone, changed since: {change.key} of {change.entity} in {result.store_url} is {now}",
            sys.stderr,
        )
    for entity, error in result.failed:
        write(f"error: {entity}: {error.message}", sys.stderr)
    return 1 if result.failed else 0
