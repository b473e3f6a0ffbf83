"""Large logs by line: whatever their splits are, the rows and places are those of the file."""

import gzip
import pickle
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.pipeline.logs import log_text

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.formats.lines import RemoteFile
from kafka_quotas.pipeline.formats.task import EventRow, IngestTask, LargeLog, ParsedBatch, TaskCounts
from kafka_quotas.pipeline.ingest import large_logs, sources
from kafka_quotas.pipeline.ingest.large_logs import lines_by_split, merged_counts, with_damage
from kafka_quotas.pipeline.ingest.parse import parse_lines, parse_task
from kafka_quotas.pipeline.ingest.plan import IngestSettings, KnownFiles, plan_ingest
from kafka_quotas.pipeline.ingest.sources import FoundFile, find_files, find_paths, inspect_files

TEXT = log_text(9).encode() + b"rubb\xffish\n\r\n\n" + log_text(9, first=9).encode()
OPEN = TEXT + b"being written"
Rows = tuple[list[tuple[object, ...]], list[tuple[object, ...]], TaskCounts]


def task_of(content: bytes, *, name: str = "1/kafka-request.log", start: int = 0, zone: str = "UTC") -> IngestTask:
    """The task of a log in a bucket, as Spark gets it."""
    file = RemoteFile(url=f"s3://logs/{name}", size=len(content), modified_ms=1_795_300_000_000, content=content)
    settings = IngestSettings(cluster="c", broker_id=1, zone=zone)
    (planned,) = plan_ingest(
        inspect_files([FoundFile(path=file)], input_format=None), settings=settings, known=KnownFiles(())
    ).tasks(is_spark=True)
    return replace(planned, start=start)


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LARGEST_CONTENT_BYTES", 100)
    monkeypatch.setattr(large_logs, "LARGE_BLOCK", 1_500)


def text_source(task: IngestTask, content: bytes, split_bytes: int) -> Iterator[pa.RecordBatch]:
    """The lines of a file by Spark's splits, each with where its first line begins, two rows a batch."""
    lines = content.split(b"\n")[: -1 if content.endswith(b"\n") else None]
    offset, rows, known = 0, [], {0: (0, 0)}
    for number, line in enumerate(lines):
        in_order = task.large is not None and task.large.is_in_order
        split = 0 if in_order else max(offset - 1, 0) // split_bytes * split_bytes
        rows.append((pickle.dumps(task), *known.setdefault(split, (offset, number)), line))
        offset += len(line) + 1
    for begin in range(0, len(rows), 2):
        described, first, before, value = zip(*rows[begin : begin + 2], strict=True)
        text = pa.Array.from_buffers(pa.string(), len(value), pa.array(value, pa.binary()).buffers())
        columns = [pa.array(described), pa.array(first, pa.int64()), pa.array(before, pa.int64()), text]
        yield pa.record_batch(columns, ["task", "first", "before", "value"])


def rows_of(batches: Iterator[ParsedBatch]) -> Rows:
    """Events, quarantine, and the counts."""
    events: list[tuple[object, ...]] = []
    quarantine: list[tuple[object, ...]] = []
    counts = TaskCounts(number=0)
    for parsed in batches:
        scanned = chain.from_iterable(each.to_pylist() for each in parsed.event_batches)
        found = [*parsed.events, *(EventRow(**row) for row in scanned)]
        events += map(tuple, found)
        quarantine += map(tuple, parsed.quarantine)
        counts = parsed.counts
    return sorted(events, key=lambda row: row[-1]), sorted(quarantine, key=repr), counts  # type: ignore[arg-type, return-value]


def read_by_splits(task: IngestTask, content: bytes, split_bytes: int) -> Rows:
    events, quarantine, counts = [], [], []
    for each, before, blocks in lines_by_split(text_source(task, content, split_bytes)):
        found = rows_of(parse_lines(each, blocks, lines_before=before))
        events += found[0]
        quarantine += found[1]
        counts.append(found[2])
    (total,) = merged_counts([task], counts)
    return sorted(events, key=lambda row: row[-1]), sorted(quarantine, key=repr), total  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize(
    ("content", "start", "split_bytes", "in_order"),
    [
        *((TEXT, 0, size, False) for size in (7, 100, 701, 702, 1_403, 5_000, 10**6)),
        (OPEN, 0, 1_000, True),
        *((each, TEXT.index(b"rubb"), 1_000, True) for each in (TEXT, OPEN)),
        (OPEN, TEXT.index(b"rubb") + 2, 1_000, True),
    ],
)
def test_rows_and_counts_are_those_of_the_whole_file(
    content: bytes, start: int, split_bytes: int, in_order: bool, is_compiled: bool
) -> None:
    task = replace(task_of(content, start=start), is_compiled=is_compiled)
    assert task.large is not None
    task = replace(task, large=replace(task.large, is_in_order=in_order))
    events, quarantine, counts = rows_of(parse_task(task))
    assert events
    assert quarantine
    assert read_by_splits(task, content, split_bytes) == (events, quarantine, counts)


