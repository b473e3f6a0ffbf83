"""The folder that a run leaves: all its files or, where something goes wrong, none of the new ones.

Invariant: every file is written in a folder of its own beside its place and takes its name when all are whole. Files of
an earlier run with the same names are replaced, others are left alone.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_quotas.core.errors import KafkaQuotasError


def make_folder(folder: Path) -> None:
    """Nothing; the folder is there and can be written into. Asked before a run, not after it.

    Raises `KafkaQuotasError` where it can't be made or written into.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise KafkaQuotasError(
            f"can't make the folder {folder}, or write into it: {error.strerror or error}",
            hint="name another one with --out",
        ) from error


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """A folder to write files into, which are in `folder` when the context ends well.

    Raises `KafkaQuotasError` where they can't be written; then the folder holds what it held before.
    """
    partial: Path | None = None
    try:
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder))
        yield partial
        for path in sorted(partial.iterdir()):
            path.replace(folder / path.name)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if full else error.strerror or str(error)
        raise KafkaQuotasError(
            f"can't keep the run in {folder}: {reason}; nothing of it was kept",
            hint="make room, or name another folder with --out" if full else "name another folder with --out",
        ) from error
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
