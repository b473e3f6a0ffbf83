"""Files of events, sorted by client and time, as a Delta table wants them added.

Invariant: a file has the events of one day, by client, then by ts_ms, src_file and src_offset. Its row groups are small
enough for statistics that find one client, and whole numbers are stored as differences, which halves the file.
"""

import json
import time
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs

from kafka_quotas.pipeline.kernels.order import is_ordered_by_key
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.lake import INDEXED, PARTITION, Lake, lake_errors
from kafka_quotas.pipeline.tables.schemas import EVENTS

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

_GROUP_ROWS: Final = 1 << 17
_BY_DIFFERENCES: Final = ("ts_ms", "bytes", "src_offset")
_STORED: Final = tuple(name for name in EVENTS.column_names if name != PARTITION)
_DICTIONARIES: Final[Any] = [name for name in _STORED if name not in _BY_DIFFERENCES]


def client_order(events: pa.Table) -> NDArray[np.int64] | None:
    """Return the positions of events by client and time, in their order where both are equal.

    Returns:
        None if the events are in order already.
    """
    clients, times_ms = events["client"].to_numpy(), events["ts_ms"].to_numpy()
    if is_ordered_by_key(clients, times_ms):
        return None
    order: NDArray[np.int64] = np.lexsort((times_ms, clients))
    return order


def sorted_by_client(events: pa.Table) -> pa.Table:
    """Return the events by client and time, in their order where both are equal."""
    order = client_order(events)
    return events if order is None else events.take(pa.array(order))


def write_events(lake: Lake, events: pa.Table) -> "list[AddAction]":
    """Write sorted events, a file per day, and return what to commit.

    Raises:
        KafkaQuotasError: A file can't be written.
    """
    with lake_errors(f"writing {lake.shown(EVENTS)}"):
        filesystem = lake.filesystem(EVENTS)
        return [_write_day(filesystem, day, part) for day, part in by_day(events)]


def by_day(events: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the events of each day in their order, with the day as a text."""
    found = pc.unique(events[PARTITION])
    for day in sorted(found.to_pylist()):
        is_own = None if len(found) == 1 else pc.equal(events[PARTITION], pa.scalar(day, pa.date32()))
        yield day.isoformat(), events if is_own is None else events.filter(is_own)


def _write_day(filesystem: fs.FileSystem, day: str, events: pa.Table) -> "AddAction":
    path = (
        PurePosixPath(f"{PARTITION}={day}") / f"{events['ingest'][0]}-{events['client'][0]}-{uuid4().hex[:12]}.parquet"
    )
    if isinstance(filesystem, fs.SubTreeFileSystem):  # object stores have no folders
        filesystem.create_dir(str(path.parent), recursive=True)
    order = [("client", "ascending"), ("ts_ms", "ascending"), ("src_file", "ascending"), ("src_offset", "ascending")]
    stored = events.select(list(_STORED))
    with filesystem.open_output_stream(str(path)) as sink:
        pq.write_table(
            stored,
            sink,
            compression="zstd",
            row_group_size=_GROUP_ROWS,
            use_dictionary=_DICTIONARIES,
            column_encoding=dict.fromkeys(_BY_DIFFERENCES, "DELTA_BINARY_PACKED"),
            sorting_columns=pq.SortingColumn.from_ordering(stored.schema, order),
        )
    from deltalake.transaction import AddAction  # noqa: PLC0415 - executors load this module without it

    return AddAction(
        path=str(path),
        size=filesystem.get_file_info(str(path)).size,
        partition_values={PARTITION: day},
        modification_time=round(time.time() * 1000),
        data_change=True,
        stats=json.dumps(_statistics(stored)),
    )


def _statistics(events: pa.Table) -> dict[str, Any]:
    """Return the figures by which readers of Delta tables leave files out."""
    bounds = {name: pc.min_max(events[name]).as_py() for name in INDEXED}
    return {
        "numRecords": events.num_rows,
        "minValues": {name: each["min"] for name, each in bounds.items()},
        "maxValues": {name: each["max"] for name, each in bounds.items()},
        "nullCount": dict.fromkeys(INDEXED, 0),
    }
