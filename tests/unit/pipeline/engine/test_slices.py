"""Packed rows as slices of tasks: whole seconds, whole buckets, in order, however small a slice is."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.pipeline.events import BASE_MS, events_folder, events_table, open_packed, random_events

from kafka_quotas.pipeline.engine.events import recorded_events
from kafka_quotas.pipeline.engine.slices import SLICE_EVENTS, ClientRange, client_ranges, ordered_rows, tasks
from kafka_quotas.pipeline.engine.sql import DuckTables
from kafka_quotas.pipeline.tables.packed_events import PackedEvents, pack, shared_shift

COLUMNS = ("cluster", "broker_id", "user", "client_id", "ts_ms", "bytes")
EVERYBODY = 63


def rows_of(tables: Iterable[pa.Table]) -> list[tuple]:
    return sorted(tuple(row[name] for name in COLUMNS) for each in tables for row in each.to_pylist())


def slices_of(
    packed: PackedEvents, clients: ClientRange, *, shift: int, most: int = SLICE_EVENTS
) -> list[list[pa.Table]]:
    """The slices of each task over a range of clients."""
    rows = ordered_rows(packed, clients, COLUMNS, most=most)
    return [list(each) for each in tasks(rows, COLUMNS, shift=shift, most=most)]


def test_ranges_keep_clients_together_that_may_share_a_quota(tmp_path: Path) -> None:
    events = open_packed(events_folder(tmp_path / "data", random_events(500)))
    for columns, names in (
        (("cluster", "broker_id", "user"), ("broker_id", "user")),
        (("cluster", "broker_id"), ("broker_id",)),
    ):
        shift = shared_shift(columns)
        ranges = client_ranges(events, shift=shift, workers=1)
        assert sum(each.events for each in ranges) == 500
        place: dict[object, int] = {}
        for number, each in enumerate(ranges):
            (own,) = slices_of(events, each, shift=shift)
            for row in (row for table in own for row in table.to_pylist()):
                assert place.setdefault(tuple(row[name] for name in names), number) == number


def test_slices_hold_whole_seconds_in_order_however_small_they_are(tmp_path: Path) -> None:
    rows = random_events(1_500, seed=2, seconds=300) + random_events(1_500, seed=3, seconds=20)
    events = open_packed(events_folder(tmp_path / "data", rows, ingests=4))
    (everybody,) = client_ranges(events, shift=EVERYBODY, workers=1)
    ((whole,),) = slices_of(events, everybody, shift=EVERYBODY)
    (slices,) = slices_of(events, everybody, shift=EVERYBODY, most=100)
    assert len(slices) > 1
    assert rows_of(slices) == rows_of([whole]) == sorted(rows_of([events_table(rows)]))
    for before, after in pairwise(each["ts_ms"].to_numpy() // 1000 for each in slices):
        assert before.max() < after.min()


@pytest.mark.parametrize("shift", [0, EVERYBODY])
@pytest.mark.parametrize("most", [50, 100_000])
def test_tasks_of_a_partition_have_whole_buckets_and_giants_come_in_slices(shift: int, most: int) -> None:
    events = events_table(random_events(2_000, seed=5, clients=40, seconds=9_000))
    packed = pa.Table.from_batches([pack(events)])
    groups = pa.array(packed["client"].to_numpy() >> shift)
    ordered = packed.append_column("group", groups).sort_by([("group", "ascending"), ("first_at", "ascending")])
    batches = ordered.combine_chunks().to_batches(max_chunksize=7)
    seen: list[pa.Table] = []
    owners: dict[int, int] = {}
    for number, slices in enumerate(tasks(batches, COLUMNS, shift=shift, most=most)):
        last = -1
        for each in slices:
            seen.append(each)
            for client in set(each["client"].to_pylist()):
                assert owners.setdefault(client, number) == number
            times = each["ts_ms"].to_numpy() // 1000
            assert times.min() > last or most > 2_000 or shift == 0
            last = times.max()
    assert rows_of(seen) == rows_of([events])
    assert len(seen) == (1 if most > 2_000 else len(seen))


def test_gaps_of_more_than_half_an_hour_are_not_recorded() -> None:
    def seconds(times: list[int], *more: dict[str, Any]) -> int:
        rows = pack(events_table([*({"ts_ms": BASE_MS + at_ms} for at_ms in times), *more]))
        tables = DuckTables()
        return recorded_events(tables, tables.add("events", pa.Table.from_batches([rows]))).seconds

    assert seconds([0, 59_000, 1_800_000 + 59_000, 5_400_000, 5_460_000]) == 1860 + 61
    assert seconds([]) == 1
    assert seconds([40_000, 0], {"ts_ms": BASE_MS + 5_000, "user": "zoe"}) == 41, "rows of a batch are by client"
    assert seconds([0, 1_200_000, 2_400_000]) == 2_401, "a row says its first and last event alone"
    assert seconds([0, 2_400_000], {"ts_ms": BASE_MS + 2_399_000, "user": "zoe"}) == 1 + 2


def test_clocks_that_jump_are_put_in_order(tmp_path: Path) -> None:
    times = BASE_MS + np.random.default_rng(3).permutation(np.arange(900)) * 977
    times[5] = BASE_MS + 400 * 86_400_000
    events = open_packed(events_folder(tmp_path / "data", [{"ts_ms": int(time)} for time in times], ingests=3))
    (own,) = client_ranges(events, shift=0, workers=1)
    (slices,) = slices_of(events, own, shift=0)
    assert sorted(pa.concat_tables(slices)["ts_ms"].to_pylist()) == sorted(times.tolist())
