"""Compaction: few large sorted files for many small ones, and no rows of ingests that were killed.

A compaction is a change like an ingest. Readers that began before it keep the files that they read, until these are
older than the retention.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.ingest.change import Change, began_ms, ingest_id
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.client_ranges import EventTable
from kafka_quotas.pipeline.tables.event_files import sorted_by_client, write_events
from kafka_quotas.pipeline.tables.lake import DATA_TABLES, PARTITION, ConflictError, Lake, lake_errors
from kafka_quotas.pipeline.tables.schemas import EVENTS, INGESTS
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot

_DEAD_AFTER_MS: Final = 24 * 3600 * 1000
"""Time after which an ingest that is not among the changes is taken for killed."""


def compact(
    before: FolderSnapshot, *, at_ms: int, random: int, merge: Callable[[], None], clean: Callable[[], int]
) -> tuple[int, int, int]:
    """Compact the tables and return the numbers of files before, after, and of deleted ones.

    Args:
        before: The folder.
        at_ms: The time in ms since 1970.
        random: A random number for the change's own.
        merge: Merges the files of all tables, on one of the engines.
        clean: Deletes files that are not needed, and returns their number.

    Raises:
        KafkaQuotasError: The tables can't be changed, or another change came in between.
    """
    lake = before.lake
    count = _files(lake)
    try:
        merge()
        Change(ingest=ingest_id(at_ms, random), operation="compact", at_ms=at_ms).commit(before)
    except ConflictError as error:
        raise KafkaQuotasError(
            f"another change of {lake.shown()} came in between", hint="nothing is lost; compact again"
        ) from error
    with suppress(ConflictError), lake_errors(f"compacting {lake.shown(INGESTS)}"):  # another compaction did it
        lake.table(INGESTS).optimize.compact()
    removed = clean()
    return count, _files(lake), removed


def merge_locally(before: FolderSnapshot, *, at_ms: int, done: Callable[[int, int], None]) -> None:
    """Merge the files of all tables in this process, and drop rows of killed ingests.

    `done` is called with the number of merged days and of all.

    Raises:
        ConflictError: Another change came in between.
        KafkaQuotasError: The tables can't be changed.
    """
    lake = before.lake
    for table in DATA_TABLES:
        if table is not EVENTS:
            _drop_dead(before, table, at_ms)
            with lake_errors(f"compacting {lake.shown(table)}"):
                lake.table(table).optimize.compact()
    _merge_days(before, at_ms, done)


def clean_locally(lake: Lake, *, retention_hours: int) -> int:
    """Delete files that no change of the last hours needs, and return their number.

    Raises:
        KafkaQuotasError: The files can't be deleted.
    """
    removed = 0
    for table in (*DATA_TABLES, INGESTS):
        with lake_errors(f"cleaning up {lake.shown(table)}"):
            removed += len(lake.table(table).vacuum(retention_hours, dry_run=False, enforce_retention_duration=False))
    return removed


def _files(lake: Lake) -> int:
    return sum(pa.table(lake.table(table).get_add_actions()).num_rows for table in (*DATA_TABLES, INGESTS))


def _drop_dead(before: FolderSnapshot, table: Any, at_ms: int) -> None:
    stored = before.lake.table(table).to_pyarrow_table(columns=["ingest"])["ingest"]
    if dead := dead_ingests(before, pc.unique(stored).to_pylist(), at_ms):
        before.lake.delete(table, f"ingest in ({', '.join(map(str, sorted(dead)))})")


def dead_ingests(before: FolderSnapshot, stored: Iterable[int], at_ms: int) -> set[int]:
    """Return which of the ingests that have stored rows were killed, at a time in ms since 1970."""
    return {each for each in set(stored) - set(before.ingests) if began_ms(each) < at_ms - _DEAD_AFTER_MS}


def _merge_days(before: FolderSnapshot, at_ms: int, done: Callable[[int, int], None]) -> None:
    """Write the files of each day that has several anew, by client and time, without dead rows.

    Rows of ingests that may still be under way stay in their files.
    """
    lake = before.lake
    files = pa.table(lake.table(EVENTS).get_add_actions(flatten=True))
    if not files.num_rows:
        return
    is_known = pc.is_in(files["min.ingest"], value_set=pa.array(before.ingests, pa.int64()))
    dead = dead_ingests(before, files["min.ingest"].to_pylist(), at_ms)
    is_dead = pc.is_in(files["min.ingest"], value_set=pa.array(sorted(dead), pa.int64()))
    lake.commit_files(EVENTS, [], removed=files.filter(is_dead)["path"].to_pylist())
    known = files.filter(is_known)
    days = sorted(pc.unique(known[f"partition.{PARTITION}"]).to_pylist())
    events = EventTable(before)
    for number, day in enumerate(days, start=1):
        own = known.filter(pc.equal(known[f"partition.{PARTITION}"], pa.scalar(day)))
        if own.num_rows > 1:
            added = []
            for clients in events.ranges(shift=0, workers=1):
                within = (ds.field("client") >= clients.first) & (ds.field("client") <= clients.last)
                rows = before.dataset(EVENTS).to_table(filter=within & (ds.field(PARTITION) == pa.scalar(day)))
                added += write_events(lake, sorted_by_client(rows)) if rows.num_rows else []
            lake.commit_files(EVENTS, added, removed=own["path"].to_pylist(), is_new=False)
        done(number, len(days))
