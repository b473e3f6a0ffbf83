"""A folder of ingested data while an ingest writes to it, locked and changed by one rename.

The rename comes at the end or not at all.

DATA/.lock                      locked for as long as an ingest runs; the next one waits
DATA/.staging-PID/              becomes ingest=NNNNNN; the next ingest removes one that a killed ingest left
"""

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.tables.layout import LAYOUT_FILE, LAYOUT_VERSION, DataFolder

_LOCK_FILE: Final = ".lock"
_STAGING: Final = ".staging-"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """A locked data folder, and the staging folder that `commit` turns into an ingest."""

    data: DataFolder
    path: Path

    def commit(self) -> Path:
        """Rename the staging folder to the next ingest, synced to disk, and return its path.

        Raises:
            OSError: The ingest can't be stored. The data is unchanged.
        """
        for file in self.path.rglob("*"):
            if file.is_file():
                _sync(file)
        last = max((int(each.name.removeprefix("ingest=")) for each in self.data.ingests()), default=0)
        target = self.data.path / f"ingest={last + 1:06}"
        self.path.rename(target)
        _sync(self.data.path)
        return target


@contextmanager
def staging(path: Path, *, buckets: int | None, default_buckets: int, waiting: Callable[[], None]) -> Iterator[Staging]:
    """Lock the data folder for the block and create an empty staging folder, removed unless committed.

    Without `buckets` the folder keeps its own number, and a new one has `default_buckets`. `waiting` is called once
    where another ingest has to end first.

    Raises:
        UsageError: The folder has another number of buckets.
        KafkaQuotasError: The folder can't be written, or the disk is full.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with (path / _LOCK_FILE).open("ab") as lock:
            _take(lock.fileno(), waiting)
            for left in path.glob(f"{_STAGING}*"):
                shutil.rmtree(left)
            folder = path / f"{_STAGING}{os.getpid()}"
            data = _data_folder(path, buckets, default_buckets)
            folder.mkdir()
            try:
                yield Staging(data=data, path=folder)
            finally:
                with suppress(OSError):  # the next ingest tidies up as well
                    if folder.exists():
                        shutil.rmtree(folder)
    except OSError as error:
        raise storage_error(path, error) from error


def storage_error(path: Path, error: OSError) -> KafkaQuotasError:
    """Return the user's error for an error of the operating system in a data folder."""
    if error.errno in _FULL:
        return KafkaQuotasError(
            f"no room left for {path}: {os.strerror(error.errno or 0)}",
            hint="nothing was changed; make room, or name another folder with --out",
        )
    where = f" ({error.filename})" if error.filename else ""
    return KafkaQuotasError(f"cannot write {path}: {error.strerror or error}{where}", hint="nothing was changed")


def _take(lock: int, waiting: Callable[[], None]) -> None:
    notified = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not notified:
                waiting()
                notified = True
            time.sleep(_POLL_S)
        else:
            return


def _data_folder(path: Path, buckets: int | None, default_buckets: int) -> DataFolder:
    if (path / LAYOUT_FILE).exists():
        data = DataFolder.open(path)
        if buckets not in (None, data.buckets):
            raise UsageError(
                f"{path} has {data.buckets} buckets, not {buckets}", hint="leave --buckets out, or name another --out"
            )
        return data
    count = buckets or default_buckets
    temporary = path / f"{LAYOUT_FILE}.new"
    temporary.write_text(json.dumps({"version": LAYOUT_VERSION, "buckets": count}) + "\n", encoding="utf-8")
    temporary.rename(path / LAYOUT_FILE)
    return DataFolder(path=path, buckets=count)


def _sync(path: Path) -> None:
    """Sync a file, or a folder's names, to disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
