"""An ingest on Spark: a row per task, the parser in Python workers, and files by day, client and time.

Contract: transforms are `DataFrame -> DataFrame` with the declared schemas. Spark reads logs at URLs, with its own file
systems and credentials: each whole, and large ones by line (`large_logs`). Logs at paths are read by the workers, which
must see them there. What these parse are few rows of many events each (`parsed_rows`), which executors keep on their
disks: Java handles an event once, where it writes the tables, at any URL that Spark writes. Rows of files that an
ingest replaces are deleted by executors, with the outcome of `change.remove_rows` on this machine.
"""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial, reduce
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions

from kafka_quotas.pipeline.engine.event_pieces import packed, unpacked
from kafka_quotas.pipeline.engine.event_ranges import (
    CLIENT_COLUMNS,
    EventRanges,
    event_chunks,
    merged,
    sample_of,
    shifted,
    thinned,
)
from kafka_quotas.pipeline.engine.job import Watch, row_counter, run_watched
from kafka_quotas.pipeline.engine.spark_session import delta_conflicts
from kafka_quotas.pipeline.engine.spark_tasks import CONTENT, FOUND, PART, content_row, glob_escaped, in_tasks, rows_of
from kafka_quotas.pipeline.formats.lines import RemoteFile, file_size
from kafka_quotas.pipeline.formats.task import IngestTask, ParsedBatch, TaskCounts
from kafka_quotas.pipeline.ingest.ingested_tables import arrow_batches, clients_of
from kafka_quotas.pipeline.ingest.large_logs import (
    PLACES,
    SPLIT,
    lines_by_split,
    lines_of,
    merged_counts,
    placed,
    start_of_split,
    task_rows,
    with_damage,
    with_first_splits,
)
from kafka_quotas.pipeline.ingest.parse import no_collection, parse_lines, parse_task
from kafka_quotas.pipeline.tables.arrow import arrow_frame
from kafka_quotas.pipeline.tables.lake import Lake, hadoop_url
from kafka_quotas.pipeline.tables.schemas import (
    CHARGED_TYPES,
    CLIENTS,
    EVENTS,
    INGESTED_TABLES,
    QUARANTINE,
    TableSchema,
)
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COUNTS: Final = "counts"
_SAMPLE: Final = "sample"
_COUNT_NAMES: Final = tuple(each.name for each in fields(TaskCounts))
_TASK_COLUMNS: Final = ("task", "content")
_PLACE: Final = ("file", "start", "number")
"""Columns of parsed rows by which those of equal events are in the order of their files."""
_PARSED_COLUMNS: Final = f"{FOUND} string, file string, start long, number int, {SPLIT} long, {CONTENT} binary"
_PIECE_COLUMNS: Final = f"{PART} int, day int, file string, start long, number int, before long, {CONTENT} binary"
_PACKED_BYTES: Final = 1 << 26
"""Bytes of a table's rows that a task has in memory before it packs them."""
_PARTITION_BYTES: Final = 1 << 27
"""Bytes of tasks in a partition, as in one of Spark's own sources: each costs as much as thousands of lines."""
_FEW_PARTITIONS: Final = 8
_MOST_SAMPLES: Final = 1 << 18
"""About how many samples of 24 bytes the driver collects at most: they suffice for even files of a billion events."""
_MOST_PARTITIONS: Final = 1 << 15
"""Partitions of tasks, each of which Spark's driver keeps account of."""


def ingest_on_spark(
    session: "SparkSession", tasks: Sequence[IngestTask], *, lake: Lake, ingest: int, watch: Watch
) -> list[TaskCounts]:
    """Run the tasks on Spark and append their rows to the tables, marked with the ingest.

    Spark's own errors pass through.

    Returns:
        The counts of each task, by number.
    """
    tasks, rows = with_first_splits(session, tasks, watch=watch), row_counter(session)
    row_count = (lambda: int(rows.value)) if rows is not None else int
    parsed = parsed_rows(session, tasks, ingest=ingest, rows=rows).persist(StorageLevel.DISK_ONLY)
    try:
        collect = parsed.where(functions.col(FOUND).isin(_COUNTS, _SAMPLE)).select(FOUND, SPLIT, CONTENT).toArrow
        try:
            collected = run_watched(session, collect, stage="read", watch=watch, rows=row_count)
        except Exception as error:  # py4j's, gRPC's and Spark's own, of many classes
            if (known := with_damage(tasks, str(error))) == list(tasks):
                raise
            return ingest_on_spark(session, known, lake=lake, ingest=ingest, watch=watch)
        found, samples = _collected(collected)
        counts, splits = merged_counts(tasks, found)
        for table in INGESTED_TABLES:
            if any(getattr(each, "quarantined" if table is QUARANTINE else table.name) for each in counts):
                own = placed(parsed.where(functions.col(FOUND) == table.name), table, splits)
                frames = (
                    [(table, rows_of_table(own, table))]
                    if table is not EVENTS
                    else [(EVENTS, events_of(own, samples)), (CLIENTS, clients_of_events(own, samples))]
                )
                for target, frame in frames:
                    write = partial(append, frame, lake, target)
                    run_watched(session, write, stage=f"write {target.name}", watch=watch, rows=row_count)
    finally:
        parsed.unpersist()
    return counts


