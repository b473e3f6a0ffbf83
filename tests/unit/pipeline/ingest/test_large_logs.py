"""Large logs by line: the rows and places are those of the file."""

import gzip
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.pipeline.logs import log_text

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.formats import lines
from kafka_quotas.pipeline.formats.lines import RemoteFile
from kafka_quotas.pipeline.formats.task import EventRow, IngestTask, LargeLog, ParsedBatch, TaskCounts
from kafka_quotas.pipeline.ingest import plan, spark_engine
from kafka_quotas.pipeline.ingest.ingested_tables import parse_task
from kafka_quotas.pipeline.ingest.plan import IngestSettings, KnownFiles, plan_ingest
from kafka_quotas.pipeline.ingest.sources import FoundFile, find_files, find_paths, inspect_files
from kafka_quotas.pipeline.ingest.spark_engine import logs_of, with_damage

TEXT = log_text(9).encode() + b"rubb\xffish\n\r\n\n" + log_text(9, first=9).encode()
OPEN = TEXT + b"being written"
Rows = tuple[list[tuple[object, ...]], list[tuple[object, ...]], TaskCounts]


def tasks_of(content: bytes, *, url: str) -> tuple[IngestTask, ...]:
    """The tasks of a log at a URL, as Spark gets them."""
    file = RemoteFile(url=url, size=len(content), modified_ms=1_795_300_000_000, content=content)
    settings = IngestSettings(cluster="c", broker_id=1, zone="UTC")
    inspected = inspect_files([FoundFile(path=file)], input_format=None)
    return plan_ingest(inspected, settings=settings, known=KnownFiles(())).tasks(is_spark=True)


def task_of(content: bytes, *, url: str = "hdfs://logs/1/kafka-request.log", start: int = 0) -> IngestTask:
    (task,) = tasks_of(content, url=url)
    return replace(task, start=start)


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "LARGEST_CONTENT_BYTES", 100)
    monkeypatch.setattr(spark_engine, "LARGE_BLOCK", 1_500)


def text_source(task: IngestTask, content: bytes) -> Iterator[pa.RecordBatch]:
    """The lines of a file as Spark has them, two rows a batch."""
    split = content.split(b"\n")[: -1 if content.endswith(b"\n") else None]
    for begin in range(0, len(split), 2):
        value = split[begin : begin + 2]
        text = pa.Array.from_buffers(pa.string(), len(value), pa.array(value, pa.binary()).buffers())
        yield pa.record_batch([pa.array([task.number] * len(value), pa.int32()), text], ["task", "value"])


def rows_of(batches: Iterator[ParsedBatch]) -> Rows:
    """Events, quarantine, and the counts."""
    events: list[tuple[object, ...]] = []
    quarantine: list[tuple[object, ...]] = []
    counts = TaskCounts(number=0)
    for parsed in batches:
        scanned = chain.from_iterable(each.to_pylist() for each in parsed.event_batches)
        found = [*parsed.events, *(EventRow(**row) for row in scanned)]
        events += map(tuple, found)
        quarantine += (tuple(row.values()) for row in parsed.quarantine)
        counts = parsed.counts
    return sorted(events, key=lambda row: row[-1]), sorted(quarantine, key=repr), counts  # type: ignore[arg-type, return-value]


def read_by_lines(task: IngestTask, content: bytes) -> Rows:
    (found,) = (rows_of(parse_task(*each)) for each in logs_of(text_source(task, content), {0: task}))
    return found


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("content", [TEXT, OPEN])
@pytest.mark.parametrize("start", [0, TEXT.index(b"rubb"), TEXT.index(b"rubb") + 2])
def test_rows_and_counts_are_those_of_the_whole_file(content: bytes, start: int, is_compiled: bool) -> None:
    task = replace(task_of(content, start=start), is_compiled=is_compiled)
    events, quarantine, counts = rows_of(parse_task(task))
    assert events
    assert bool(quarantine) == (start <= TEXT.index(b"rubb") or content is OPEN)
    assert read_by_lines(task, content) == (events, quarantine, counts)


def test_a_line_that_is_too_long_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 2_000)
    content = log_text(3).encode() + b"x" * 5_000 + b"\n" + log_text(3, first=3).encode()
    task = task_of(content)
    events, quarantine, counts = read_by_lines(task, content)
    assert [row[-1] for row in events] == [row[-1] for row in rows_of(parse_task(task))[0]]
    assert [row[1:] for row in quarantine] == [(lines.TOO_LONG, "hdfs://logs/1/kafka-request.log", 4)]
    assert counts.read_to == len(content)


