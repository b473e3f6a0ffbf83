"""The live state of a stream: Kafka's arithmetic over batches, late events, and the same again after a crash."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.pipeline.events import proposal

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.pipeline.stream.lines import read_charges
from kafka_quotas.pipeline.stream.sink import replace_batch
from kafka_quotas.pipeline.stream.state import LiveState
from kafka_quotas.pipeline.tables.schemas import CHARGE_COLUMNS, EVENTS, LIVE

START_MS = 1_795_262_400_000
STORED = [
    (Entity.of(user="alice"), {"producer_byte_rate": 20_000.0, "request_percentage": 5.0}),
    (Entity.of(user=None, client_id=None), {"producer_byte_rate": 50_000.0}),
]
SCHEMA = pa.schema([(each.name, each.type) for each in EVENTS.arrow_schema() if each.name in CHARGE_COLUMNS])


def event(ts_ms: int, **fields: Any) -> dict[str, Any]:
    return {
        "cluster": "c",
        "broker_id": 1,
        "ts_ms": START_MS + ts_ms,
        "user": "alice",
        "client_id": "app",
        "quota_type": "produce",
        "bytes": 1000,
        "thread_ms": None,
        "mutations": 0,
        "throttle_ms": 0,
        "is_exempt": False,
    } | fields


def batch(events: Iterable[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(events), schema=SCHEMA)


def state(*, lateness_ms: int = 5000, window: QuotaWindow | None = None) -> LiveState:
    return LiveState(proposal("stored", *STORED), lateness_ms=lateness_ms, window=window or QuotaWindow())


def traffic(seed: int, *, first_ms: int, count: int = 400) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    times = sorted(first_ms + each for each in chance.sample(range(2000), count))
    return [
        event(
            at,
            user=chance.choice(("alice", "bob")),
            client_id=chance.choice("xy"),
            bytes=chance.randrange(5000),
            thread_ms=chance.random(),
        )
        for at in times
    ]


def by_bucket(rows: pa.Table) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {(row["quota_type"], row["user"], row["client_id"]): row for row in rows.to_pylist()}


def test_throttle_times_are_those_of_kafkas_own_arithmetic() -> None:
    live = state()
    managers = {each: ClientQuotaManager(each) for each in (QuotaType.PRODUCE, QuotaType.REQUEST)}
    for entity, quotas in STORED:
        for manager in managers.values():
            if manager.quota_type.key.name in quotas:
                manager.update_quota(entity, quotas[manager.quota_type.key.name])
    for number in range(4):
        events = traffic(number, first_ms=number * 2000)
        rows = by_bucket(live.take(batch(events), batch_id=number))
        expected: dict[tuple[str, str, str], list[int]] = {}
        for each in events:
            for quota_type, amount in (
                (QuotaType.PRODUCE, each["bytes"]),
                (QuotaType.REQUEST, each["thread_ms"] * 0.1),
            ):
                manager = managers[quota_type]
                throttle_ms = manager.record_and_throttle_ms(each["user"], each["client_id"], amount, each["ts_ms"])
                bucket = manager.limiter(each["user"], each["client_id"]).bucket
                assert bucket is not None
                expected.setdefault((quota_type.value, *bucket), []).append(throttle_ms)
        assert {key: (row["events"], row["throttled_events"], row["throttle_ms"]) for key, row in rows.items()} == {
            key: (len(times), sum(each > 0 for each in times), sum(times)) for key, times in expected.items()
        }
    assert any(row["throttled_events"] for row in rows.values())


def test_a_bucket_that_is_held_back_says_until_when() -> None:
    rows = state().take(batch(event(number * 10, bytes=100_000) for number in range(5)), batch_id=0)
    (row,) = rows.to_pylist()
    assert (row["user"], row["client_id"], row["quota"], row["ts_ms"]) == ("alice", "", 20_000.0, START_MS + 40)
    assert row["throttled_until_ms"] == START_MS + 40 + round((row["rate"] - 20_000) / 20_000 * 10_040)
    quiet = state().take(batch([event(0)]), batch_id=0).to_pylist()[0]
    assert (quiet["throttled_events"], quiet["throttled_until_ms"]) == (0, None)


def test_events_that_come_too_late_are_counted_and_not_reckoned_with() -> None:
    live = state(lateness_ms=1000)
    live.take(batch([event(10_000), event(10_000, broker_id=2)]), batch_id=0)
    late = [event(8_999), event(8_000, bytes=7)]
    in_time = [event(9_000), event(1, broker_id=3)]  # a broker that was never heard of has no clock yet
    rows = live.take(batch([*late, *in_time]), batch_id=1).to_pylist()
    figures = {
        row["broker_id"]: (row["events"], row["late_events"], row["late_amount"], row["total_events"]) for row in rows
    }
    assert figures == {1: (1, 2, 1007.0, 4), 3: (1, 0, 0.0, 1)}
    assert next(row for row in rows if row["broker_id"] == 1)["ts_ms"] == START_MS + 10_000  # time does not go back


def test_exempt_events_are_charged_to_nobody() -> None:
    assert state().take(batch([event(0, is_exempt=True)]), batch_id=0).num_rows == 0


def test_an_empty_batch_has_no_rows_and_changes_nothing(tmp_path: Path) -> None:
    live = state()
    assert live.take(batch([]), batch_id=0).num_rows == 0
    live.save(tmp_path, batch_id=0)
    again = state()
    again.load(tmp_path, before=1)
    assert again.take(batch([event(5)]), batch_id=1).num_rows == 1


@pytest.mark.parametrize("crashed_at", [1, 2, 3])
def test_a_batch_that_is_run_again_after_a_crash_gives_the_same_rows(tmp_path: Path, crashed_at: int) -> None:
    batches = [batch(traffic(number, first_ms=number * 2000)) for number in range(4)]
    whole = state()
    expected = []
    for number, events in enumerate(batches):
        expected.append(whole.take(events, batch_id=number))
        whole.save(tmp_path, batch_id=number)
    assert len(list(tmp_path.glob("batch=*"))) == 3  # older ones are cleared away
    resumed = state()
    resumed.load(tmp_path, before=crashed_at + 1)  # what Spark runs next: the state of this very batch may be there
    assert [
        resumed.take(batches[number], batch_id=number).equals(expected[number]) for number in range(crashed_at + 1, 4)
    ] == [True] * (3 - crashed_at)


def test_a_checkpoint_that_lacks_the_state_says_so(tmp_path: Path) -> None:
    with pytest.raises(KafkaQuotasError, match="lacks the state of batch 6"):
        state().load(tmp_path, before=7)
    (tmp_path / "batch=6.npz").write_bytes(b"PK and rubbish")
    with pytest.raises(KafkaQuotasError, match="cannot read"):
        state().load(tmp_path, before=7)


def test_a_state_of_another_window_is_not_taken_for_this_one(tmp_path: Path) -> None:
    live = state()
    live.take(batch([event(0)]), batch_id=0)
    live.save(tmp_path, batch_id=0)
    with pytest.raises(KafkaQuotasError, match="another quota window"):
        state(window=QuotaWindow(samples=3)).load(tmp_path, before=1)


def test_a_batch_replaces_what_it_left_before(tmp_path: Path) -> None:
    for rows in (5, 2):
        replace_batch(tmp_path, pa.table({"n": list(range(rows))}), batch_id=3)
    assert [path.name for path in tmp_path.iterdir()] == ["batch=3"]
    assert pq.read_table(tmp_path / "batch=3" / "part-0.parquet").num_rows == 2


def test_files_of_events_are_read_by_the_names_that_spark_gives_them(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    events = batch([event(5), event(6, user="bob")])
    columns = list(reversed(events.column_names))  # whatever order a file has
    pq.write_table(events.select(columns).append_column("ip", [["", ""]]), folder / "part-0.parquet")
    pq.write_table(pa.table({"raw": ["rubbish"], "reason": ["it is"]}), folder / "quarantine.parquet")
    names = [(folder / name).as_uri() for name in ("part-0.parquet", "quarantine.parquet")]
    found = read_charges(names)
    assert found.column_names == events.column_names
    assert found.to_pylist() == events.to_pylist()
    assert read_charges([]).num_rows == 0


def test_rows_have_the_declared_schema() -> None:
    assert state().take(batch([event(0)]), batch_id=0).schema == LIVE.arrow_schema()


def test_twenty_thousand_buckets_in_one_batch() -> None:
    events = [event(number // 100, user=f"u{number}", client_id="") for number in range(20_000)]
    rows = state().take(batch(events), batch_id=0)
    assert rows.num_rows == 20_000
    assert set(rows["total_events"].to_pylist()) == {1}
