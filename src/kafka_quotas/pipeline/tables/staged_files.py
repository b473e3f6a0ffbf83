"""Parquet files in a data folder that are written, and wait for the commit that makes them part of their table.

Invariant: a file of the table `events` has rows of one day, or of none. Its row groups are small enough for statistics
that find one client, and whole numbers are stored as differences, which halves the file.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.kernels.order import starts_of
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.lake import INDEXED, PARTITION, Lake, hadoop_url, lake_errors
from kafka_quotas.pipeline.tables.schemas import PACKED_EVENTS, TableSchema

if TYPE_CHECKING:
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame

_GROUP_EVENTS: Final = 1 << 15
"""Events of a row group: few clients are in it, whose bounds let readers leave out most groups."""
_BY_DIFFERENCES: Final = ("ts_ms", "bytes", "src_offset")
_STAGING: Final = re.compile(r"staged-(\d+)-[0-9a-f]{32}")
_ABANDONED_MS: Final = 86_400_000
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


def stage_by_spark(
    lake: Lake,
    table: TableSchema,
    rows: "DataFrame",
    *,
    options: Mapping[str, str] = MappingProxyType({}),
    run: Callable[[Callable[[], None]], None] = lambda write: write(),
) -> list[StagedFile]:
    """Write rows of a table that has days by Spark's executors, a file per task and day.

    Args:
        lake: The folder of the table.
        table: The table.
        rows: Its rows.
        options: Those of the writer.
        run: Runs the action.
    """
    folder = staging_folder(lake, table)
    write = rows.write.options(**options).partitionBy(PARTITION).parquet
    run(lambda: write(f"{hadoop_url(lake.place(table))}/{folder}"))
    staged = staged_in(lake, table, folder)
    if not staged and not rows.isEmpty():
        raise KafkaQuotasError(
            f"executors don't write to the {lake.shown()} that this machine reads",
            hint="nothing was changed; on a cluster it is a URL or on a file system that all machines share",
        )
    return staged


def staged_in(lake: Lake, table: TableSchema, folder: str) -> list[StagedFile]:
    """Return the files of a table that Spark has written to a folder in that of the table."""
    with lake_errors(f"reading {lake.shown(table)}"):
        filesystem = lake.filesystem(table)
        found = filesystem.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
        return [_described(filesystem, each) for each in found if each.is_file and each.path.endswith(".parquet")]


def staging_folder(lake: Lake, table: TableSchema) -> str:
    """Return the name of a new folder in that of a table, for files that Spark writes.

    If it is killed, it leaves files that are written halfway, which `VACUUM` passes over: those older than a day are
    deleted here.
    """
    filesystem, now_ms = lake.filesystem(table), round(time.time() * 1000)
    for each in filesystem.get_file_info(fs.FileSelector("", allow_not_found=True)):
        begun = _STAGING.fullmatch(each.base_name)
        if begun and now_ms - int(begun[1]) > _ABANDONED_MS:
            with suppress(OSError):  # most have none
                filesystem.delete_dir(f"{each.path}/_temporary")
    return f"staged-{now_ms}-{uuid4().hex}"


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
    with (
        filesystem.open_output_stream(path) as sink,
        pq.ParquetWriter(sink, rows.schema, **options) as writer,
    ):
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


def _described(filesystem: fs.FileSystem, found: fs.FileInfo) -> StagedFile:
    day = next((part.partition("=")[2] for part in found.path.split("/") if part.startswith(f"{PARTITION}=")), _NO_DAY)
    with filesystem.open_input_file(found.path) as source:
        rows = pq.ParquetFile(source).read(columns=list(INDEXED))
    return StagedFile(found.path, found.size, None if day == _NO_DAY else day, rows.num_rows, _statistics(rows))


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
