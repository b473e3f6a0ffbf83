"""Large logs at URLs as lines of Spark's text source, which has the splits, file systems and credentials.

A line of a split does not know its offset in the file, nor its number: bytes and lines of all splits are counted first
(`splits_of`). Where a line depends on the lines before it, or the log is gzip, one task reads the log in its order.
Each line comes with the description of its task and with where its split begins.

Invariants: the bytes of a line are those of the file, valid text or not. No task has more of a log in memory than a
batch of lines.
"""

import pickle
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import reduce
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from pyspark.sql import functions

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.formats.metric_names import MetricNames
from kafka_quotas.pipeline.engine.job import Watch, run_watched
from kafka_quotas.pipeline.engine.spark_tasks import glob_escaped
from kafka_quotas.pipeline.formats.lines import LARGE_BLOCK, LONGEST_LINE, TOO_LONG, Block
from kafka_quotas.pipeline.formats.task import IngestTask, TaskCounts
from kafka_quotas.pipeline.tables.arrow import arrow_frame
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.lake import hadoop_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SPLIT: Final = ("start", "first", "before")
"""Columns of a split: its offset in bytes, null if a task has all lines in order, and those of its first line."""
_ESCAPED: Final = re.compile(r'[\s\x00-\x20\x7f-\x9f"#%<>?\[\\\]^`{|}]')
"""What Java escapes in the path of a URL: Spark names the file of a line so."""
_NO_NAMES: Final = MetricNames(rules=())
"""In the task of a line instead of the names of metrics, which logs don't have and take more bytes than the rest."""
_FAILED_READ: Final = "FAILED_READ_FILE"
_DAMAGED: Final = "the packed file is damaged: Spark can't read on"
_CHANGED: Final = "{} changed while it was read, or Spark could not read it: ingest it again"

Split = tuple[bytes, int, int]
"""The task of some lines, the offset of the first line of their split in the file, and the number of lines before."""


def lines_of(session: "SparkSession", tasks: Sequence[IngestTask], *, watch: Watch) -> "DataFrame":
    """Return the lines of large logs in rows.

    Returns:
        `task`, `first` (offset of the first line of the split), `before` (number of lines before it) and `value`.
    """
    frames = []
    if split := [task for task in tasks if task.large is not None and not task.large.is_in_order]:
        known = functions.broadcast(arrow_frame(session, splits_of(session, split, watch=watch)))
        frames.append(_text(session, split).join(known, ["path", "start"]).drop("start"))
    if ordered := [task for task in tasks if task.large is not None and task.large.is_in_order]:
        whole = functions.lit(0).cast("long")
        frames += [each.withColumn("first", whole).withColumn("before", whole) for each in _in_order(session, ordered)]
    named = [replace(task, names=_NO_NAMES) for task in tasks]
    described = arrow_frame(session, task_rows(named, [_spark_name(task) for task in tasks]))
    lines = reduce(lambda one, other: one.unionByName(other), frames)
    return lines.join(functions.broadcast(described), "path").select("task", "first", "before", "value")


def splits_of(session: "SparkSession", tasks: Sequence[IngestTask], *, watch: Watch) -> pa.Table:
    """Return the splits of large logs that have new lines, by counting bytes and lines of all.

    Returns:
        `path`, `start`, `first` and `before`.

    Raises:
        KafkaQuotasError: A file has another size than when it was found.
    """
    counted = (
        _text(session, tasks)
        .groupBy("path", "start")
        .agg(functions.expr("sum(octet_length(value) + 1)").alias("bytes"), functions.count("*").alias("lines"))
    )
    found = run_watched(session, counted.toArrow, stage="find lines", watch=watch).sort_by("start").to_pylist()
    rows = []
    for task in tasks:
        name, first, before = _spark_name(task), 0, 0
        for split in (each for each in found if each["path"] == name):
            if first + split["bytes"] > task.start:
                rows.append({"path": name, "start": split["start"], "first": first, "before": before})
            first, before = first + split["bytes"], before + split["lines"]
        if task.large is not None and first != task.large.unpacked:
            raise _changed(task)
    schema = pa.schema([("path", pa.string()), *((each, pa.int64()) for each in _SPLIT)])
    return pa.Table.from_pylist(rows, schema)


def task_rows(tasks: Iterable[IngestTask], paths: Iterable[str]) -> pa.Table:
    """Return tasks in rows: pickled in `task`, with the `path` by which Spark knows their file."""
    return pa.table({"task": pa.array(map(pickle.dumps, tasks), pa.binary()), "path": pa.array(paths, pa.string())})


def _in_order(session: "SparkSession", tasks: Sequence[IngestTask]) -> "list[DataFrame]":
    """Return the lines of logs of which one task each has all, in their order."""
    frames = []
    if plain := [task for task in tasks if task.large is not None and not task.large.is_packed]:
        numbered = _text(session, plain).withColumn("row", functions.monotonically_increasing_id())
        frames.append(numbered.repartition(len(plain), "path").sortWithinPartitions("path", "start", "row"))
    packed = [task for task in tasks if task not in plain]  # Spark never splits these
    if damaged := [task for task in packed if task.large is not None and task.large.is_damaged]:
        frames.append(_text(session, damaged, is_damaged=True))
    if sound := [task for task in packed if task not in damaged]:
        frames.append(_text(session, sound))
    return [each.select("path", "value") for each in frames]


