"""Tasks of a job on Spark: the same function as on one machine, over pieces of the table of events.

Spark reads the files, with its own file systems and credentials, and moves them to the tasks that need them, or pieces
into which workers cut them before (`event_pieces`). Workers run the tasks. Of very many clients executors say whose
events a job needs and divide them: only ranges come to the driver.

Invariants: events of clients that may share a bucket are in one partition, and partitions follow each other by client,
whichever bounds Spark samples for them. A partition is read window by window, so that its size takes no memory.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel, TaskContext
from pyspark.sql import functions

from kafka_quotas.pipeline.engine.event_pieces import (
    NAMES_WINDOW,
    Parts,
    Piece,
    by_part,
    event_pieces,
    name_pieces,
    packed,
    row_pieces,
    slices_of_parts,
    unpacked,
)
from kafka_quotas.pipeline.engine.job import Job, Tables, without_events
from kafka_quotas.pipeline.engine.spark_tasks import (
    CONTENT,
    FOUND,
    FRAME_COLUMNS,
    PART,
    PIECE_COLUMNS,
    content_row,
    contents_of,
    found_rows,
    glob_escaped,
    in_tasks,
    rows_of,
    spark_schema,
)
from kafka_quotas.pipeline.tables.arrow import arrow_frame
from kafka_quotas.pipeline.tables.client_ranges import (
    NAMES,
    ClientRange,
    EventTable,
    events_of_range,
    merged_clients,
    ranges_of,
    stored_columns,
)
from kafka_quotas.pipeline.tables.clients import STORED, merged_figures
from kafka_quotas.pipeline.tables.lake import hadoop_url
from kafka_quotas.pipeline.tables.schemas import CLIENTS, EVENTS, TableSchema
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNTED_FROM: Final = 1 << 30
"""Number of the first part of clients without events, above those of all ranges."""
_CLIENTS_IN_PART: Final = 1 << 16
"""About how many rows of `clients` a worker judges at a time."""
_NEEDED: Final = "needed"
_RANGE_COLUMNS: Final = "first long, last long, events long"


class SparkClients:
    """The clients of a table of events, as a job needs them."""

    def __init__(self, session: "SparkSession", events: EventTable, job: Job) -> None:
        rows = events.snapshot.rows_on_spark(session, CLIENTS).select("events", "first_ms", "last_ms", *STORED)
        group = functions.shiftright("client", job.shift)
        placed = rows.repartitionByRange(events.snapshot.rows_stored(CLIENTS) // _CLIENTS_IN_PART + 1, group)
        self._judged = in_tasks(placed, partial(_judged, job=job), FRAME_COLUMNS)
        self._needed = self._judged.where(functions.col(FOUND) == _NEEDED).select(CONTENT)
        self._job = job
        self._events = events.count

    def ranges(self, *, workers: int) -> list[ClientRange]:
        """Divide the clients that the job needs into ranges of about as many events, by number."""
        shift, target = self._job.shift, events_of_range(self._events, workers=workers)

        def divide(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for (content,) in rows_of(batches):
                own = unpacked(content, columns=["client", "events"])
                found = ranges_of(own["client"].to_numpy(), own["events"].to_numpy(), shift=shift, target=target)
                figures = [(each.first, each.last, each.events) for each in found]
                columns = [pa.array(column, pa.int64()) for column in zip(*figures, strict=True)]
                yield pa.record_batch(columns, ["first", "last", "events"])

        rows = in_tasks(self._needed, divide, _RANGE_COLUMNS).toArrow().sort_by("first").to_pylist()
        return [ClientRange(**row) for row in rows]

    def names(self, parts: Parts) -> "DataFrame":
        """Return the names of the needed clients in pieces."""

        def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for (content,) in rows_of(batches):
                for part, own in by_part(unpacked(content, columns=["client", *NAMES]), parts):
                    yield content_row({PART: part, "window": NAMES_WINDOW}, packed(own))

        return in_tasks(self._needed, cut, PIECE_COLUMNS)

    def counted(self) -> "DataFrame | None":
        """Return the tables of clients whose figures suffice, None if the job needs all events."""
        return None if self._job.suffices is None else self._judged.where(functions.col(FOUND) != _NEEDED)


def _judged(batches: Iterable[pa.RecordBatch], *, job: Job) -> Iterator[pa.RecordBatch]:
    """Yield the clients whose events a job needs in one row, and the tables of the others."""
    given, context = list(batches), TaskContext.get()
    if not given or context is None:
        return
    rows = pa.Table.from_batches(given)
    clients = merged_clients(rows)
    part = COUNTED_FROM + context.partitionId()
    if job.suffices is not None and job.counted is not None:
        figures = merged_figures(rows.select(STORED))
        is_enough = job.suffices(figures)
        clients = clients.filter(pa.array(~is_enough))
        if np.any(is_enough):
            yield from found_rows(part, job.counted(figures.filter(pa.array(is_enough))))
    if clients.num_rows:
        needed = clients.select(["client", *NAMES, "events_sum"]).rename_columns(["client", *NAMES, "events"])
        yield content_row({PART: part, FOUND: _NEEDED}, packed(needed))


_WORKERS: Final = 8
"""Tasks of a small table suffice for about as many workers; in a large one a task has a slice's events."""
_LARGEST_FILE: Final = 1 << 25
"""Largest file in bytes that a worker takes whole: Java has several copies of it, and ran out of 1 GiB at 42 MiB."""
_ROWS_IN_BATCH: Final = 1 << 16
_TASKS_OF_SMALL: Final = 4
"""Tasks that unpack a small table, for each costs a tenth of a second of a worker's processor time."""
_PLACE_IN_PARTITION: Final = (1 << 33) - 1
"""The bits of Spark's `monotonically_increasing_id` that count the rows of a partition."""


