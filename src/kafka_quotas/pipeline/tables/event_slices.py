"""Files of events as one stream of slices in order of time, in bounded memory.

Invariants: a slice begins at or after the end of the one before. It holds whole seconds, and sums by the second are
complete. Within a slice the files follow each other, each sorted by ts_ms. A consumer that needs order sorts only the
columns that it needs. Memory does not grow with the files. A file that is not sorted, which no ingest writes, is sorted
in memory. A file that declares its order (`sorting_columns`, as ours do) is not checked.
Where a file can't be read, every function raises `KafkaQuotasError`.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.kernels.order import is_ordered
from kafka_quotas.pipeline.tables.schemas import CHARGE_COLUMNS

SLICE_ROWS: Final = 1 << 20
"""About how many events are read at a time, over all open files."""
_FEWEST_ROWS: Final = 1 << 15
_SECOND_MS: Final = 1000
_ENDLESS_MS: Final = 1 << 62
_TEXTS: Final = ("cluster", "user", "client_id", "quota_type")


def event_slices(
    files: Sequence[Path], *, columns: Sequence[str] = CHARGE_COLUMNS, slice_rows: int = SLICE_ROWS
) -> Iterator[pa.Table]:
    """Yield the events of the files in slices.

    `columns` are the columns to read, `ts_ms` among them.
    """
    unread = sorted((span for path in files if (span := FileSpan(path)).rows), key=lambda span: span.first_ms)
    streams: list[_Stream] = []
    while unread or streams:
        while unread and unread[0].first_ms <= min((each.known_until_ms for each in streams), default=_ENDLESS_MS):
            span = unread.pop(0)
            overlapping = 1 + sum(each.first_ms <= span.last_ms for each in unread) + len(streams)
            streams.append(_Stream(span.path, columns, max(slice_rows // overlapping, _FEWEST_ROWS)))
        until_ms = min(each.known_until_ms for each in streams)
        if parts := [part for each in streams if (part := each.take(until_ms)) is not None]:
            yield pa.concat_tables(parts)
        for each in streams:
            if each.known_until_ms <= until_ms:
                each.read_more()
        streams = [each for each in streams if not each.is_empty]


class FileSpan:
    """A file of events: their number, and the first and last time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            metadata = pq.read_metadata(path)
            place = metadata.schema.to_arrow_schema().get_field_index("ts_ms")
        except (OSError, pa.ArrowException) as error:
            raise KafkaQuotasError(f"cannot read {path}: {error}", hint="is it a whole Parquet file?") from error
        if place < 0:
            raise KafkaQuotasError(f"{path} has no column ts_ms", hint="it is no file of events")
        self.rows = metadata.num_rows
        columns = [metadata.row_group(group).column(place) for group in range(metadata.num_row_groups)]
        if all(column.is_stats_set and column.statistics.has_min_max for column in columns):
            self.first_ms = min((column.statistics.min for column in columns), default=0)
            self.last_ms = max((column.statistics.max for column in columns), default=0)
        else:
            with pq.ParquetFile(path) as file:
                times_ms = file.read(columns=["ts_ms"])["ts_ms"].to_numpy()
            self.first_ms, self.last_ms = int(times_ms.min()), int(times_ms.max())


class _Stream:
    """An open file, and the events that were read and not yet taken."""

    def __init__(self, path: Path, columns: Sequence[str], batch_rows: int) -> None:
        self._path = path
        self._columns = list(columns)
        self._batches = self._read(batch_rows)
        self._held: pa.Table | None = None
        self._times_ms: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._ended = False
        self.read_more()

    @property
    def is_empty(self) -> bool:
        """Whether all events were taken."""
        return self._ended and self._held is None

    @property
    def known_until_ms(self) -> int:
        """The time, a whole second, before which all events were read."""
        return _ENDLESS_MS if self._ended else int(self._times_ms[-1]) // _SECOND_MS * _SECOND_MS

    def take(self, until_ms: int) -> pa.Table | None:
        """Take the events before a time, None for none."""
        count = int(np.searchsorted(self._times_ms, until_ms))
        if self._held is None or not count:
            return None
        taken, rest = self._held.slice(0, count), self._held.slice(count)
        self._held = rest if rest.num_rows else None
        self._times_ms = self._times_ms[count:]
        return taken

    def read_more(self) -> None:
        """Read another batch, or notice the end of the file."""
        table = next(self._batches, None)
        if table is None:
            self._ended = True
            return
        held = table if self._held is None else pa.concat_tables([self._held, table])
        self._held, self._times_ms = held, held["ts_ms"].to_numpy()

    def _read(self, batch_rows: int) -> Iterator[pa.Table]:
        try:
            with pq.ParquetFile(self._path, read_dictionary=list(_TEXTS)) as file:
                if not _is_sorted(file):
                    yield file.read(columns=self._columns).sort_by("ts_ms")
                    return
                for batch in file.iter_batches(batch_size=batch_rows, columns=self._columns, use_threads=False):
                    yield pa.Table.from_batches([batch])
        except (OSError, pa.ArrowException) as error:
            raise KafkaQuotasError(f"cannot read {self._path}: {error}", hint="is it a whole Parquet file?") from error


def _is_sorted(file: pq.ParquetFile) -> bool:
    if _says_sorted(file.metadata):
        return True
    last_ms = -_ENDLESS_MS
    for batch in file.iter_batches(batch_size=SLICE_ROWS, columns=["ts_ms"], use_threads=False):
        times_ms = batch.column(0).to_numpy()
        if times_ms.size and (times_ms[0] < last_ms or not is_ordered(times_ms)):
            return False
        last_ms = times_ms[-1] if times_ms.size else last_ms
    return True


def _says_sorted(metadata: pq.FileMetaData) -> bool:
    """Check whether each row group declares its order by time and begins after the one before."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    by_time = pq.SortingColumn(metadata.schema.to_arrow_schema().get_field_index("ts_ms"))
    if not all(group.sorting_columns[:1] == (by_time,) for group in groups):
        return False
    times = [group.column(by_time.column_index).statistics for group in groups]
    return all(each is not None and each.has_min_max for each in times) and all(
        earlier.max <= later.min for earlier, later in pairwise(times)
    )
