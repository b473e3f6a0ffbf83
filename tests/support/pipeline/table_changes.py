"""Compactions and removals on a real Spark session against those of the local engine."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.support.pipeline.events import BASE_MS, events_folder, events_table, random_events

from kafka_quotas.pipeline.engine.progress import ignore_progress
from kafka_quotas.pipeline.ingest.change import remove_rows
from kafka_quotas.pipeline.ingest.compaction import clean_locally, compact, merge_locally
from kafka_quotas.pipeline.ingest.spark_compaction import clean_on_spark, merge_on_spark
from kafka_quotas.pipeline.ingest.spark_removal import remove_rows_on_spark
from kafka_quotas.pipeline.tables.event_files import client_order, sorted_by_client, write_events
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.schemas import CLIENTS, EVENTS, QUARANTINE
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_equal_compaction(session: "SparkSession", folder: Path) -> None:
    """Compare what a compaction by executors leaves with what one on this machine does."""
    rows, found = random_events(900, seed=13), []
    for is_local in (True, False):
        lake = Lake(url=str(events_folder(folder / f"compacted {is_local}", rows, ingests=3)))
        killed = sorted_by_client(events_table(rows[:50], ingest=4))
        lake.commit_files(EVENTS, write_events(lake, killed))
        before = FolderSnapshot.of(lake)
        if is_local:
            merge = partial(merge_locally, before, at_ms=BASE_MS, done=lambda _, __: None)
            clean = partial(clean_locally, lake, retention_hours=0)
        else:
            merge = partial(merge_on_spark, session, before, at_ms=BASE_MS, watch=ignore_progress)
            clean = partial(clean_on_spark, session, lake, retention_hours=0)
        counts = compact(before, at_ms=BASE_MS, random=1, merge=merge, clean=clean)
        after = FolderSnapshot.of(lake)
        events = after.read(EVENTS)
        assert client_order(events) is None
        stored = sorted(events.to_pylist(), key=repr), sorted(after.read(CLIENTS).to_pylist(), key=repr)
        found.append((counts, stored, after.changes["operation"].to_pylist(), lake.table(EVENTS).count()))
    here, there = found
    assert here == there
    assert (len(here[1][0]), here[3]) == (900, 900)


def require_equal_removal(session: "SparkSession", folder: Path) -> None:
    """Compare what is left where an ingest replaces a file: the rows of other files, its own, and counts of clients."""
    names = ("one of ${spark.master}, 'a\\b'", "two", "three")
    rows = [{**row, "src_file": names[number % 3]} for number, row in enumerate(random_events(600, seed=14))]
    faults = [{"src_file": each, "line_no": 1, "reason": "rubbish", "raw": "", "ingest": 1} for each in names]
    unread = pa.Table.from_pylist(faults, schema=QUARANTINE.arrow_schema())
    found = []
    for is_local in (True, False):
        lake = Lake(url=str(events_folder(folder / f"replaced {is_local}", rows, ingests=2)))
        lake.append(QUARANTINE, unread)
        before = FolderSnapshot.of(lake)
        lake.commit_files(EVENTS, write_events(lake, sorted_by_client(events_table(rows[:30], ingest=3))))
        if is_local:
            remove_rows(before, names[:1], ingest=3)
        else:
            remove_rows_on_spark(session, before, names[:1])
        tables = [lake.table(each).to_pyarrow_table().to_pylist() for each in (EVENTS, CLIENTS, QUARANTINE)]
        found.append([sorted(each, key=repr) for each in tables])
    assert found[0] == found[1]
    events, clients, quarantine = found[0]
    assert (len(events), sum(row["events"] for row in clients), len(quarantine)) == (430, 400, 2)
