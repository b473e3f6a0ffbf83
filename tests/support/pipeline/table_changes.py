"""Removals on a real Spark session against those of the local engine."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.support.pipeline.events import events_folder, events_table, random_events

from kafka_quotas.pipeline.ingest.change import remove_rows
from kafka_quotas.pipeline.ingest.spark_engine import remove_rows_on_spark
from kafka_quotas.pipeline.tables.event_files import sorted_by_client, write_events
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.schemas import CLIENTS, EVENTS, QUARANTINE
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