def append(rows: "DataFrame", lake: Lake, table: TableSchema) -> None:
    """Append rows to a table of the lake by the executors, in one commit."""
    rows.select(*table.column_names).write.format("delta").mode("append").save(hadoop_url(lake.place(table)))


def rows_of_table(parsed: "DataFrame", table: TableSchema) -> "DataFrame":
    """Return the rows of a table that needs no order."""

    def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for content, before in rows_of(batches):
            yield from shifted(unpacked(content), PLACES.get(table, ""), before).to_batches()

    return in_tasks(parsed.select(CONTENT, "before"), unpack, table.spark_schema())


def events_of(parsed: "DataFrame", samples: pa.Table) -> "DataFrame":
    """Return the events in partitions of about equal size by day, client and time, sorted so."""

    def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for pieces in _by_range(batches):
            for events in merged(pieces):
                yield from events.to_batches()

    return in_tasks(_ranged(parsed, EventRanges.for_files(samples)), merge, EVENTS.spark_schema())


def clients_of_events(parsed: "DataFrame", samples: pa.Table) -> "DataFrame":
    """Return the rows of `clients` for the events."""

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for pieces in _by_range(batches):
            yield from clients_of(pa.concat_tables(merged(pieces))).to_batches()

    ranged = _ranged(parsed, EventRanges.for_clients(samples), CLIENT_COLUMNS)
    return in_tasks(ranged, count, CLIENTS.spark_schema())


def _ranged(parsed: "DataFrame", ranges: EventRanges, columns: Sequence[str] | None = None) -> "DataFrame":
    """Return the events in pieces, in partitions by range, each in the order of files."""

    def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            place = batch.select([*_PLACE, "before"])
            for row, content in enumerate(each.as_buffer() for each in batch.column(CONTENT)):
                for part, day, piece in ranges.pieces(content, columns):
                    own = content_row({PART: part, "day": day}, piece)
                    arrays = [*own.columns[:2], *place.slice(row, 1).columns, own.column(CONTENT)]
                    yield pa.record_batch(arrays, names=[PART, "day", *place.schema.names, CONTENT])

    few = parsed.select(*_PLACE, "before", CONTENT).coalesce(ranges.count)
    pieces = in_tasks(few, cut, _PIECE_COLUMNS)
    return pieces.repartition(ranges.count, PART).sortWithinPartitions(PART, "day", *_PLACE)


def _by_range(batches: Iterable[pa.RecordBatch]) -> Iterator[Iterator[tuple[pa.Buffer, int]]]:
    """Yield the pieces of each range and day, with the bytes before the place from which offsets count."""
    pieces = rows_of(batch.select([PART, "day", "before", CONTENT]) for batch in batches)
    for _, own in groupby(pieces, key=itemgetter(0, 1)):
        yield ((content, before) for _, _, before, content in own)


