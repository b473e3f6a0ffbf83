"""Atomic replacement of text files, by which readers see the old content or the new.

Invariants: the new content is on the disk before it takes the name. Where a write fails, no temporary file is left and
the old file is unchanged. A link stays a link, and a target that is no file (a pipe, /dev/stdout) is written to
directly.
"""

import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from kafka_quotas.core.errors import KafkaQuotasError


def replace_text(path: Path, parts: Iterable[str], *, private: bool = False, most: int = 0o7777) -> None:
    """Replace the content of a file.

    The permissions of an existing file stay, but for those beyond `most`, and a `private` one is its owner's alone.

    Raises:
        OSError: The file can't be written.
    """
    with replacing(path, private=private, most=most) as file:
        file.writelines(parts)


@contextmanager
def replacing(path: Path, *, private: bool = False, most: int = 0o7777) -> Iterator[TextIO]:
    """Open a file that replaces another at the end of the block, unless that ends by an error."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        with target.open("w", encoding="utf-8") as file:
            yield file
        return
    # In a folder that others may write to a name that can be guessed could be a link of theirs: a new file or none.
    beside = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666 & most)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor has no path
            if target.exists() and not private:
                beside.chmod(target.stat().st_mode & 0o7777 & most)
            yield file
            file.flush()
            os.fsync(descriptor)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def clear_leftovers(path: Path) -> None:
    """Remove the temporary files that killed processes of this user left beside a file.

    Call it before this process writes the file: another life of it may have had the same process id.
    """
    target = path.resolve()
    leftover = re.compile(rf"\.{re.escape(target.name)}\.(\d+)\.[0-9a-f]{{8}}")
    for beside in target.parent.glob(f".{glob.escape(target.name)}.*"):
        match = leftover.fullmatch(beside.name)
        if match is None or _is_alive(int(match[1])):
            continue
        found = beside.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            beside.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid != os.getpid()


def save_text(path: Path, parts: Iterable[str]) -> None:
    """Write the text to a file that a user named."""
    try:
        replace_text(path, parts)
    except OSError as error:
        raise KafkaQuotasError(f"can't write {path}: {error.strerror or error}", hint="choose another path") from error
