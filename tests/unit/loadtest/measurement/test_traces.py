"""Slots of time: exact sums in bounded memory, quota windows told apart."""

from hypothesis import given
from hypothesis import strategies as st

from kafka_quotas.loadtest.measurement.recorder import Recorder, RecorderRoom, room_for
from kafka_quotas.loadtest.measurement.traces import Timeline

MS = 1_000_000


def test_a_second_is_a_slot_and_a_window_is_a_whole_number_of_them() -> None:
    timeline = Timeline(window_ms=3000)
    for t_ms, size in ((0, 1), (999, 2), (1000, 4), (2999, 8), (3000, 16), (9500, 32)):
        timeline.at(t_ms).size += size

    assert [(slot.start_ms, slot.size) for slot in timeline.slots()] == [
        (0, 3),
        (1000, 4),
        (2000, 8),
        (3000, 16),
        (9000, 32),
    ]
    assert [(slot.start_ms, slot.size) for slot in timeline.windows()] == [(0, 15), (3000, 16), (9000, 32)]


@given(steps=st.lists(st.integers(0, 5000), max_size=200), limit=st.integers(2, 12))
def test_a_long_run_has_coarser_slots_and_the_same_sums(steps: list[int], limit: int) -> None:
    timeline = Timeline(window_ms=3000, max_slots=limit)
    now = 0
    for step_ms in steps:
        now += step_ms
        slot = timeline.at(now)
        slot.records += 1
        slot.throttle_max_ms = max(slot.throttle_max_ms, now)

    slots = timeline.slots()
    assert len(slots) <= limit
    assert sum(slot.records for slot in slots) == len(steps)
    assert all(slot.start_ms % timeline.slot_ms == 0 for slot in slots)
    assert timeline.slot_ms == 1000 or timeline.slot_ms % 3000 == 0
    assert max((slot.throttle_max_ms for slot in slots), default=0) == (now if steps else 0)


def test_each_response_counts_and_only_throttle_times_above_0_are_throttles() -> None:
    recorder = Recorder(start_ns=0, measure_from_ns=0, window_ms=2000)
    for t_ms, charged, throttle_ms in ((100, 500, 0), (200, 700, 40), (2500, 300, 0)):
        recorder.response(t_ms * MS, charged=charged, throttle_ms=throttle_ms)

    throttle = recorder.throttle
    assert (throttle.responses, throttle.count, throttle.sum_ms) == (3, 1, 40.0)
    assert throttle.avg_ms == 40 / 3
    assert [(each.t_ms, each.charged, each.throttle_ms) for each in recorder.responses] == [
        (100, 500, 0),
        (200, 700, 40),
        (2500, 300, 0),
    ]
    first, second = recorder.timeline.windows()
    assert (first.responses, first.charged, first.throttle_sum_ms, first.throttle_max_ms) == (2, 1200, 40, 40)
    assert (second.responses, second.throttle_sum_ms, second.throttle_max_ms) == (1, 0, 0)


def test_responses_that_librdkafka_counts_join_the_throttle_times_it_tells() -> None:
    recorder = Recorder(start_ns=0, measure_from_ns=0)
    recorder.throttled(100 * MS, 30)
    assert recorder.throttle.avg_ms is None

    recorder.responded(500 * MS, 10)
    recorder.responded(1500 * MS, 15)

    assert recorder.throttle.avg_ms == 2.0
    assert [slot.responses for slot in recorder.timeline.slots()] == [10, 5]


def test_a_full_trace_of_responses_keeps_the_first_ones() -> None:
    recorder = Recorder(start_ns=0, measure_from_ns=0, room=RecorderRoom(responses=2))
    for t_ms in (10, 20, 30):
        recorder.response(t_ms * MS, charged=1, throttle_ms=0)

    assert [each.t_ms for each in recorder.responses] == [10, 20]
    assert recorder.response_count == 3


def test_what_failed_or_was_dropped_is_in_the_slot_of_its_time() -> None:
    recorder = Recorder(start_ns=0, measure_from_ns=0)
    recorder.dropped(2)
    recorder.acknowledged(3000 * MS, records=1, size=10)
    recorder.failed("TIMED_OUT", 3)

    assert (recorder.dropped_count, dict(recorder.failures)) == (2, {"TIMED_OUT": 3})
    assert [(slot.dropped, slot.failed) for slot in recorder.timeline.slots()] == [(2, 0), (0, 3)]


def test_a_day_of_a_thousand_throttled_responses_a_minute_stays_within_its_room() -> None:
    room = room_for(1000)
    recorder = Recorder(start_ns=0, measure_from_ns=0, room=room)
    for minute in range(24 * 60):
        for tick in range(20):
            now_ns = (minute * 60_000 + tick * 3000) * MS
            recorder.response(now_ns, charged=100, throttle_ms=tick)
            recorder.acknowledged(now_ns, records=1, size=100)
            recorder.latency(intended_ns=now_ns - tick * MS, sent_ns=now_ns - MS, acked_ns=now_ns)

    assert recorder.acked == recorder.response_count == 24 * 60 * 20
    assert len(recorder.trace.entries()) <= room.entries
    assert len(recorder.timeline.slots()) <= room.slots
    assert len(recorder.responses) == room.responses
    assert recorder.charged == sum(slot.charged for slot in recorder.timeline.slots())
