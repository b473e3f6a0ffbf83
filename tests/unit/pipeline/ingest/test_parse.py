"""Tasks over parts of a log: how they are cut, and what they know of the lines before them."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.pipeline.logs import request_line

from kafka_quotas.pipeline.formats.task import EventRow, IngestTask
from kafka_quotas.pipeline.ingest import plan
from kafka_quotas.pipeline.ingest.ingested_tables import parse_task
from kafka_quotas.pipeline.ingest.plan import IngestSettings, KnownFiles, plan_ingest
from kafka_quotas.pipeline.ingest.sources import FoundFile, inspect_files

SETTINGS = IngestSettings(cluster="c", broker_id=1, zone="Europe/Berlin")
MINUTES = [f"{minute // 60:02}:{minute % 60:02}" for minute in (*range(90, 180), *range(120, 200))]
LOG = "".join(request_line(stamp=f"[2026-10-25 {minute}:00,000]") for minute in MINUTES)
"""A line a minute from 01:30 over the hour that is there twice to 03:19."""


def tasks_of(log: Path) -> tuple[IngestTask, ...]:
    inspected = inspect_files([FoundFile(path=log)], input_format=None)
    return plan_ingest(inspected, settings=SETTINGS, known=KnownFiles(())).tasks()


def events(*tasks: IngestTask) -> list[EventRow]:
    found = [
        row
        for task in tasks
        for parsed in parse_task(task)
        for row in [*parsed.events, *(EventRow(**row) for each in parsed.event_batches for row in each.to_pylist())]
    ]
    return sorted(found, key=lambda row: row.src_offset)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_log_is_cut_where_its_times_have_one_meaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> None:
    log = tmp_path / "kafka-request.log"
    log.write_text(LOG, encoding="utf-8")
    monkeypatch.setattr(plan, "PIECE_BYTES", 5000)
    tasks = [replace(task, is_compiled=is_compiled) for task in tasks_of(log)]
    assert len(tasks) > 5
    times_ms = [row.ts_ms for row in events(*tasks)]
    assert [later - earlier for earlier, later in pairwise(times_ms)] == [60_000] * 169


@pytest.mark.parametrize("is_compiled", [False, True])
def test_what_a_log_has_grown_by_is_read_as_with_the_whole(tmp_path: Path, is_compiled: bool) -> None:
    log = tmp_path / "kafka-request.log"
    log.write_text(LOG, encoding="utf-8")
    (task,) = (replace(each, is_compiled=is_compiled) for each in tasks_of(log))
    whole = events(task)
    for start in (whole[100].src_offset, whole[160].src_offset):
        assert events(replace(task, start=start)) == [row for row in whole if row.src_offset >= start]