def test_a_line_that_is_too_long_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_logs, "LONGEST_LINE", 2_000)
    content = log_text(3).encode() + b"x" * 2_000 + b"\n" + log_text(3, first=3).encode()
    task = task_of(content)
    events, quarantine, counts = read_by_splits(task, content, 4_000)
    assert [row[-1] for row in events] == [row[-1] for row in rows_of(parse_task(task))[0]]
    assert [row[1:] for row in quarantine] == [(large_logs.TOO_LONG, "s3://logs/1/kafka-request.log", 4)]
    assert counts.read_to == len(content)


@pytest.mark.parametrize(
    ("content", "name", "zone", "expected"),
    [
        (TEXT, "1/a.log", "UTC", LargeLog(unpacked=len(TEXT), is_packed=False, is_in_order=False)),
        (OPEN, "1/a.log", "UTC", LargeLog(unpacked=len(OPEN), is_packed=False, is_in_order=True)),
        (TEXT.replace(b"2026-11-21", b"2026-10-20"), "1/a.log", "Europe/Berlin", True),
        (TEXT, "1/a.log", "Europe/Berlin", False),
        (gzip.compress(TEXT), "1/a.log.gz", "UTC", LargeLog(unpacked=len(TEXT), is_packed=True, is_in_order=True)),
        (gzip.compress(TEXT), "1/a.log", "UTC", None),
        (TEXT, "1/a.log.gz", "UTC", None),
        (b"\xef\xbb\xbf" + TEXT, "1/a.log", "UTC", None),
        (b"producer-metrics:a:{client-id=p} : 1\n" * 9, "1/client.txt", "UTC", None),
    ],
)
def test_a_log_is_split_where_no_line_depends_on_others(
    content: bytes, name: str, zone: str, expected: LargeLog | bool | None
) -> None:
    large = task_of(content, name=name, zone=zone).large
    assert (large.is_in_order if isinstance(expected, bool) and large is not None else large) == expected


def test_a_file_that_changed_or_was_not_read_is_an_error() -> None:
    task = task_of(TEXT)
    for found in ([], [TaskCounts(number=0, read_to=len(TEXT) + 9)]):
        with pytest.raises(KafkaQuotasError, match=r"s3://logs/1/kafka-request\.log changed while it was read"):
            merged_counts([task], found)
    ordered = task_of(OPEN)
    _, _, blocks = next(lines_by_split(text_source(ordered, OPEN * 2, 10**6)))
    with pytest.raises(KafkaQuotasError, match="changed while it was read"):
        list(blocks)


@pytest.mark.parametrize(("lost", "faults"), [(0, 0), (1, 1), (200, 1)])
def test_a_damaged_log_counts_up_to_its_damage(lost: int, faults: int) -> None:
    task = task_of(gzip.compress(TEXT), name="1/a log.gz")
    (damaged,) = with_damage([task], "[FAILED_READ_FILE.NO_HINT] reading s3a://logs/1/a%20log.gz. SQLSTATE")
    assert damaged.large is not None
    assert damaged.large.is_damaged
    end = TEXT.rindex(b"\n", 0, len(TEXT) - lost) + 1 if lost else len(TEXT)
    events, quarantine, counts = read_by_splits(damaged, TEXT[:end], 10**6)
    assert (events, quarantine[faults:]) == rows_of(parse_task(task_of(TEXT[:end], name="1/a log.gz")))[:2]
    assert [row[1] for row in quarantine[:faults]] == [large_logs._DAMAGED] * faults
    assert (counts.read_to, counts.quarantined) == (end, len(quarantine))


@pytest.mark.parametrize("text", ["no room", "[FAILED_READ_FILE.NO_HINT] reading s3a://logs/1/b.log. SQLSTATE"])
def test_other_errors_mark_no_log_as_damaged(text: str) -> None:
    tasks = [task_of(gzip.compress(TEXT), name="1/a.gz"), task_of(TEXT, name="1/b.log")]
    assert with_damage(tasks, text) == tasks


def test_names_that_spark_passes_over_are_hidden_at_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("_x.log", "a.log", ".b.log", "c.log._COPYING_", "_d=1.log", "_raw/e.log")
    files = [RemoteFile(url=f"s3://logs/1/{name}", size=1, modified_ms=0) for name in names]
    monkeypatch.setattr(sources, "list_files", lambda _: files)
    for found in (find_files("s3a://logs/{broker_id}/**"), find_paths("s3a://logs/1")):
        assert [Path(str(each.path)).name for each in found] == ["_d=1.log", "e.log", "a.log"]
    with pytest.raises(UsageError, match=r"_x\.log is hidden"):
        list(find_paths("s3a://logs/1/_x.log"))
