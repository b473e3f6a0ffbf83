"""`kafka-quotas alter --exempt`: its option, what it combines with, and the report of the result."""

import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_quotas.cli.framework.store_choice import StoreChoice
from kafka_quotas.cli.output.render import Listing, Table, View, columns, print_listing, write
from kafka_quotas.cli.output.values import change_cells, change_document
from kafka_quotas.commands.quotas.history import JournalWriter
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import USER, shown_name
from kafka_quotas.core.model.quota_filter import FilterComponent, Match
from kafka_quotas.core.model.value_format import format_count

if TYPE_CHECKING:
    from kafka_quotas.commands.quotas.exempt import ExemptResult

Exempt = Annotated[
    bool,
    typer.Option(
        "--exempt",
        help="With --user NAME alone: no limit for any client of this user, by an explicit unlimited on the user and "
        "on its pairs that have a limit; then the limits of every kind of its clients are resolved, as a check.",
    ),
]


def exempted_user(parts: Sequence[FilterComponent], *, with_changes: bool) -> str:
    """Return the user of --exempt.

    Raises:
        UsageError: The options name anything but one user, or changes besides.
    """
    part = parts[0] if len(parts) == 1 else None
    if part is None or part.entity_type != USER or part.match is not Match.EXACT or part.name is None:
        raise UsageError("--exempt is about one user", hint="write --exempt --user NAME")
    if with_changes:
        raise UsageError("--exempt says itself what changes", hint="leave out --add-config and --delete-config")
    return part.name


def exempt_user(
    user: str,
    choice: StoreChoice,
    recorder: JournalWriter,
    *,
    for_ms: int | None,
    dry_run: bool,
    wait: bool,
    output: View,
) -> None:
    """Exempt the user, and print and journal the changes.

    The exemption lasts `for_ms` milliseconds, for ever if None.
    """
    from kafka_quotas.commands.quotas.exempt import exempt as run_exempt  # noqa: PLC0415 - most alterations exempt nobody

    with closing(choice.open(wait=wait)) as opened:
        result = run_exempt(opened, user=user, dry_run=dry_run, recorder=recorder, for_ms=for_ms)
    if result.changes or not output.is_table:
        print_listing(_listing(result), output)
    write(f"note: {_verdict(result)}", sys.stderr)


def _verdict(result: "ExemptResult") -> str:
    kinds = f"{format_count(len(result.checked), 'kind')} of its clients resolved: none is limited"
    whom = f"user {shown_name(result.user)} in {result.store_url}"
    if not result.changes:
        return f"{whom} is exempt already; {kinds}"
    if result.dry_run:
        return f"dry run, nothing was written; {whom} would be exempt, {kinds}"
    return f"{whom} is exempt; {kinds}"


def _listing(result: "ExemptResult") -> Listing:
    return Listing(
        noun="exempt",
        items="changes",
        data={
            "store": result.store_url,
            "user": result.user,
            "dry_run": result.dry_run,
            "changes": [change_document(change) for change in result.changes],
        },
        table=Table(
            columns=columns("entity, key!, old>, new>"),
            rows=[change_cells(change) for change in result.changes],
        ),
    )