def run_job(session: "SparkSession", events: EventTable, job: Job) -> "DataFrame":
    """Run a job's task over each range of clients that may share a bucket."""
    many = SparkClients(session, events, job) if events.has_many_clients else None
    if many is None:
        events, left = without_events(job, events)
        counted = _counted(session, job, left) if left else None
        ranges = events.ranges(shift=job.shift, workers=_WORKERS)
    else:
        counted, ranges = many.counted(), many.ranges(workers=_WORKERS)
    snapshot, columns, files = events.snapshot, stored_columns(job.columns), events.snapshot.files(EVENTS)
    places, sizes = _places(snapshot, EVENTS, files), files["size_bytes"].to_pylist()
    named = Counter(map(_name, places))
    movable = {n for n, place in enumerate(places) if sizes[n] <= _LARGEST_FILE and named[_name(place)] == 1}
    parts = Parts.of(
        ranges,
        events.time_spread(),
        files,
        movable=movable,
        chosen=events.chosen,
        has_names_of_chosen=many is not None,
    )
    if counted is not None and not ranges:
        return counted
    needed = snapshot.needed(EVENTS)
    of_file = partial(event_pieces, parts=parts, columns=columns, ingests=needed)
    of_rows = partial(row_pieces, parts=parts, columns=columns, ingests=needed)
    whole, cut = parts.places(len(places))
    pieces = _names(session, snapshot, parts) if many is None else many.names(parts)
    if whole:
        pieces = pieces.union(_whole_pieces(session, [(part, places[place]) for part, place in whole]))
    if small := [places[place] for place in cut if place in movable]:
        pieces = pieces.union(_cut(contents_of(session, list(map(glob_escaped, small))), of_file))
    if large := [place for n, place in enumerate(places) if n not in movable]:
        rows = session.read.parquet(*map(glob_escaped, large)).select(*columns, *([] if needed is None else ["ingest"]))
        pieces = pieces.union(_cut(rows, of_rows))
    placed = pieces.repartition(len(ranges), PART).sortWithinPartitions(PART, "window")

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrived = (Piece(*row) for row in rows_of(batches))
        for part, slices in slices_of_parts(arrived, parts, columns=columns, ingests=needed):
            yield from found_rows(part, job.task(slices))

    found = in_tasks(placed, run, FRAME_COLUMNS)
    return found if counted is None else found.union(counted)


