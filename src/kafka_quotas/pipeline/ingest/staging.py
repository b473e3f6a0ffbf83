"""A folder of ingested data while an ingest writes to it: locked, and changed by one rename at the end or not at all.

DATA/.lock                      held for as long as an ingest runs; the next one waits
DATA/.staging-PID/              what will be ingest=NNNNNN; whatever a killed ingest left is removed by the next one
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
    """The locked folder, and the empty one beside its data that becomes an ingest with `commit`."""

    data: DataFolder
    path: Path

    def commit(self) -> Path:
        """The ingest's folder, complete and visible. Raises `OSError`; then nothing has changed."""
        _sync_files(self.path)
        last = max((int(each.name.removeprefix("ingest=")) for each in self.data.ingests()), default=0)
        target = self.data.path / f"ingest={last + 1:06}"
        self.path.rename(target)
        _sync(self.data.path)
        return target


@contextmanager
def staging(path: Path, *, buckets: int | None, default_buckets: int, waiting: Callable[[], None]) -> Iterator[Staging]:
    """The folder for the block, alone; `waiting` is called once where another ingest has to end first.

    `buckets` None: as many as the folder has, or `default_buckets` where it is new. What was not committed is removed.

    Raises `UsageError` where the folder has another number of buckets, `KafkaQuotasError` where it can't be written,
    in one line also where there is no room left.
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
    """What an error of the operating system means to the user of a data folder."""
    if error.errno in _FULL:
        return KafkaQuotasError(
            f"no room left for {path}: {os.strerror(error.errno or 0)}",
            hint="nothing was changed; make room, or name another folder with --out",
        )
    where = f" ({error.filename})" if error.filename else ""
    return KafkaQuotasError(f"cannot write {path}: {error.strerror or error}{where}", hint="nothing was changed")


def _take(lock: int, waiting: Callable[[], None]) -> None:
    told = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                waiting()
                told = True
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


def _sync_files(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            _sync(file)


def _sync(path: Path) -> None:
    """Nothing; the file, or the folder's names, would survive a loss of power."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
