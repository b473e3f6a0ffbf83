"""An ingest on Spark: tasks in Python workers, each of which writes the rows of all its tasks, for one commit.

Workers read logs themselves, by byte ranges: those at paths, which they must see there, and those in object stores,
with the variables by which the command finds the store. What only Hadoop's file systems reach Spark reads, with its
credentials: each log whole, and large ones by line, as its text source has them. A worker packs the events of all its
tasks together, so that a row has what a client did in an hour, and no row is moved or sorted by Spark.

One task reads a large log in its order, since a line does not know its offset in the file, nor its number. Each line
comes with the number of its task.

Invariants: workers commit nothing. Files of tasks that Spark runs again or twice are not among those to commit. The
bytes of a line are those of the file, valid text or not. No task has more of a large log in memory than a batch of
lines.
"""

import io
import pickle
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import functions

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.engine.job import Watch
from kafka_quotas.pipeline.engine.spark_tasks import even_places, glob_escaped, pickled_in_tasks, run_watched, unpickled
from kafka_quotas.pipeline.formats.lines import LARGE_BLOCK, Block, RemoteFile, is_of_hadoop, read_blocks
from kafka_quotas.pipeline.formats.task import IngestTask, ParsedBatch
from kafka_quotas.pipeline.ingest.ingested_tables import StagedRows, parse_task, write_tables
from kafka_quotas.pipeline.kernels.order import starts_of
from kafka_quotas.pipeline.tables.arrow import arrow_frame
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.lake import Lake, hadoop_url
from kafka_quotas.pipeline.tables.schemas import DERIVED_TABLES, PACKED_EVENTS
from kafka_quotas.pipeline.tables.staged_files import StagedFile, require_written

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from pyspark.sql import DataFrame, SparkSession

_PARTITION_BYTES: Final = 1 << 27
"""Bytes of tasks in a partition, as in one of Spark's own sources: each costs as much as thousands of lines."""
_FEW_PARTITIONS: Final = 8
_MOST_PARTITIONS: Final = 1 << 15
"""Partitions of tasks, each of which Spark's driver keeps account of."""
_ESCAPED: Final = re.compile(r'[\s\x00-\x20\x7f-\x9f"#%<>?\[\\\]^`{|}]')
"""What Java escapes in the path of a URL: Spark names the file of a line so."""
_FAILED_READ: Final = "FAILED_READ_FILE"
_DAMAGED: Final = "Spark can't read on"
_CHANGED: Final = "{} changed while it was read, or Spark could not read it: ingest it again"


def ingest_on_spark(session: "SparkSession", tasks: Sequence[IngestTask], *, lake: Lake, watch: Watch) -> StagedRows:
    """Run the tasks on Spark, whose workers write their rows.

    Spark's own errors pass through.
    """
    large = {task.number: task for task in tasks if task.large is not None}

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[StagedRows]:
        yield write_tables(lake, _parsed(batches))

    def run_large(batches: Iterable[pa.RecordBatch]) -> Iterator[StagedRows]:
        yield write_tables(lake, (parse_task(*each) for each in logs_of(batches, large)))

    described = described_tasks(session, [task for task in tasks if task.large is None])
    frames = [pickled_in_tasks(each, run) for each in described]
    if large:
        frames.append(pickled_in_tasks(lines_of(session, list(large.values())), run_large))
    work = partial(unpickled, reduce(lambda one, other: one.unionByName(other), frames))
    try:
        found: list[StagedRows] = run_watched(session, work, stage="read", watch=watch)
    except Exception as error:  # py4j's, gRPC's and Spark's own, of many classes
        if (known := with_damage(tasks, str(error))) == list(tasks):
            raise
        return ingest_on_spark(session, known, lake=lake, watch=watch)
    counts = [each for own, _ in found for each in own]
    read = {each.number for each in counts}
    if unread := [task for task in tasks if task.number not in read]:
        raise changed(unread[0])
    staged = defaultdict[str, list[StagedFile]](list)
    for table in (PACKED_EVENTS, *DERIVED_TABLES):
        staged[table.name] = require_written(
            lake, table, (file for _, own in found for file in own.get(table.name, ()))
        )
    return counts, staged


def described_tasks(session: "SparkSession", tasks: Sequence[IngestTask]) -> "Iterator[DataFrame]":
    """Yield the tasks in rows: pickled in `task`, the bytes of a file that Spark reads in `content`.

    Spark reads what only Hadoop reaches, each file whole. Others are read by the workers.
    """
    by_url = {hadoop_url(str(task.path)): task for task in tasks if is_of_hadoop(task.path)}
    if own := [task for task in tasks if not is_of_hadoop(task.path)]:
        yield arrow_frame(session, pa.table({"task": _pickled(own)})).repartition(partitions(own))
    if by_url:
        known = arrow_frame(session, pa.table({"task": _pickled(by_url.values()), "path": list(by_url)}))
        files = session.read.format("binaryFile").load([glob_escaped(url) for url in by_url])
        yield files.select("path", "content").join(functions.broadcast(known), "path").select("task", "content")


def _pickled(tasks: Iterable[IngestTask]) -> pa.Array:
    return pa.array(map(pickle.dumps, tasks), pa.binary())


