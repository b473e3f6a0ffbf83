"""Packed rows of events: what is packed comes back, and readers leave out what they need not read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.support.pipeline.events import (
    BASE_MS,
    commit_events,
    event_files,
    events_folder,
    events_table,
    open_packed,
    random_events,
)

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.tables import packed_events, staged_files
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.packed_events import PackedEvents, event_counts, pack, unpack
from kafka_quotas.pipeline.tables.schemas import EVENTS, PACKED_EVENTS


def loose(rows: pa.RecordBatch | pa.Table) -> list[dict[str, object]]:
    return sorted(unpack(rows, EVENTS.column_names).to_pylist(), key=repr)


@pytest.mark.parametrize("most", [1 << 16, 7])
def test_what_is_packed_comes_back(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(packed_events, "ROW_EVENTS", most)
    events = events_table(random_events(500, seed=3, seconds=9_000))
    packed = pack(events)
    assert packed.schema.equals(PACKED_EVENTS.arrow_schema())
    assert loose(packed) == sorted(events.to_pylist(), key=repr)
    counts = event_counts(packed)
    assert packed["events"].to_pylist() == counts.tolist()
    assert counts.max() <= most
    assert packed.num_rows < events.num_rows or most == 7


def test_no_events_are_no_rows() -> None:
    packed = pack(events_table([]))
    assert (packed.num_rows, unpack(packed, ["user", "ts_ms"]).num_rows) == (0, 0)


def test_events_of_one_time_stay_in_their_order() -> None:
    events = events_table([{"bytes": size} for size in (5, 3, 4)])
    assert pack(events)["bytes"].to_pylist() == [[5, 3, 4]]


def test_two_clients_with_one_number_are_refused() -> None:
    events = events_table([{"user": "alice"}, {"user": "bob"}])
    same = events.set_column(events.schema.get_field_index("client"), "client", pa.array([1, 1]))
    with pytest.raises(KafkaQuotasError, match="two clients have one number"):
        pack(same)


def test_rows_are_read_by_day_client_and_time_at_any_version(tmp_path: Path) -> None:
    hour_ms, lake = 3_600_000, Lake(url=str(tmp_path))
    first = commit_events(lake, [{"user": "alice"}, {"user": "bob", "ts_ms": BASE_MS + 30 * hour_ms}], file="one")
    commit_events(lake, [{"user": "carol", "ts_ms": BASE_MS + hour_ms}], file="two")
    now, before = PackedEvents(lake), PackedEvents(lake, first)
    assert (len(event_files(now)), len(event_files(before))) == (3, 2)
    later = ds.field("hour") > pa.scalar(BASE_MS * 1000, pa.timestamp("us", "UTC"))
    assert now.table(["user"], later)["user"].to_pylist() == ["carol", "bob"]
    assert before.table(["user"], later)["user"].to_pylist() == ["bob"]
    assert now.table(["user", "ts_ms"], ds.field("user") == "alice").to_pylist() == [
        {"user": "alice", "ts_ms": [BASE_MS]}
    ]
    with pytest.raises(UsageError, match="has no version 9: there are 0 to 2"):
        PackedEvents(lake, 9)


def test_row_groups_have_about_as_many_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_files, "_GROUP_EVENTS", 50)
    (file,) = event_files(open_packed(events_folder(tmp_path, random_events(600, seed=5))))
    metadata = pq.read_metadata(file)
    assert 4 < metadata.num_row_groups <= 13
    assert metadata.num_rows == pq.read_table(file, columns=["events"]).num_rows
