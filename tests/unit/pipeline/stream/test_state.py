"""The live state of a stream: Kafka's arithmetic over batches, late events, and the same from any number of parts."""

import random
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from tests.support.pipeline.events import proposal

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.stream.state import Partitioner, PartState
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


class Stream:
    """The parts of a stream's state, each kept as bytes from batch to batch."""

    def __init__(self, *, lateness_ms: int = 5000, parts: int = 3, quotas: Proposal | None = None) -> None:
        self.quotas = quotas or proposal("stored", *STORED)
        self._lateness_ms = lateness_ms
        self.parts: list[bytes | None] = [None] * parts
        self.clocks_ms: dict[tuple[str, int], int] = {}

    def take(self, events: pa.Table, *, batch_id: int) -> pa.Table:
        """The rows of a batch."""
        pieces = list(Partitioner(self.quotas, parts=len(self.parts)).pieces([events]))
        horizons = {broker: at_ms - self._lateness_ms for broker, at_ms in self.clocks_ms.items()}
        tables = []
        for part, content in enumerate(self.parts):
            state = PartState(self.quotas, window=QuotaWindow())
            if content is not None:
                state.load(content)
            own = [piece for number, piece in pieces if number == part]
            tables.append(state.take(own, horizons, batch_id=batch_id))
            self.parts[part] = state.dump()
            for broker, at_ms in state.clocks_ms().items():
                self.clocks_ms[broker] = max(at_ms, self.clocks_ms.get(broker, 0))
        return pa.concat_tables(tables).sort_by([(name, "ascending") for name in LIVE.column_names[2:7]])


def state(*, lateness_ms: int = 5000) -> Stream:
    return Stream(lateness_ms=lateness_ms)


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
                manager.limits.update(entity, quotas[manager.quota_type.key.name])
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


def test_an_empty_batch_has_no_rows_and_changes_nothing() -> None:
    live = state()
    assert live.take(batch([]), batch_id=0).num_rows == 0
    assert live.take(batch([event(5)]), batch_id=1).num_rows == 1


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_rows_do_not_depend_on_the_number_of_parts(parts: int) -> None:
    one, several = Stream(parts=1, lateness_ms=500), Stream(parts=parts, lateness_ms=500)
    late = 0
    for number in range(4):
        events = batch([*traffic(number, first_ms=number * 2000), event(number * 500, user="bob")])
        expected = one.take(events, batch_id=number)
        assert several.take(events, batch_id=number).to_pylist() == expected.to_pylist()
        late += sum(expected["late_events"].to_pylist())
    assert late > 0


def test_other_quotas_hold_from_the_next_batch_on() -> None:
    live = state()
    live.take(batch([event(0, bytes=5_000)]), batch_id=0)
    live.quotas = proposal("changed", (Entity.of(user="alice"), {"producer_byte_rate": 100.0}))
    (row,) = live.take(batch([event(1, bytes=5_000)]), batch_id=1).to_pylist()
    assert (row["quota"], row["total_events"], row["throttled_events"]) == (100.0, 2, 1)


def test_rows_have_the_declared_schema() -> None:
    assert state().take(batch([event(0)]), batch_id=0).schema == LIVE.arrow_schema()


def test_twenty_thousand_buckets_in_one_batch() -> None:
    events = [event(number // 100, user=f"u{number}", client_id="") for number in range(20_000)]
    rows = state().take(batch(events), batch_id=0)
    assert rows.num_rows == 20_000
    assert set(rows["total_events"].to_pylist()) == {1}
