"""Where the rows of a batch go: a folder of Parquet, a topic, or whoever looks on.

Contract: a batch may be written again after a crash, with equal rows; afterwards they are there once.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq


class Sink(Protocol):
    """Takes the rows of `live`, batch by batch."""

    def write(self, rows: pa.Table, *, batch_id: int) -> None:
        """Nothing; the rows are where they belong, once. Raises `OSError` and `KafkaQuotasError`."""
        ...

    def close(self) -> None:
        """Nothing; no more rows will come."""
        ...


class FolderSink:
    """Writes `FOLDER/batch=<id>/part-0.parquet`; a batch that comes again replaces what it left before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, rows: pa.Table, *, batch_id: int) -> None:
        """Nothing; the batch's folder holds these rows and no others."""
        replace_batch(self._folder, rows, batch_id=batch_id)

    def close(self) -> None:
        """Nothing."""


class ShowSink:
    """Hands the rows to a function that shows them; a batch that comes again is shown again."""

    def __init__(self, show: Callable[[pa.Table], None]) -> None:
        self._show = show

    def write(self, rows: pa.Table, *, batch_id: int) -> None:
        """Nothing; the rows have been shown."""
        del batch_id
        self._show(rows)

    def close(self) -> None:
        """Nothing."""


def replace_batch(folder: Path, rows: pa.Table, *, batch_id: int) -> None:
    """Nothing; `batch=<id>` in the folder holds the rows alone, and was never seen half-written. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    target, new, old = (folder / f"{prefix}batch={batch_id}" for prefix in ("", ".new-", ".old-"))
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    new.mkdir()
    pq.write_table(rows, new / "part-0.parquet", compression="zstd")
    if target.exists():
        target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)
