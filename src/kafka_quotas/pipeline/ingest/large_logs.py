"""Large logs that only Hadoop's file systems reach, as lines of Spark's text source, which has the credentials.

One task reads a log in its order, since a line does not know its offset in the file, nor its number. Each line comes
with the number of its task.

Invariants: the bytes of a line are those of the file, valid text or not. No task has more of a log in memory than a
batch of lines.
"""

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from pyspark.sql import functions

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.engine.spark_tasks import even_places, glob_escaped
from kafka_quotas.pipeline.formats.lines import LARGE_BLOCK, Block, RemoteFile, read_blocks
from kafka_quotas.pipeline.formats.task import IngestTask
from kafka_quotas.pipeline.tables.arrow import arrow_frame
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.lake import hadoop_url

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from pyspark.sql import DataFrame, SparkSession

_ESCAPED: Final = re.compile(r'[\s\x00-\x20\x7f-\x9f"#%<>?\[\\\]^`{|}]')
"""What Java escapes in the path of a URL: Spark names the file of a line so."""
_FAILED_READ: Final = "FAILED_READ_FILE"
_DAMAGED: Final = "Spark can't read on"
_CHANGED: Final = "{} changed while it was read, or Spark could not read it: ingest it again"


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
        borders = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
        for begin, end in pairwise([0, *borders, batch.num_rows]):
            if end > begin:
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
