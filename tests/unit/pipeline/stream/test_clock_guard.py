"""Events from the future: set aside, by the time at which their batch was first taken."""

from pathlib import Path

import pyarrow as pa
from tests.support.pipeline.events import BASE_MS, events_table, proposal

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.pipeline.stream.clock_guard import AHEAD_MS, taken_ms, without_future
from kafka_quotas.pipeline.stream.state import LiveState


def charges(*times_ms: int) -> pa.Table:
    return events_table([{"ts_ms": each, "bytes": 10, "src_offset": number} for number, each in enumerate(times_ms)])


def test_an_event_from_the_future_does_not_make_later_ones_late() -> None:
    quotas = proposal("in force", (Entity.of(user="alice"), {"producer_byte_rate": 100.0}))
    state = LiveState(quotas, lateness_ms=5_000)
    nine_years_ms = 9 * 365 * 86_400_000
    kept, refused = without_future(charges(BASE_MS, BASE_MS + nine_years_ms, BASE_MS + AHEAD_MS), BASE_MS)
    assert kept["ts_ms"].to_pylist() == [BASE_MS, BASE_MS + AHEAD_MS]
    assert refused["reason"].to_pylist() == ["its time is 283,824,000 s in the future"]
    assert str(BASE_MS + nine_years_ms) in refused["raw"].to_pylist()[0]
    state.take(kept, batch_id=0)
    later, none = without_future(charges(BASE_MS + AHEAD_MS + 1_000), BASE_MS + AHEAD_MS)
    assert none.num_rows == 0
    assert state.take(later, batch_id=1)["late_events"].to_pylist() == [0]


def test_a_batch_that_is_run_again_is_judged_by_its_first_time(tmp_path: Path) -> None:
    clock = iter(range(1_000, 2_000))
    state = tmp_path / "state"
    first = taken_ms(state, 0, lambda: next(clock))
    assert taken_ms(state, 0, lambda: next(clock)) == first == 1_000
    assert [taken_ms(state, number, lambda: next(clock)) for number in range(1, 6)] == [
        1_001,
        1_002,
        1_003,
        1_004,
        1_005,
    ]
    assert len(list(state.iterdir())) == 3
