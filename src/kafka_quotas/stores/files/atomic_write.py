"""Atomic replacement of text files, by which readers see the old content or the new.

Invariants: the new content is on the disk before it takes the name. Where a write fails, no temporary file is left and
the old file is unchanged. A link stays a link, and a target that is no file (a pipe, /dev/stdout) is written to
directly.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from kafka_quotas.core.errors import KafkaQuotasError


def replace_text(path: Path, parts: Iterable[str], *, private: bool = False, most: int = 0o7777) -> None:
    """Replace the content of a file.

    The permissions of an existing file stay. A new one has the usual permissions, or none for other users.

    Args:
        path: The file, or a link to it.
        parts: The text, piece by piece.
        private: Whether the file is for its owner alone, whatever its permissions were.
        most: The permissions that the file may have at most, those of an old one included.

    Raises:
        OSError: The file can't be written.
    """
    with replacing(path, private=private, most=most) as file:
        file.writelines(parts)


@contextmanager
def replacing(path: Path, *, private: bool = False, most: int = 0o7777) -> Iterator[TextIO]:
    """Open a file that replaces another at the end of the block, like `replace_text`.

    After an error the old file stays.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        with target.open("w", encoding="utf-8") as file:
            yield file
        return
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if private else 0o666 & most)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor has no path
            if target.exists() and not private:
                beside.chmod(target.stat().st_mode & 0o7777 & most)
            yield file
            file.flush()
            os.fsync(descriptor)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def save_text(path: Path, parts: Iterable[str]) -> None:
    """Write the text to a file that a user named.

    Raises:
        KafkaQuotasError: The file can't be written.
    """
    try:
        replace_text(path, parts)
    except OSError as error:
        raise KafkaQuotasError(f"can't write {path}: {error.strerror or error}", hint="choose another place") from error
