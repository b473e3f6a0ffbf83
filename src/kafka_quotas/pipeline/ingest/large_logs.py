"""Large logs at URLs as lines of Spark's text source, which has the splits, file systems and credentials.

A line of a split does not know its offset in the file, nor its number: rows count from the first line of their split
(`SPLIT`), and the sizes and numbers of lines of all splits before it are added once these are known. Where a line
depends on the lines before it, or the log is gzip, one task reads the log in its order, and knows the places itself.
Of a log that has grown, the splits that were read before are counted first (`with_first_splits`). Each line comes with
the description of its task.

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
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from pyspark.sql import functions

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.formats.metric_names import MetricNames
from kafka_quotas.pipeline.engine.job import Watch, run_watched
from kafka_quotas.pipeline.engine.spark_tasks import glob_escaped
from kafka_quotas.pipeline.formats.lines import LARGE_BLOCK, LONGEST_LINE, TOO_LONG, Block
from kafka_quotas.pipeline.formats.task import FirstSplit, IngestTask, TaskCounts
from kafka_quotas.pipeline.tables.arrow import arrow_frame
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.lake import hadoop_url
from kafka_quotas.pipeline.tables.schemas import EVENTS, QUARANTINE, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPLIT: Final = "split"
"""Column with the task and the split whose first line a row's places count from, null if they are right."""
_OFFSET_BITS: Final = 43
"""Bits of a split's number for its offset: a file has at most 8 TiB."""
PLACES: Final = {EVENTS: "src_offset", QUARANTINE: "line_no"}
"""Columns that say where in a file a row of a table comes from."""
_SPLITS: Final = pa.schema([(name, pa.int64()) for name in (SPLIT, "src_offset", "line_no")])
_ESCAPED: Final = re.compile(r'[\s\x00-\x20\x7f-\x9f"#%<>?\[\\\]^`{|}]')
"""What Java escapes in the path of a URL: Spark names the file of a line so."""
_NO_NAMES: Final = MetricNames(rules=())
"""In the task of a line instead of the names of metrics, which logs don't have and take more bytes than the rest."""
_FAILED_READ: Final = "FAILED_READ_FILE"
_DAMAGED: Final = "the packed file is damaged: Spark can't read on"
_CHANGED: Final = "{} changed while it was read, or Spark could not read it: ingest it again"

Lines = tuple[tuple[bytes, int | None], pa.Array]
"""Task and split, and some of its lines without their ends."""


def lines_of(session: "SparkSession", tasks: Sequence[IngestTask]) -> "DataFrame":
    """Return the lines of large logs in rows.

    Returns:
        `task`, `start` (offset of the split in bytes, null if one task has all lines in order) and `value`.
    """
    frames = []
    if split := [task for task in tasks if task.large is not None and not task.large.is_in_order]:
        frames.append(_text(session, split))
    if ordered := [task for task in tasks if task.large is not None and task.large.is_in_order]:
        frames += [_text_in_order(session, ordered)]
    named = [replace(task, names=_NO_NAMES) for task in tasks]
    first = [task.large.first_split.start if task.large and task.large.first_split else 0 for task in tasks]
    known = task_rows(named, [_spark_name(task) for task in tasks]).append_column("first", pa.array(first, pa.int64()))
    lines = reduce(lambda one, other: one.unionByName(other), frames)
    new = lines.join(functions.broadcast(arrow_frame(session, known)), "path").where("start is null or start >= first")
    return new.select("task", "start", "value")


def with_first_splits(session: "SparkSession", tasks: Sequence[IngestTask], *, watch: Watch) -> list[IngestTask]:
    """Return the tasks, those of large logs that have grown with the split in which their new lines begin."""
    grown = [task for task in tasks if task.start and task.large is not None and not task.large.is_in_order]
    if not grown:
        return list(tasks)
    names, starts = [_spark_name(task) for task in grown], [task.start for task in grown]
    known = arrow_frame(session, pa.table({"path": names, "read_to": pa.array(starts, pa.int64())}))
    before = _text(session, grown).join(functions.broadcast(known), "path").where("start < read_to")
    counted = before.groupBy("path", "start").agg(
        functions.expr("sum(octet_length(value) + 1)").alias("bytes"), functions.count("*").alias("lines")
    )
    splits = run_watched(session, counted.toArrow, stage="find new lines", watch=watch).sort_by("start").to_pylist()
    of_log = {name: [split for split in splits if split["path"] == name] for name in names}
    return [
        replace(task, large=replace(task.large, first_split=_first_split(task, of_log[_spark_name(task)])))
        if task in grown and task.large is not None
        else task
        for task in tasks
    ]


def _first_split(task: IngestTask, splits: Iterable[dict[str, Any]]) -> FirstSplit:
    """Return the first split with new lines, of the splits that begin before them."""
    start = offset = lines = 0
    for split in splits:
        start = split["start"]
        if offset + split["bytes"] > task.start:
            return FirstSplit(start=start, offset=offset, lines_before=lines, lines=split["lines"])
        offset, lines = offset + split["bytes"], lines + split["lines"]
    if offset < task.start:
        raise _changed(task)
    return FirstSplit(start=start + 1, offset=offset, lines_before=lines, lines=0)


