"""Options that `export`, `validate`, `diff` and `apply` share."""

from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.framework.option_groups import option, option_group
from kafka_quotas.commands.declarative.apply import DEFAULT_PRUNE_LIMIT, DesiredState
from kafka_quotas.core.errors import UsageError

Values = Annotated[
    list[Path] | None,
    typer.Option(
        "--values",
        metavar="FILE",
        help="A file of values, defaults and entries that override the others, for example one per environment. May be "
        "repeated; the last one wins.",
    ),
]
Selectors = Annotated[
    list[str] | None,
    typer.Option(
        "--selector",
        metavar="TYPE[=PATTERN]",
        help="Only these entities are owned: user=team-a-*, client-id=web, user-default, ip. All else is left alone. "
        "May be repeated.",
    ),
]


@option_group("Desired state")
class DesiredOptions:
    """The options that say what a store should hold, beside the files."""

    values: Values = None
    selectors: Selectors = None
    prune: bool = option("--prune", default=False, help="Remove stored quotas that are not declared.")
    prune_limit: float = option(
        "--prune-limit PERCENT",
        default=DEFAULT_PRUNE_LIMIT,
        help="Refuse to remove more than this share of the stored entities or quotas.",
    )

    def state(self, files: list[str] | None, command: str) -> DesiredState:
        """Return what the files and these options declare."""
        paths, limit = checked_files(files, command), self.prune_limit
        if not 0 <= limit <= 100:
            raise UsageError(
                f"--prune-limit is {limit:g}", hint=f"0 to 100 per cent; without it, it is {DEFAULT_PRUNE_LIMIT:g}"
            )
        return DesiredState(
            paths=paths, values=self.values or (), selectors=self.selectors or (), prune=self.prune, prune_limit=limit
        )


def checked_files(files: list[str] | None, command: str) -> list[str]:
    """Return the named files."""
    if not files:
        raise UsageError("no file is named", hint=f"kafka-quotas {command} quotas.yaml, or a folder, or - for a pipe")
    if not all(name.strip() for name in files):
        raise UsageError("a file name is empty", hint="is the shell variable behind it set?")
    return files
