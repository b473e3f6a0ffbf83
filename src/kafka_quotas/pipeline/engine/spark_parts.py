"""Parts of clients with Spark's executors: the number of each part, and its rows as an Arrow stream.

Invariant: the digest of a client's names, or of one of them, decides its part, so that it is the same in every table
and on every worker.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final
from zlib import compress, crc32, decompress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import StorageLevel
from pyspark.sql import functions

from kafka_quotas.pipeline.engine.client_parts import ClientParts, Found, Pick
from kafka_quotas.pipeline.engine.event_pieces import packed, unpacked
from kafka_quotas.pipeline.engine.spark import LeftTables
from kafka_quotas.pipeline.engine.spark_tasks import CONTENT, PART, content_row, in_tasks, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PARTS: Final = 64
"""Parts of any table: one of a million clients has some 15,000 of them, and few rows are cut into few bytes."""
_TASKS: Final = 8
"""Tasks that cut a table: each costs a tenth of a second of a worker's processor time."""
_ROWS_TOGETHER: Final = 1 << 17
"""Rows up to which a worker takes its parts as one, to summarise a small table once and not part by part."""
_SIDE: Final = "side"
_PARTED: Final = f"{PART} int, {CONTENT} binary"


class SparkParts:
    """Parts in a frame, on the executors' disks once they are computed, for as long as the session lasts."""

    def __init__(self, frame: "DataFrame", schema: pa.Schema) -> None:
        self.frame = frame.persist(StorageLevel.DISK_ONLY)
        self.schema = schema

    @classmethod
    def of(cls, left: LeftTables, name: str, pick: Pick) -> "SparkParts":
        """Return the rows that `pick` leaves of a table of a job."""

        def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for (content,) in rows_of(batches):
                yield from _cut(pick(unpacked(content)), None)

        pieces = in_tasks(left.streams(name).coalesce(_TASKS), cut, _PARTED)
        return cls(_in_parts(pieces), pick(left.empty(name)).schema)

    @classmethod
    def of_rows(cls, rows: "DataFrame", schema: pa.Schema, pick: Pick | None = None) -> "SparkParts":
        """Return rows of Spark, with these columns, or what `pick` leaves of them."""

        def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                found = pa.Table.from_batches([batch]).cast(schema)
                yield from _cut(found if pick is None else pick(found), None)

        pieces = in_tasks(rows.select(*schema.names), cut, _PARTED)
        return cls(_in_parts(pieces), schema if pick is None else pick(schema.empty_table()).schema)

    def of_each(self, function: Callable[[pa.Table], Found]) -> list[Found]:
        """Call the function on the executors."""

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for rows in _together(batches):
                yield content_row({}, pa.py_buffer(compress(pickle.dumps(function(rows)))))

        found = in_tasks(self.frame, run, f"{CONTENT} binary").toArrow()
        return [pickle.loads(decompress(content)) for content in found[CONTENT].to_pylist()]  # noqa: S301 - our workers'

    def joined(self, others: ClientParts, join: Callable[[pa.Table, pa.Table], pa.Table]) -> "SparkParts":
        """Bring the parts of both tables together on the executors, and call the function there."""
        assert isinstance(others, SparkParts)
        schemas = self.schema, others.schema
        both = _sided(self, 0).union(_sided(others, 1)).repartition(PART).sortWithinPartitions(PART, _SIDE)

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = rows_of(batches)
            for part, own in groupby(rows, key=lambda row: row[0]):
                sides: tuple[list[Any], ...] = ([], [])
                for _, content, side in own:
                    sides[side].append(unpacked(content))
                if sides[0]:
                    tables = (
                        pa.concat_tables(found) if found else schemas[side].empty_table()
                        for side, found in enumerate(sides)
                    )
                    yield content_row({PART: part}, packed(join(*tables)))

        return SparkParts(in_tasks(both, run, _PARTED), join(*(each.empty_table() for each in schemas)).schema)

    def regrouped(self, function: Pick, by: str) -> "SparkParts":
        """Cut what the function makes anew, on the executors."""

        def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for rows in _together(batches):
                yield from _cut(function(rows), by)

        return SparkParts(_in_parts(in_tasks(self.frame, cut, _PARTED)), function(self.schema.empty_table()).schema)


def _cut(rows: pa.Table, by: str | None) -> Iterator[pa.RecordBatch]:
    parts = parts_of(rows, by)
    order = np.argsort(parts, kind="stable")
    own, starts = np.unique(parts[order], return_index=True)
    for part, places in zip(own.tolist(), np.split(order, starts[1:]), strict=False):
        yield content_row({PART: part}, packed(rows.take(pa.array(places))))


def _in_parts(pieces: "DataFrame") -> "DataFrame":
    return pieces.repartition(PART).sortWithinPartitions(PART)


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of some whole parts at a time."""
    found: list[pa.Table] = []
    rows = rows_of(batches)
    for _, own in groupby(rows, key=lambda row: row[0]):
        found += [unpacked(content) for _, content in own]
        if sum(each.num_rows for each in found) >= _ROWS_TOGETHER:
            yield pa.concat_tables(found)
            found = []
    if found:
        yield pa.concat_tables(found)


def _sided(parts: SparkParts, side: int) -> "DataFrame":
    return parts.frame.withColumn(_SIDE, functions.lit(side))


def parts_of(rows: pa.Table, by: str | None = None) -> NDArray[np.int64]:
    """Return the part of each row by both names, or by one of them, and by the other where that is empty."""
    user, client_id = (_digests(rows[name]) for name in ("user", "client_id"))
    own, other = (user, client_id) if by == "user" else (client_id, user)
    found: NDArray[np.int64] = (user * 31 + client_id if by is None else np.where(own, own, other)) % _PARTS
    return found


def _digests(names: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return a number of each name, 0 of the empty one."""
    encoded = names.combine_chunks().dictionary_encode()
    digests = np.array([crc32(text.encode()) for text in encoded.dictionary.to_pylist()], np.int64)
    found: NDArray[np.int64] = digests[encoded.indices.to_numpy()]
    return found