def _names(session: "SparkSession", snapshot: FolderSnapshot, parts: Parts) -> "DataFrame":
    """Return the names of all clients in pieces."""
    places = map(glob_escaped, _places(snapshot, CLIENTS, snapshot.files(CLIENTS)))
    return _cut(contents_of(session, list(places)), partial(name_pieces, parts=parts, ingests=snapshot.ingests))


def _counted(session: "SparkSession", job: Job, left: Sequence[pa.Table]) -> "DataFrame":
    """Return the tables of clients whose figures suffice."""
    count = job.counted
    contents = [pa.array([packed(each).to_pybytes()], pa.binary()) for each in left]
    numbers = pa.array(range(COUNTED_FROM, COUNTED_FROM + len(left)), pa.int32())
    rows = arrow_frame(session, pa.table({PART: numbers, CONTENT: pa.chunked_array(contents)}))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part, content in rows_of(batches):
            if count is not None:
                yield from found_rows(part, count(unpacked(content)))

    return in_tasks(rows.repartition(min(len(left), _WORKERS), PART), run, FRAME_COLUMNS)


def _places(snapshot: FolderSnapshot, table: TableSchema, files: pa.Table) -> list[str]:
    """Return the files of a table as Spark names them."""
    folder = hadoop_url(snapshot.lake.place(table))
    return [f"{folder}/{path}" for path in files["path"].to_pylist()]


def _whole_pieces(session: "SparkSession", wanted: list[tuple[int, str]]) -> "DataFrame":
    """Return files as pieces, once for each part that wants one."""
    parts, places = zip(*wanted, strict=True)
    names = pa.array(map(_name, places))
    known = arrow_frame(session, pa.table({"name": names, PART: pa.array(parts, pa.int32())}))
    files = session.read.format("binaryFile").load([glob_escaped(place) for place in sorted(set(places))])
    named = files.select(functions.substring_index("path", "/", -1).alias("name"), CONTENT)
    return named.join(functions.broadcast(known), "name").select(PART, functions.lit(0).alias("window"), CONTENT)


def _name(place: str) -> str:
    return place.rpartition("/")[2]


def _cut(frame: "DataFrame", cut: "Callable[[Any], Iterator[Piece]]") -> "DataFrame":
    """Return the pieces of the files' bytes in a frame, or of its rows."""
    is_files = frame.columns == [CONTENT]

    def pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for given in [row[0] for row in rows_of([batch])] if is_files else [pa.Table.from_batches([batch])]:
                for piece in cut(given):
                    yield content_row({PART: piece.part, "window": piece.window}, piece.content)

    return in_tasks(frame, pieces, PIECE_COLUMNS)