def task_rows(tasks: Iterable[IngestTask], paths: Iterable[str]) -> pa.Table:
    """Return tasks in rows: pickled in `task`, with the `path` by which Spark knows their file."""
    return pa.table({"task": pa.array(map(pickle.dumps, tasks), pa.binary()), "path": pa.array(paths, pa.string())})


def _text_in_order(session: "SparkSession", tasks: Sequence[IngestTask]) -> "DataFrame":
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
    in_order = [each.select("path", functions.lit(None).cast("long").alias("start"), "value") for each in frames]
    return reduce(lambda one, other: one.unionByName(other), in_order)


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


def lines_by_split(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[IngestTask, int | None, Iterator[Block]]]:
    """Yield the lines of each split in one worker's rows: the task, the number of the split, and blocks.

    The blocks of one have to be read before the next is asked for.
    """
    for (described, start), runs in groupby(_runs(batches), itemgetter(0)):
        task: IngestTask = pickle.loads(described)  # noqa: S301 - made by this very program
        blocks = _blocks(lines for _, lines in runs)
        if start is None and task.large is not None:
            blocks = _with_open_line(blocks, task)
        elif task.large is not None and (first := task.large.first_split) is not None:
            task = replace(task, start=task.start - first.offset if start == first.start else 0)
        yield task, None if start is None else task.number << _OFFSET_BITS | start, blocks


def merged_counts(
    tasks: Sequence[IngestTask], found: Iterable[tuple[TaskCounts, int | None]]
) -> tuple[list[TaskCounts], pa.Table]:
    """Merge the counts of splits into those of each task, and return where each split begins.

    Returns:
        The counts by number, and a table of each `split` with the bytes (`src_offset`) and lines (`line_no`) before it.

    Raises:
        KafkaQuotasError: A file was not read, or has another size than when it was found.
    """
    by_number: dict[int, list[tuple[TaskCounts, int | None]]] = {task.number: [] for task in tasks}
    for each in found:
        by_number[each[0].number].append(each)
    merged, places = [], []
    for task in tasks:
        first = task.large.first_split if task.large is not None else None
        total = TaskCounts(number=0, read_to=0 if first is None else first.offset)
        lines = 0 if first is None else first.lines_before
        for counts, split in sorted(by_number[task.number], key=lambda each: each[1] or 0):
            if split is not None:
                places.append({SPLIT: split, "src_offset": total.read_to, "line_no": lines})
                is_first = first is not None and start_of_split(split) == first.start
                lines += first.lines if first is not None and is_first else counts.lines
            for field in fields(TaskCounts):
                setattr(total, field.name, getattr(total, field.name) + getattr(counts, field.name))
        large = task.large
        is_changed = large is not None and not large.is_in_order and total.read_to != large.unpacked
        if is_changed or not by_number[task.number]:
            raise _changed(task)
        total.number = task.number
        merged.append(total)
    return merged, pa.Table.from_pylist(places, _SPLITS)


def placed(rows: "DataFrame", table: TableSchema, splits: pa.Table) -> "DataFrame":
    """Return rows of a table with what comes `before` their split in the file.

    By this their places are too low.
    """
    if not splits.num_rows or table not in PLACES:
        return rows.withColumn("before", functions.lit(0).cast("long"))
    known = splits.select([SPLIT, PLACES[table]]).rename_columns([SPLIT, "before"])
    joined = rows.join(functions.broadcast(arrow_frame(rows.sparkSession, known)), SPLIT, "left")
    return joined.withColumn("before", functions.coalesce("before", functions.lit(0)))


def start_of_split(split: int) -> int:
    """Return the offset of a split in its file, by its number."""
    return split & ((1 << _OFFSET_BITS) - 1)


def _url(task: IngestTask) -> str:
    return hadoop_url(str(task.path))


def _spark_name(task: IngestTask) -> str:
    """Return the name that Spark gives to the file of a line."""
    return _ESCAPED.sub(lambda found: quote(found[0]), _url(task))


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[Lines]:
    """Yield the lines of each task and split in each batch."""
    for batch in batches:
        described, start, value = batch.columns
        codes = described.dictionary_encode().indices.to_numpy()
        starts = pc.fill_null(start, -1).to_numpy()
        is_new = (np.diff(codes) != 0) | (np.diff(starts) != 0)
        for begin, end in pairwise([0, *(np.flatnonzero(is_new) + 1).tolist(), batch.num_rows]):
            if end > begin:
                yield (described[begin].as_py(), start[begin].as_py()), value.slice(begin, end - begin)


def _blocks(parts: Iterable[pa.Array]) -> Iterator[Block]:
    """Yield lines with their line feeds, by their offsets from the first."""
    offset = 0
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