def parsed_rows(session: "SparkSession", tasks: Sequence[IngestTask], *, ingest: int, rows: Any = None) -> "DataFrame":
    """Return rows with many rows of a table each, as an Arrow stream, and with the counts of each task.

    `rows` is an accumulator for the number of rows, None for none.

    Returns:
        `found` (the table, or what else it is), `file`, `start` (where the task's or the split's part of it begins),
        `number` (of the row in that part), `split` (null if places are those in the file) and `content`.
    """
    size = sum(map(_bytes_of, tasks))

    def packed_rows(task: IngestTask, parsed: Iterable[ParsedBatch]) -> Iterator[tuple[str, pa.Buffer]]:
        return _packed_rows(task, parsed, ingest, rows, samples_per_byte=_MOST_SAMPLES / max(size, 1))

    def parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with no_collection():
            for batch in batches:
                for described, content in zip(*batch.columns, strict=True):
                    task = _with_content(pickle.loads(described.as_buffer()), content)  # noqa: S301 - made by this very program
                    yield from _placed_rows(task, None, packed_rows(task, parse_task(task)))

    def parse_large(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with no_collection():
            for task, split, blocks in lines_by_split(batches):
                yield from _placed_rows(task, split, packed_rows(task, parse_lines(task, blocks)))

    frames = []
    if small := [task for task in tasks if task.large is None]:
        frames.append(in_tasks(described_tasks(session, small), parse, _PARSED_COLUMNS))
    if large := [task for task in tasks if task.large is not None]:
        frames.append(in_tasks(lines_of(session, large), parse_large, _PARSED_COLUMNS))
    return reduce(lambda one, other: one.unionByName(other), frames)


def described_tasks(session: "SparkSession", tasks: Sequence[IngestTask]) -> "DataFrame":
    """Return the tasks in rows: pickled in `task`, with the bytes of their file in `content`.

    Spark reads files at URLs itself, each whole. Others are read by the workers: their `content` is null.
    """
    own = [task for task in tasks if isinstance(task.path, Path)]
    by_url = {hadoop_url(task.path.url): task for task in tasks if isinstance(task.path, RemoteFile)}
    frames = []
    if own:
        here = arrow_frame(session, task_rows(own, [str(task.path) for task in own])).repartition(partitions(own))
        frames.append(here.select("task", functions.lit(None).cast("binary").alias("content")))
    if by_url:
        known = arrow_frame(session, task_rows(by_url.values(), by_url))
        files = session.read.format("binaryFile").load([glob_escaped(url) for url in by_url])
        frames.append(files.select("path", "content").join(functions.broadcast(known), "path").select(*_TASK_COLUMNS))
    return reduce(lambda one, other: one.unionByName(other), frames)


def partitions(tasks: Sequence[IngestTask]) -> int:
    """Return the number of partitions for tasks, of which several small ones share one."""
    return min(len(tasks), _FEW_PARTITIONS + sum(map(_bytes_of, tasks)) // _PARTITION_BYTES, _MOST_PARTITIONS)


def _bytes_of(task: IngestTask) -> int:
    """Return the bytes of a task's part of its file, of a packed file's end about."""
    return max((file_size(task.path) if task.end is None else task.end) - task.start, 0)


def _with_content(task: IngestTask, content: pa.Scalar) -> IngestTask:
    if not content.is_valid or not isinstance(task.path, RemoteFile):
        return task
    return replace(task, path=replace(task.path, content=content.as_buffer()))


def _packed_rows(
    task: IngestTask, batches: Iterable[ParsedBatch], ingest: int, rows: Any, *, samples_per_byte: float
) -> Iterator[tuple[str, pa.Buffer]]:
    """Yield the rows of a task or a split, packed by table, samples of the events, and the counts last."""
    waiting: dict[TableSchema, list[pa.RecordBatch]] = {table: [] for table in INGESTED_TABLES}
    sizes = dict.fromkeys(INGESTED_TABLES, 0)
    samples: list[pa.Table] = []
    counts = TaskCounts(number=task.number)
    for parsed in batches:
        for table, batch in arrow_batches(parsed, ingest=ingest):
            waiting[table].append(batch)
            sizes[table] += batch.nbytes
            if sizes[table] > _PACKED_BYTES:
                yield from _packed(table, waiting[table], samples, seed=task.number)
                waiting[table].clear()
                sizes[table] = 0
        if rows is not None:
            rows.add(parsed.size)
        counts = parsed.counts
    for table, own in waiting.items():
        if own:
            yield from _packed(table, own, samples, seed=task.number)
    if samples:  # a split has a part of the task's bytes, and places in a packed log are those of the unpacked one
        size = min(max(counts.read_to - task.start, 0), _bytes_of(task))
        yield _SAMPLE, packed(thinned(samples, int(size * samples_per_byte) + 1, seed=task.number))
    yield _COUNTS, packed(pa.table({name: [getattr(counts, name)] for name in _COUNT_NAMES}))


def _packed(
    table: TableSchema, batches: Sequence[pa.RecordBatch], samples: list[pa.Table], *, seed: int
) -> Iterator[tuple[str, pa.Buffer]]:
    """Yield rows of a table, packed, and add samples of events to the others."""
    if table is not EVENTS:
        yield table.name, packed(pa.Table.from_batches(batches))
        return
    for chunk in event_chunks(batches):
        samples.append(sample_of(chunk, seed=seed))
        yield EVENTS.name, packed(chunk)


def _placed_rows(
    task: IngestTask, split: int | None, packed_rows: Iterable[tuple[str, pa.Buffer]]
) -> Iterator[pa.RecordBatch]:
    """Yield packed rows with where they are from, the columns of `parsed_rows`."""
    start = task.start if split is None else start_of_split(split)
    for number, (found, content) in enumerate(packed_rows):
        own = content_row({FOUND: found, "file": str(task.path), "number": number}, content)
        places = [pa.array([each], pa.int64()) for each in (start, split)]
        arrays = [*own.columns[:2], places[0], own.column("number"), places[1], own.column(CONTENT)]
        yield pa.record_batch(arrays, names=[FOUND, *_PLACE, SPLIT, CONTENT])


def _collected(rows: pa.Table) -> tuple[list[tuple[TaskCounts, int | None]], pa.Table]:
    """Return the counts of tasks and splits, and the samples of all events."""
    counts: list[tuple[TaskCounts, int | None]] = []
    samples = []
    for found, split, content in rows_of(rows.to_batches()):
        if found == _COUNTS:
            counts += [(TaskCounts(**row), split) for row in unpacked(content).to_pylist()]
        else:
            samples.append(unpacked(content))
    return counts, pa.concat_tables(samples) if samples else pa.table({})


def remove_rows_on_spark(session: "SparkSession", before: FolderSnapshot, names: Iterable[str]) -> None:
    """Delete the rows of files that another ingest replaces, and count the clients of what is left.

    Args:
        session: The session.
        before: The folder without the ingest.
        names: Names of the files in `src_file`.
    """
    gone = sorted(names)
    with delta_conflicts():
        for table in INGESTED_TABLES:
            own = _rows(session, before.lake, table).where(functions.col("src_file").isin(gone))
            found = {row["ingest"] for row in own.select("ingest").distinct().collect()}
            if affected := sorted(found.intersection(before.ingests)):
                texts = ", ".join(map(_sql_text, gone))
                _delete_rows(session, before.lake, table, affected, f" AND src_file IN ({texts})")
                if table is EVENTS:
                    _count_clients(session, before.lake, affected)


def _delete_rows(
    session: "SparkSession", lake: Lake, table: TableSchema, ingests: Sequence[int], more: str = ""
) -> None:
    """Let executors delete rows of some ingests, those for which `more`, in SQL, holds as well."""
    numbers, place = ", ".join(map(str, ingests)), hadoop_url(lake.place(table)).replace("`", "``")
    session.sql(f"DELETE FROM delta.`{place}` WHERE ingest IN ({numbers}){more}").collect()  # noqa: S608 - ours


def _count_clients(session: "SparkSession", lake: Lake, ingests: Sequence[int]) -> None:
    """Count the clients of some ingests again, from the events that are left of them."""
    _delete_rows(session, lake, CLIENTS, ingests)
    append(clients_on_spark(_rows(session, lake, EVENTS).where(functions.col("ingest").isin(ingests))), lake, CLIENTS)


def clients_on_spark(events: "DataFrame") -> "DataFrame":
    """Return the rows of `clients` for events."""
    client = ["client", "cluster", "broker_id", "user", "client_id", "ingest"]
    seconds = events.groupBy(*client, functions.expr("ts_ms div 1000").alias("second")).agg(
        functions.count("*").alias("events"),
        functions.min("ts_ms").alias("first_ms"),
        functions.max("ts_ms").alias("last_ms"),
        functions.sum("bytes").alias("bytes"),
        *(functions.expr(f"{text} as {name}") for kind in CHARGED_TYPES for name, text in _charges_of(kind).items()),
    )
    merged = {"events": "sum", "amount": "sum", "peak": "max", "first_ms": "min", "last_ms": "max"}
    return seconds.groupBy(*client).agg(
        functions.sum("events").alias("events"),
        functions.min("first_ms").alias("first_ms"),
        functions.max("last_ms").alias("last_ms"),
        functions.max("bytes").alias("peak_bytes"),
        *(
            functions.expr(f"{function}({kind}_{name}) as {kind}_{name}")
            for kind in CHARGED_TYPES
            for name, function in merged.items()
        ),
    )


def _charges_of(kind: str) -> dict[str, str]:
    """Return the figures of a quota type's charges in a group of events, in SQL, by column."""
    column = {"request": "thread_ms * 0.1D * 1e7D", "controller_mutation": "mutations"}.get(kind, "bytes")
    is_own = "thread_ms is not null" if kind == "request" else f"quota_type = '{kind}'"
    is_charged = f"not is_exempt and {is_own}"
    return {
        f"{kind}_events": f"count_if({is_charged})",
        f"{kind}_amount": f"sum(if({is_charged}, cast(rint({column}) as bigint), 0L))",
        f"{kind}_peak": f"sum(if({is_charged}, greatest(ceil({column}), 0L), 0L))",
        f"{kind}_first_ms": f"min(if({is_charged}, ts_ms, null))",
        f"{kind}_last_ms": f"max(if({is_charged}, ts_ms, null))",
    }


def _rows(session: "SparkSession", lake: Lake, table: TableSchema) -> "DataFrame":
    return session.read.format("delta").load(hadoop_url(lake.place(table)))


def _sql_text(text: str) -> str:
    """Return a text as a literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")  # `${...}` is a variable
    return f"'{escaped}'"
