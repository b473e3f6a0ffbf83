"""Answers that are sorted in together give the figures of answers that are recorded one by one."""

import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quotas.loadtest.measurement import recorder as recorder_module
from kafka_quotas.loadtest.measurement.recorder import Recorder, RecorderRoom, room_for

MS = 1_000_000
FROM_NS = 700 * MS
SMALL = RecorderRoom(entries=40, slots=5, responses=150, waiting=100)

Answer = tuple[int, int, int, int, int, int]
"""Nanoseconds since the last one, throttle time, broker, records, time on the way, and how late it was sent."""
ANSWERS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 3 * MS), st.integers(0, 900 * MS)),
        st.one_of(st.just(0), st.integers(0, 30_000)),
        st.integers(0, 2),
        st.integers(1, 9),
        st.one_of(st.integers(0, 5 * MS), st.integers(0, 2**42), st.just(2**61)),
        st.integers(0, 2**33),
    ),
    min_size=1,
    max_size=40,
)
COPIES = st.sampled_from([1, 9, 70])


def _one_by_one(seen: Recorder, now_ns: int, answer: Answer) -> None:
    _, throttle_ms, broker, records, way_ns, late_ns = answer
    seen.response(now_ns, charged=records * 7, throttle_ms=throttle_ms, broker=broker)
    seen.acknowledged(now_ns, records=records, size=records * 5)
    sent_ns = now_ns - way_ns
    seen.latency(intended_ns=sent_ns - late_ns, sent_ns=sent_ns, acked_ns=now_ns, count=records)


def _together(seen: Recorder, now_ns: int, answer: Answer) -> None:
    _, throttle_ms, broker, records, way_ns, late_ns = answer
    seen.answered(
        now_ns,
        charged=records * 7,
        throttle_ms=throttle_ms,
        broker=broker,
        records=records,
        size=records * 5,
        intended_ns=now_ns - way_ns - late_ns,
        sent_ns=now_ns - way_ns,
    )


def _figures(seen: Recorder) -> dict[str, Any]:
    """All that a recorder has."""
    histograms = (seen.service_times, seen.schedule_delays, seen.response_times, seen.throttle_times)
    return {
        "histograms": [(sorted(each.counts.items()), each.summary()) for each in histograms],
        "traces": [(trace.resolution_ms, trace.entries()) for trace in (seen.trace, seen.charges)],
        "responses": list(seen.responses),
        "timeline": (seen.timeline.slot_ms, [asdict(slot) for slot in seen.timeline.slots()]),
        "counts": (seen.acked, seen.acked_bytes, seen.charged, seen.response_count, seen.dropped_count),
        "throttle": seen.throttle,
        "failures": seen.failures,
    }


def _both(answers: Sequence[Answer], failing: int, *, measure_from_ns: int = FROM_NS) -> list[dict[str, Any]]:
    """The figures of both ways, where every answer of the number `failing` is followed by a failure."""
    found = []
    for record in (_one_by_one, _together):
        seen = Recorder(start_ns=0, measure_from_ns=measure_from_ns, window_ms=3000, room=SMALL)
        now_ns = 0
        for number, answer in enumerate(answers):
            now_ns += answer[0]
            record(seen, now_ns, answer)
            if number % failing == failing - 1:
                seen.failed("X")
                seen.throttled(now_ns, 7)
        seen.fold()
        found.append(_figures(seen))
    return found


@settings(max_examples=60, deadline=None)
@given(answers=ANSWERS, copies=COPIES, failing=st.sampled_from([3, 70, 10**6]))
@pytest.mark.parametrize("has_numpy", [True, False])
def test_the_figures_are_those_of_answers_recorded_one_by_one(
    has_numpy: bool,
    answers: list[Answer],
    copies: int,
    failing: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder_module, "_has_numpy", lambda: has_numpy)
        one_by_one, together = _both(answers * copies, failing)

    assert together == one_by_one


def test_many_answers_of_one_record_have_the_same_figures() -> None:
    answers = [(MS // 10, 0, 1, 1, 900_000 + 131 * number, 1000) for number in range(3000)]

    one_by_one, together = _both(answers, 10**6, measure_from_ns=-MS)

    assert together == one_by_one
    assert together["histograms"][0][1].count == 3000


def test_what_waits_shows_from_the_next_fold_on() -> None:
    seen = Recorder(start_ns=0, measure_from_ns=0)
    _together(seen, 5 * MS, (0, 40, 1, 3, MS, 0))
    assert (seen.acked, seen.timeline.slots()) == (0, ())

    seen.fold()
    assert (seen.acked, seen.acked_bytes, seen.charged, seen.response_count, seen.throttle_count) == (3, 15, 21, 1, 1)
    assert [slot.records for slot in seen.timeline.slots()] == [3]


def test_what_waits_is_bounded() -> None:
    rooms = [room_for(clients) for clients in (1, 10, 100, 1000)]

    assert [room.waiting for room in rooms] == [2048, 2048, 1000, 100]
    seen = Recorder(start_ns=0, measure_from_ns=0, room=SMALL)
    for _ in range(SMALL.waiting):
        _together(seen, MS, (0, 0, 1, 1, 0, 0))
    assert seen.timeline.slots()[0].records == SMALL.waiting


def test_nothing_is_lost_where_another_thread_sorts_in_meanwhile() -> None:
    seen, total = Recorder(start_ns=0, measure_from_ns=-MS), 20_000
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            seen.fold()

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    reader = threading.Thread(target=read)
    try:
        reader.start()
        for number in range(total):
            _together(seen, number * 1000, (0, 0, 1, 1, MS, 0))
            if number % 5 == 0:
                seen.acknowledged(number * 1000, records=1, size=5)
    finally:
        is_over.set()
        reader.join()
        sys.setswitchinterval(interval_s)
    seen.fold()

    acknowledged = total + total // 5
    assert seen.acked == sum(slot.records for slot in seen.timeline.slots()) == acknowledged
    assert seen.service_times.summary().count == len(seen.responses) == total
    assert sum(size for _, size in seen.trace.entries()) == acknowledged * 5
