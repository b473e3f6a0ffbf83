"""Quotas for the pipeline's jobs, from files, a store or its journal, and how values of a quota type are shown."""

import sys
from contextlib import closing, suppress
from dataclasses import replace
from itertools import takewhile
from typing import Annotated, Any, Final

from kafka_quotas.cli.framework.option_groups import option_info
from kafka_quotas.cli.options.stores import StoreOptions, open_journal
from kafka_quotas.cli.output.render import write
from kafka_quotas.commands.quotas.journal import contents_between
from kafka_quotas.core.changes.plan import Content
from kafka_quotas.core.errors import StoreError
from kafka_quotas.core.model.entity import EVERYTHING, shown_name
from kafka_quotas.core.model.value_format import format_count
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.events import EventsRequest, RecordedEvents, recorded_span

JOURNAL: Final = "journal"
"""The word in place of a file for the quotas in force at the time of each event."""
Quotas = Annotated[
    str | None,
    option_info(
        "--quotas FILE|journal",
        help="Quotas of this file instead of those in the store; journal: those that were in force at the time of each "
        "event, by the store and this machine's journal of its changes.",
    ),
]
_SECOND_MS: Final = 1000


def proposal_of_file(path: str, *more: str) -> Proposal:
    """Return the quotas of one file or several together, named after the first."""
    from kafka_quotas.commands.declarative.reading import declared  # noqa: PLC0415 - most runs ask a store

    entries = tuple(
        (each.entity, {key: value for key, value in each.quotas.items() if value is not None})
        for each in declared([path, *more]).entries
    )
    return Proposal(name=path, entries=entries)


def proposal_of_store(store: StoreOptions) -> Proposal:
    """Return the quotas of the store that the options, variables and contexts name, called by its address."""
    return _proposal(*_stored(store))


def proposal_of_journal(store: StoreOptions, events: EventsRequest) -> Proposal:
    """Return the quotas that a store had while events were recorded, by the journal of its changes.

    Times are cut to whole seconds.
    """
    url, content, is_static = _stored(store)
    first_ms, last_ms = recorded_span(events) or (0, 0)
    entries = open_journal().newest_first()
    (_, first), *later = contents_between(content, entries, store_url=url, first_ms=first_ms, last_ms=last_ms)
    by_second = {at_ms // _SECOND_MS * _SECOND_MS: each for at_ms, each in later}
    changed = tuple((at_ms, _proposal(url, each, is_static)) for at_ms, each in by_second.items())
    return replace(_proposal(f"{url} by the journal", first, is_static), later=changed)


def _stored(store: StoreOptions) -> tuple[str, Content, bool]:
    with closing(store.choose().open_existing()) as opened:
        content = {entry.entity: entry.quotas for entry in opened.describe(EVERYTHING)}
        return opened.url, content, opened.kind.is_static


def _proposal(name: str, content: Content, is_static: bool) -> Proposal:
    entries = tuple(content.items())
    return Proposal(name=name, entries=() if is_static else entries, static=entries if is_static else ())


def proposal_in_force(quotas: str | None, store: StoreOptions, events: EventsRequest) -> Proposal:
    """Return the quotas of the file `quotas` or the journal, those in the store where none is named."""
    if quotas == JOURNAL:
        return proposal_of_journal(store, events)
    return proposal_of_store(store) if quotas is None else proposal_of_file(quotas)


def note_changes(quotas: str | None, in_force: Proposal, events: RecordedEvents) -> None:
    """Note where quotas changed meanwhile, and those that the store has now were taken."""
    first_ms, last_ms = events.first_ms, events.last_ms
    if quotas is not None or first_ms is None or last_ms is None:
        return
    with suppress(StoreError):  # a journal that can't be read is no reason to withhold a result
        entries = takewhile(lambda each: each.time_ms > first_ms, open_journal().newest_first())
        if changes := sum(each.store_url == in_force.name and each.time_ms <= last_ms for each in entries):
            write(
                f"note: {format_count(changes, 'change')} of quotas in {in_force.name} came while this was recorded; "
                "--quotas journal takes each quota for its time",
                sys.stderr,
            )


def nulls_for_shared(row: dict[str, Any]) -> dict[str, Any]:
    """Return a bucket's figures with null in place of the names that clients share."""
    return row | {name: row[name] or None for name in ("user", "client_id")}


def bucket_text(user: str | None, client_id: str | None) -> str:
    """Return a bucket's name by the parts that identify it: `alice`, `alice, client app`, `client app`."""
    parts = [shown_name(user)] if user else []
    if client_id:
        parts.append(f"client {shown_name(client_id)}")
    return ", ".join(parts) or "(no client-id)"