def partitions(tasks: Sequence[IngestTask]) -> int:
    """Return the number of partitions for tasks, of which several small ones share one."""
    return min(len(tasks), _FEW_PARTITIONS + sum(task.size for task in tasks) // _PARTITION_BYTES, _MOST_PARTITIONS)


def _parsed(batches: Iterable[pa.RecordBatch]) -> Iterator[Iterator[ParsedBatch]]:
    for batch in batches:
        for described, *content in zip(*batch.columns, strict=True):
            task: IngestTask = pickle.loads(described.as_buffer())  # noqa: S301 - made by this very program
            if content and isinstance(task.path, RemoteFile):
                task = replace(task, path=replace(task.path, content=content[0].as_buffer()))
            yield parse_task(task)


def lines_of(session: "SparkSession", tasks: Sequence[IngestTask]) -> "DataFrame":
    """Return the lines of large logs in rows, `task` and `value`, those of one log in their order."""
    frames = []
    for kind in ((False, False), (True, False), (True, True)):
        own = [task for task in tasks if task.large and (task.large.is_packed, task.large.is_damaged) == kind]
        if not own:
            continue
        is_packed, is_damaged = kind
        reader = session.read.option("lineSep", "\n").option("ignoreCorruptFiles", str(is_damaged).lower())
        text = reader.text([glob_escaped(hadoop_url(str(task.path))) for task in own])
        text = text.selectExpr("_metadata.file_path AS path", "_metadata.file_block_start AS start", "value")
        numbers = {"task": pa.array([task.number for task in own], pa.int32()), "place": range(len(own))}
        known = arrow_frame(session, pa.table({"path": list(map(_spark_name, own)), **numbers}))
        lines = text.join(functions.broadcast(known), "path")
        if not is_packed:  # packed ones have no splits
            lines = lines.withColumn("row", functions.monotonically_increasing_id())
            lines = lines.repartition(len(own), even_places("place", len(own)))
            lines = lines.sortWithinPartitions("place", "start", "row")
        frames.append(lines.select("task", "value"))
    return reduce(lambda one, other: one.unionByName(other), frames)


def with_damage(tasks: Sequence[IngestTask], error: str) -> list[IngestTask]:
    """Return the tasks, with the packed logs marked as damaged that Spark could not read, by its error."""
    return [
        replace(task, large=replace(task.large, is_damaged=True))
        if task.large is not None
        and task.large.is_packed
        and not task.large.is_damaged
        and _FAILED_READ in error
        and f"{_spark_name(task).partition(':')[2].lstrip('/')}." in error  # it has `file:///` for `file:/`
        else task
        for task in tasks
    ]


def logs_of(
    batches: Iterable[pa.RecordBatch], tasks: Mapping[int, IngestTask]
) -> Iterator[tuple[IngestTask, Iterator[Block]]]:
    """Yield each log in one worker's rows with its blocks, to be read before the next log."""
    for number, runs in groupby(_runs(batches), itemgetter(0)):
        task = tasks[number]
        assert isinstance(task.path, RemoteFile)
        opened = partial(io.BufferedReader, _Parts(_content((lines for _, lines in runs), task)))
        yield task, read_blocks(replace(task.path, content=None, reader=opened), block_bytes=LARGE_BLOCK)


def changed(task: IngestTask) -> KafkaQuotasError:
    """Return the error about a log that has another size than when it was found."""
    return KafkaQuotasError(_CHANGED.format(task.path), hint="nothing was changed")


def _spark_name(task: IngestTask) -> str:
    """Return the name that Spark gives to the file of a line."""
    return _ESCAPED.sub(lambda found: quote(found[0]), hadoop_url(str(task.path)))


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Array]]:
    """Yield the lines of each task in each batch."""
    for batch in batches:
        numbers, value = batch.column(0).to_numpy(), batch.column(1)
        for begin, end in pairwise([*starts_of(numbers).tolist(), batch.num_rows]):
            yield int(numbers[begin]), value.slice(begin, end - begin)


def _content(parts: Iterable[pa.Array], task: IngestTask) -> Iterator[pa.Buffer | bytes]:
    """Yield the bytes of a log, given its lines. It ends without a line feed if the file does."""
    large, size = task.large, -1
    assert large is not None
    for lines in parts:
        if size >= 0:
            yield b"\n"
        whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
        joined = pc.binary_join(whole, pa.scalar("\n", lines.type))[0].as_buffer()
        yield joined
        size += joined.size + 1
    if (size - large.unpacked) % 2**32 == 0:
        return
    is_whole = (size + 1 - large.unpacked) % 2**32 == 0 if large.is_packed else size + 1 == large.unpacked
    if not (is_whole or large.is_packed):
        raise changed(task)
    yield b"\n"
    if large.is_damaged and not is_whole:
        raise EOFError(_DAMAGED)


class _Parts(io.RawIOBase):
    """Bytes in parts as Python has files."""

    def __init__(self, parts: Iterator[pa.Buffer | bytes]) -> None:
        self._parts = parts
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        while not self._left and (part := next(self._parts, None)) is not None:
            self._left = memoryview(part).cast("B")
        view = memoryview(buffer)
        size = min(len(view), len(self._left))
        view[:size], self._left = self._left[:size], self._left[size:]
        return size