@pytest.mark.parametrize(
    ("content", "url", "expected"),
    [
        (TEXT, "hdfs://logs/1/a.log", LargeLog(unpacked=len(TEXT), is_packed=False)),
        (gzip.compress(TEXT), "hdfs://logs/1/a.log.gz", LargeLog(unpacked=len(TEXT), is_packed=True)),
        (gzip.compress(TEXT), "hdfs://logs/1/a.log", None),
        (TEXT, "hdfs://logs/1/a.log.gz", None),
        (b"\xef\xbb\xbf" + TEXT, "hdfs://logs/1/a.log", None),
        (b"producer-metrics:a:{client-id=p} : 1\n" * 9, "hdfs://logs/1/client.txt", None),
        (TEXT, "s3://logs/1/a.log", None),
    ],
)
def test_spark_reads_logs_by_line_that_only_hadoop_reaches(content: bytes, url: str, expected: LargeLog | None) -> None:
    assert task_of(content, url=url).large == expected


def test_logs_in_object_stores_are_read_by_the_workers_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PIECE_BYTES", 2_000)
    pieces = tasks_of(TEXT, url="s3://logs/1/a.log")
    assert [(each.start, each.end) for each in pieces][:2] == [(0, 2_000), (2_000, 4_000)]
    found = [row for each in pieces for row in rows_of(parse_task(each))[0]]
    assert found == rows_of(parse_task(replace(pieces[0], end=None)))[0]
    assert len(tasks_of(gzip.compress(TEXT), url="s3://logs/1/a.log.gz")) == 1


def test_a_file_that_changed_is_an_error() -> None:
    ordered = task_of(OPEN)
    _, blocks = next(logs_of(text_source(ordered, OPEN * 2), {0: ordered}))
    with pytest.raises(KafkaQuotasError, match=r"hdfs://logs/1/kafka-request\.log changed while it was read"):
        list(blocks)


@pytest.mark.parametrize(("lost", "faults"), [(0, 0), (1, 1), (200, 1)])
def test_a_damaged_log_counts_up_to_its_damage(lost: int, faults: int) -> None:
    task = task_of(gzip.compress(TEXT), url="hdfs://logs/1/a log.gz")
    (damaged,) = with_damage([task], "[FAILED_READ_FILE.NO_HINT] reading hdfs://logs/1/a%20log.gz. SQLSTATE")
    assert damaged.large is not None
    assert damaged.large.is_damaged
    end = TEXT.rindex(b"\n", 0, len(TEXT) - lost) + 1 if lost else len(TEXT)
    events, quarantine, counts = read_by_lines(damaged, TEXT[:end])
    assert (events, quarantine[faults:]) == rows_of(parse_task(task_of(TEXT[:end], url="hdfs://logs/1/a log.gz")))[:2]
    assert [row[1] for row in quarantine[:faults]] == ["the packed file is damaged: Spark can't read on"] * faults
    assert (counts.read_to, counts.quarantined) == (end, len(quarantine))


@pytest.mark.parametrize("text", ["no room", "[FAILED_READ_FILE.NO_HINT] reading hdfs://logs/1/b.log. SQLSTATE"])
def test_other_errors_mark_no_log_as_damaged(text: str) -> None:
    tasks = [task_of(gzip.compress(TEXT), url="hdfs://logs/1/a.gz"), task_of(TEXT, url="hdfs://logs/1/b.log")]
    assert with_damage(tasks, text) == tasks


def test_names_that_spark_passes_over_are_hidden_at_urls() -> None:
    names = ("_x.log", "a.log", ".b.log", "c.log._COPYING_", "_d=1.log", "_raw/e.log")
    files = [RemoteFile(url=f"s3://logs/1/{name}", size=1, modified_ms=0) for name in names]
    for found in (
        find_files("s3a://logs/{broker_id}/**", lambda _: files),
        find_paths("s3a://logs/1", lambda _: files),
    ):
        assert [Path(str(each.path)).name for each in found] == ["_d=1.log", "e.log", "a.log"]
    with pytest.raises(UsageError, match=r"_x\.log is hidden"):
        list(find_paths("s3a://logs/1/_x.log", lambda _: files))
