"""Where the rows of a batch go: a folder of Parquet, a topic, or a viewer.

Contract: after a crash a batch may be written again, with equal rows; the target then holds them once.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq


class Sink(Protocol):
    """A target for the rows of `live`, batch by batch."""

    def write(self, rows: pa.Table, *, batch_id: int) -> None:
        """Write the rows of a batch, once even if the batch comes again.

        Raises:
            OSError: A file can't be written.
            KafkaQuotasError: The target does not take the rows.
        """
        ...

    def close(self) -> None:
        """Release the target after the last batch."""
        ...


class FolderSink:
    """Writes `FOLDER/batch=<id>/part-0.parquet` and replaces the rows of a batch that comes again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, rows: pa.Table, *, batch_id: int) -> None:
        """Write the rows as the only content of the batch's folder."""
        replace_batch(self._folder, rows, batch_id=batch_id)

    def close(self) -> None:
        """Do nothing, since every batch is complete on its own."""


class ShowSink:
    """Hands the rows to a function that shows them, again for a batch that comes again."""

    def __init__(self, show: Callable[[pa.Table], None]) -> None:
        self._show = show

    def write(self, rows: pa.Table, *, batch_id: int) -> None:
        """Show the rows."""
        del batch_id
        self._show(rows)

    def close(self) -> None:
        """Do nothing, since there is nothing to release."""


def replace_batch(folder: Path, rows: pa.Table, *, batch_id: int) -> None:
    """Write the rows as the only content of `batch=<id>` in the folder, by renaming a finished folder.

    Raises:
        OSError: A file can't be written.
    """
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
