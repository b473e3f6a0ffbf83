"""Parquet files in a data folder that are written, and wait for the commit that makes them part of their table.

Invariant: a file of the table `events` has rows of one day, or of none. Its row groups are small enough for statistics
that find one client, and whole numbers are stored as differences, which halves the file.
"""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.kernels.order import starts_of
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.lake import INDEXED, PARTITION, Lake, lake_errors
from kafka_quotas.pipeline.tables.schemas import PACKED_EVENTS, TableSchema

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

_GROUP_EVENTS: Final = 1 << 15
"""Events of a row group: few clients are in it, whose bounds let readers leave out most groups."""
_BY_DIFFERENCES: Final = ("ts_ms", "bytes", "src_offset")
_NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
_ELEMENT: Final = ".list.element"
_ORDER: Final = [("client", "ascending"), ("quota_type", "ascending")]


class StagedFile(NamedTuple):
    """A file of a table."""

    path: str
    """Path in the table's folder."""
    size: int
    day: str | None
    """The day of its rows, None for rows without one."""
    rows: int
    stats: str
    """Figures by which readers of Delta tables leave files out, as JSON."""

    def action(self, table: TableSchema, *, is_change: bool) -> "AddAction":
        """Return what a commit says of the file."""
        from deltalake.transaction import AddAction  # noqa: PLC0415 - executors load this module without it

        return AddAction(
            path=self.path,
            size=self.size,
            partition_values={PARTITION: self.day} if PARTITION in table.column_names else {},
            modification_time=round(time.time() * 1000),
            data_change=is_change,
            stats=self.stats,
        )


def write_staged(lake: Lake, table: TableSchema, rows: pa.Table) -> list[StagedFile]:
    """Write rows of a table, a file per day where they have days."""
    with lake_errors(f"writing {lake.shown(table)}"):
        filesystem = lake.filesystem(table)
        if PARTITION not in table.column_names:
            return [_write(filesystem, table, rows, "", None)] if rows.num_rows else []
        return [
            _write(filesystem, table, own.drop_columns([PARTITION]), f"{PARTITION}={day or _NO_DAY}/", day)
            for day, own in _by_day(rows)
        ]


def require_written(lake: Lake, table: TableSchema, files: Iterable[StagedFile]) -> list[StagedFile]:
    """Return files of a table that executors wrote.

    Raises:
        KafkaQuotasError: They are not where this process looks for them.
    """
    written = list(files)
    if lake.is_local and not all(Path(lake.place(table), each.path).is_file() for each in written):
        raise KafkaQuotasError(
            f"executors don't write to the {lake.shown()} that this machine reads",
            hint="nothing was changed; on a cluster it is a URL or on a file system that all machines share",
        )
    return written


def read_staged(lake: Lake, table: TableSchema, path: str, columns: list[str]) -> pa.Table:
    """Return columns of a file."""
    with lake_errors(f"reading {lake.shown(table)}"), lake.filesystem(table).open_input_file(path) as source:
        return pq.ParquetFile(source).read(columns=columns)


def remove_staged(lake: Lake, table: TableSchema, files: Iterable[StagedFile]) -> None:
    """Delete files that no commit is to have. What can't be deleted, `VACUUM` deletes later."""
    filesystem = lake.filesystem(table)
    for file in files:
        with suppress(OSError):
            filesystem.delete_file(file.path)


def _by_day(rows: pa.Table) -> Iterator[tuple[str | None, pa.Table]]:
    for day in pc.unique(rows[PARTITION]):
        yield day.as_py() and day.as_py().isoformat(), rows.filter(pc.is_in(rows[PARTITION], pa.array([day])))


def _write(filesystem: fs.FileSystem, table: TableSchema, rows: pa.Table, folder: str, day: str | None) -> StagedFile:
    path = f"{folder}{uuid4().hex}.parquet"
    if folder and isinstance(filesystem, fs.SubTreeFileSystem):  # object stores have no folders
        filesystem.create_dir(folder, recursive=True)
    events = table is PACKED_EVENTS
    paths = [
        f"{field.name}{_ELEMENT}" if pa.types.is_list(field.type) else field.name
        for field in rows.schema
        if not pa.types.is_boolean(field.type)
    ]
    by_differences = [f"{name}{_ELEMENT}" for name in _BY_DIFFERENCES] if events else []
    options: dict[str, Any] = {
        "compression": "zstd",
        "use_dictionary": [name for name in paths if name not in by_differences],
        "column_encoding": dict.fromkeys(by_differences, "DELTA_BINARY_PACKED"),
    }
    if events:
        options["sorting_columns"] = pq.SortingColumn.from_ordering(rows.schema, _ORDER)
    with filesystem.open_output_stream(path) as sink, pq.ParquetWriter(sink, rows.schema, **options) as writer:
        for group in _groups(rows) if events else [rows]:
            writer.write_table(group, row_group_size=max(group.num_rows, 1))
    size = filesystem.get_file_info(path).size
    return StagedFile(path, size, day, rows.num_rows, _statistics(rows))


def _groups(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of each row group, of about as many events."""
    counts = rows["events"].to_numpy()
    starts = starts_of((np.cumsum(counts) - counts) // _GROUP_EVENTS)
    for begin, end in pairwise([*starts.tolist(), rows.num_rows]):
        yield rows.slice(begin, end - begin)


def _statistics(rows: pa.Table) -> str:
    known = [name for name in INDEXED if name in rows.column_names] if rows.num_rows else []
    bounds = {name: pc.min_max(rows[name]).as_py() for name in known}
    found = {
        "numRecords": rows.num_rows,
        "minValues": {name: _shown(each["min"]) for name, each in bounds.items()},
        "maxValues": {name: _shown(each["max"]) for name, each in bounds.items()},
        "nullCount": dict.fromkeys(known, 0),
    }
    return json.dumps(found)


def _shown(value: Any) -> Any:
    """Return a bound as JSON has it."""
    return value if isinstance(value, int | str) else value.strftime("%Y-%m-%dT%H:%M:%S.000Z")
