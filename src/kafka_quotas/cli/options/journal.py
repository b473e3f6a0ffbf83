"""The options of the journal: where it is, the reason of a change, and how long the change lasts."""

import os
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.framework.store_choice import Origin, Setting
from kafka_quotas.cli.output.render import warn
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.model.value_format import parse_duration_ms
from kafka_quotas.stores import (
    LAST,
    Journal,
    JournalWriter,
    absolute_path,
    default_journal_path,
    new_run_id,
)

JOURNAL_VARIABLE = "KAFKA_QUOTAS_JOURNAL"
_OFFERED = 20

Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the journal that revert reads.")]


def journal_setting() -> Setting:
    """Return the path of the journal: KAFKA_QUOTAS_JOURNAL, else the file in the user's state folder."""
    chosen = os.environ.get(JOURNAL_VARIABLE)
    if chosen:
        return Setting(value=str(absolute_path(chosen)), origin=Origin.VARIABLE, source=JOURNAL_VARIABLE)
    return Setting(value=str(default_journal_path()), origin=Origin.DEFAULT)


def open_journal() -> Journal:
    """Return the journal of this user."""
    return Journal(Path(journal_setting().value or os.devnull))


def complete_changes(incomplete: str) -> list[str]:
    """Return `last` and the ids of the newest changes in the journal that begin so, for completion."""
    try:
        ids = dict.fromkeys(entry.entry_id for entry in islice(open_journal().newest_first(), _OFFERED))
    except KafkaQuotasError:
        ids = {}
    return [each for each in (LAST, *ids) if each.startswith(incomplete)]


def recorder_for(command: str, *, reason: str | None) -> JournalWriter:
    """Return the writer of `command`'s changes to the journal."""
    if reason is not None and not reason.strip():
        raise UsageError("--reason is empty", hint="is the shell variable behind it set?")
    clock = SystemClock()
    return JournalWriter(
        journal=open_journal(),
        clock=clock,
        entry_id=new_run_id(clock),
        command=command,
        user=_user_name(),
        warn=warn,
        reason=reason,
    )


def _user_name() -> str:
    import getpass  # noqa: PLC0415 - only a change needs it

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in containers
        return str(os.getuid())


_LONGEST_MS = 366 * 24 * 3_600_000

For = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="DURATION",
        help="Note in the journal that this is to be undone after, for example, 30min or 2h. 'revert --due' undoes it.",
    ),
]


def parse_for_ms(text: str | None) -> int | None:
    """Parse the duration of `--for` into milliseconds, None without it."""
    if text is None:
        return None
    length_ms = int(parse_duration_ms(text))
    if not 1000 <= length_ms <= _LONGEST_MS:
        raise UsageError(f"--for {text} is out of range", hint="between 1s and 8784h, for example 30min or 2h")
    return length_ms
