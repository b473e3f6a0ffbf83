"""The link through which scripts that call `kafka-configs` reach this program instead."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from kafka_quotas.core.errors import KafkaQuotasError, UsageError

LINK_NAME = "kafka-configs"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropIn:
    """A link and what it leads to; `hidden_by` is another program of that name which the shell finds first."""

    link: Path
    target: Path
    hidden_by: Path | None


def install_drop_in(folder: Path, program: Path, *, search_path: str) -> DropIn:
    """The link in the folder to the installed program; one that is there already stays as it is.

    `search_path` is the shell's PATH. Raises `UsageError` where there is no such folder, and where something else has
    that name; `KafkaQuotasError` where the link can't be made.
    """
    if not folder.is_dir():
        raise UsageError(f"no such folder: {folder}", hint="name one on your PATH, or make it first")
    link, target = folder.absolute() / LINK_NAME, program.absolute()
    if not _is_link_to(link, target):
        if os.path.lexists(link):
            raise UsageError(f"{link} exists and is not ours", hint="choose another folder, or move it out of the way")
        try:
            link.symlink_to(target)
        except OSError as error:
            raise KafkaQuotasError(f"cannot make {link}: {error.strerror or error}") from error
    found = shutil.which(LINK_NAME, path=search_path)
    first = Path(found) if found is not None else None
    return DropIn(link=link, target=target, hidden_by=first if first is not None and first != link else None)


def _is_link_to(link: Path, target: Path) -> bool:
    return link.is_symlink() and link.resolve() == target.resolve()