class LeftTables:
    """Tables of a job that stay with the executors, on their disks, for as long as the session lasts.

    `bulky` names one that is far larger than the others, None for none.
    """

    def __init__(self, frame: "DataFrame", schemas: Mapping[str, pa.Schema], *, bulky: str | None = None) -> None:
        self._frame = frame.persist(StorageLevel.DISK_ONLY)
        self._schemas = schemas
        self._bulky = bulky
        self._numbered: dict[str, DataFrame] = {}
        self._unpacked: dict[str, DataFrame] = {}

    def forget(self) -> None:
        """Let the executors delete the rows."""
        for frame in (*self._unpacked.values(), *self._numbered.values(), self._frame):
            frame.unpersist()

    def others(self) -> "DataFrame":
        """Return all rows, but without the contents of the tables that are left."""
        is_left = functions.col(FOUND).isin(list(self._schemas))
        return self._frame.withColumn(CONTENT, functions.when(~is_left, functions.col(CONTENT)))

    def numbered(self, name: str, *, by: Sequence[str]) -> "DataFrame":
        """Return the rows of a table with their place in an order, from 0, as `entity_id`.

        Only the numbers of rows in each partition come to the driver.
        """
        if name not in self._numbered:
            ordered = self.rows(name).repartitionByRange(*by).sortWithinPartitions(*by)
            placed = ordered.withColumn("range", functions.spark_partition_id())
            placed = placed.withColumn("place", functions.monotonically_increasing_id()).persist(StorageLevel.DISK_ONLY)
            counted = placed.groupBy("range").agg(functions.count("*").alias("rows")).toArrow().to_pylist()
            counts = np.zeros(1 + max((row["range"] for row in counted), default=0), dtype=np.int64)
            counts[[row["range"] for row in counted]] = [row["rows"] for row in counted]
            firsts = functions.array(*map(functions.lit, (np.cumsum(counts) - counts).tolist()))
            place = functions.col("place").bitwiseAND(_PLACE_IN_PARTITION)
            number = place + functions.element_at(firsts, functions.col("range") + 1)
            self._numbered[name] = placed.withColumn("entity_id", number.cast("int"))
        return self._numbered[name]

    def with_buckets(
        self, name: str, buckets: "DataFrame", columns: Sequence[str], *, only: Any | None = None
    ) -> "DataFrame":
        """Return the rows of a table with columns of the buckets that they are of.

        Args:
            name: The table.
            buckets: The other columns of each `part` and `bucket`; rows of none are left out.
            columns: The columns to return.
            only: Which rows to return, None for all.
        """
        others = [each for each in columns if each not in self._schemas[name].names]
        return (
            self.rows(name, only=only).join(buckets.select(PART, "bucket", *others), [PART, "bucket"]).select(*columns)
        )

    def rows(self, name: str, *, only: Any | None = None) -> "DataFrame":
        """Return the rows of a table with the `part` that they are of, those that `only` picks or all."""
        if self._bulky is None or name == self._bulky or only is not None:
            return self._unpack(self._frame, name, only)
        if name not in self._unpacked:
            found = self._unpack(self._frame.coalesce(_TASKS_OF_SMALL), name, None)
            self._unpacked[name] = found.persist(StorageLevel.DISK_ONLY)
        return self._unpacked[name]

    def streams(self, name: str) -> "DataFrame":
        """Return the rows of a table as Arrow streams in bytes."""
        return self._frame.where(functions.col(FOUND) == name).select(CONTENT)

    def empty(self, name: str) -> pa.Table:
        """Return a table without its rows."""
        return self._schemas[name].empty_table()

    def _unpack(self, frame: "DataFrame", name: str, only: Any | None) -> "DataFrame":
        schema = pa.schema([pa.field(PART, pa.int32()), *self._schemas[name]])

        def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for part, content in rows_of(batches):
                rows = unpacked(content)
                found = rows if only is None else rows.filter(only)
                numbered = found.add_column(0, PART, pa.repeat(pa.scalar(part, pa.int32()), found.num_rows))
                yield from numbered.cast(schema).to_batches(max_chunksize=_ROWS_IN_BATCH)

        streams = frame.where(functions.col(FOUND) == name).select(PART, CONTENT)
        return in_tasks(streams, unpack, spark_schema(schema))


def tables_by_task(found: pa.Table, job: Job) -> list[Tables]:
    """Unpack a collected frame into the tables of each task, in the order of the tasks."""
    tasks: dict[int, dict[str, list[pa.Table]]] = {part: {} for part in sorted(set(found[PART].to_pylist()))}
    for part, name, content in rows_of(found.select([PART, FOUND, CONTENT]).to_batches()):
        if content is not None:  # it is left with the executors
            tasks[part].setdefault(name, []).append(unpacked(content))
    return [
        {name: pa.concat_tables([schema.empty_table(), *own.get(name, ())]) for name, schema in job.schemas.items()}
        for own in tasks.values()
    ]
