"""Options that `export`, `validate`, `diff` and `apply` share."""

from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.commands.declarative.plan import DEFAULT_PRUNE_LIMIT
from kafka_quotas.core.errors import UsageError

FILES_PANEL = "Files"

Values = Annotated[
    list[Path] | None,
    typer.Option(
        "--values",
        metavar="FILE",
        help="A file of values, defaults and entries to lay over the others, one per environment for example. May be "
        "repeated; the last one wins.",
        rich_help_panel=FILES_PANEL,
    ),
]
Selectors = Annotated[
    list[str] | None,
    typer.Option(
        "--selector",
        metavar="TYPE[=PATTERN]",
        help="Only these entities are owned: user=team-a-*, client-id=web, user-default, ip. All else is left alone. "
        "May be repeated.",
        rich_help_panel=FILES_PANEL,
    ),
]
Prune = Annotated[bool, typer.Option("--prune", help="Remove stored quotas that are not declared.")]
PruneLimit = Annotated[
    float,
    typer.Option(
        "--prune-limit",
        metavar="PERCENT",
        help="Refuse to remove more than this share of the stored entities or quotas.",
    ),
]
AllowInvalid = Annotated[
    bool,
    typer.Option(
        "--allow-invalid",
        help="Take entries that say 'invalid: true', such as limits of 0, where the store takes them.",
    ),
]


def checked_files(files: list[str] | None, command: str) -> list[str]:
    """Return the named files.

    Raises:
        UsageError: No file was named, or a name is empty, as from an unset shell variable.
    """
    if not files:
        raise UsageError("no file is named", hint=f"kafka-quotas {command} quotas.yaml, or a folder, or - for a pipe")
    if not all(name.strip() for name in files):
        raise UsageError("a file name is empty", hint="is the shell variable behind it set?")
    return files


def checked_prune_limit(percent: float) -> float:
    """Return the greatest share of removals in per cent.

    Raises:
        UsageError: It is not between 0 and 100.
    """
    if not 0 <= percent <= 100:
        raise UsageError(
            f"--prune-limit is {percent:g}", hint=f"0 to 100 per cent; without it, it is {DEFAULT_PRUNE_LIMIT:g}"
        )
    return percent