def _text(session: "SparkSession", tasks: Sequence[IngestTask], *, is_damaged: bool = False) -> "DataFrame":
    """Return the lines of logs, of damaged ones as far as they can be read.

    Returns:
        `path`, `start` (offset of the split) and `value`.
    """
    reader = session.read.option("lineSep", "\n").option("ignoreCorruptFiles", str(is_damaged).lower())
    lines = reader.text([glob_escaped(_url(task)) for task in tasks])
    path, start = functions.col("_metadata.file_path"), functions.col("_metadata.file_block_start")
    return lines.select(path.alias("path"), start.alias("start"), "value")


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


def lines_by_split(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[IngestTask, int, Iterator[Block]]]:
    """Yield the task of each split in one worker's rows, the number of lines before it, and its blocks.

    The blocks of one have to be read before the next is asked for.
    """
    for (described, first, before), runs in groupby(_runs(batches), itemgetter(0)):
        task: IngestTask = pickle.loads(described)  # noqa: S301 - made by this very program
        blocks = _blocks((lines for _, lines in runs), first)
        is_in_order = task.large is not None and task.large.is_in_order
        yield task, before, _with_open_line(blocks, task) if is_in_order else blocks


def merged_counts(tasks: Sequence[IngestTask], found: Iterable[TaskCounts]) -> list[TaskCounts]:
    """Merge the counts of splits into those of each task, by number.

    Raises:
        KafkaQuotasError: A file was not read, or has another size than when it was found.
    """
    by_number: dict[int, list[TaskCounts]] = {task.number: [] for task in tasks}
    for each in found:
        by_number[each.number].append(each)
    merged = []
    for task in tasks:
        own, large = by_number[task.number], task.large
        if not own:
            raise _changed(task)
        total = TaskCounts(number=task.number, read_to=max(each.read_to for each in own))
        for name in (each.name for each in fields(TaskCounts) if each.name not in ("number", "read_to")):
            setattr(total, name, sum(getattr(each, name) for each in own))
        if large is not None and not large.is_in_order and total.read_to != large.unpacked:
            raise _changed(task)
        merged.append(total)
    return merged


def _url(task: IngestTask) -> str:
    return hadoop_url(str(task.path))


def _spark_name(task: IngestTask) -> str:
    """Return the name that Spark gives to the file of a line."""
    return _ESCAPED.sub(lambda found: quote(found[0]), _url(task))


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Split, pa.Array]]:
    """Yield the lines of each task and split in each batch."""
    for batch in batches:
        described, first, before, value = batch.columns
        codes = described.dictionary_encode().indices.to_numpy()
        is_new = (np.diff(codes) != 0) | (np.diff(first.to_numpy()) != 0)
        for begin, end in pairwise([0, *(np.flatnonzero(is_new) + 1).tolist(), batch.num_rows]):
            if end > begin:
                split = (described[begin].as_py(), first[begin].as_py(), before[begin].as_py())
                yield split, value.slice(begin, end - begin)


def _blocks(parts: Iterable[pa.Array], offset: int) -> Iterator[Block]:
    """Yield lines with their line feeds, of which the first begins at an offset."""
    for lines in parts:
        sizes = pc.binary_length(lines).to_numpy().astype(np.int64) + 1
        ends = np.cumsum(sizes)
        large = np.searchsorted(ends, np.arange(LARGE_BLOCK, ends[-1], LARGE_BLOCK))
        long = np.flatnonzero(sizes > LONGEST_LINE)
        borders = np.unique(np.concatenate([[0], large, long, long + 1, [len(lines)]]))
        for begin, end in pairwise(borders.tolist()):
            size = int(sizes[begin:end].sum())
            if size > LONGEST_LINE:
                beginning = lines[begin].as_buffer().slice(0, LONGEST_LINE)
                yield Block(offset, bytes(beginning), offset + size, fault=TOO_LONG)
            else:
                empty, feed = (pa.scalar(each, lines.type) for each in ("", "\n"))
                joined = pc.binary_join_element_wise(lines.slice(begin, end - begin), empty, feed)
                yield Block(offset, memoryview(joined.buffers()[2])[:size], offset + size)
            offset += size


def _changed(task: IngestTask) -> KafkaQuotasError:
    """Return the error about a log that has another size than when it was found."""
    return KafkaQuotasError(_CHANGED.format(task.path), hint="nothing was changed")


def _with_open_line(blocks: Iterable[Block], task: IngestTask) -> Iterator[Block]:
    """Yield the blocks of a whole log, its last line as an open one where it lacks its line feed.

    A damaged log ends with a line that has a fault, as `read_blocks` has it.
    """
    last, large = None, task.large
    for block in blocks:
        if last is not None:
            yield last
        last = block
    if last is None or large is None:
        return
    is_open = (last.end - 1 - large.unpacked) % 2**32 == 0
    if large.is_damaged and not is_open and (last.end - large.unpacked) % 2**32:
        yield last
        yield Block(last.end, b"", last.end, fault=_DAMAGED)
        return
    if not (is_open or large.is_packed or last.end == large.unpacked):
        raise _changed(task)
    if not is_open or last.fault is not None:
        yield last
        return
    content = bytes(last.content)
    begin = content.rfind(b"\n", 0, -1) + 1
    if begin:
        yield Block(last.offset, content[:begin], last.offset + begin)
    yield Block(last.offset + begin, content[begin:-1], last.end - 1, is_open=True)
