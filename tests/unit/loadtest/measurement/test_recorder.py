"""What a run records: exact counts in bounded memory, three latencies, throttle times."""

import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quotas.loadtest.clients.engine import WireCount
from kafka_quotas.loadtest.clients.librdkafka import WireCounter
from kafka_quotas.loadtest.measurement.histogram import HIGHEST_US
from kafka_quotas.loadtest.measurement.recorder import Recorder, RecorderRoom, room_for
from kafka_quotas.loadtest.measurement.traces import AckTrace, Slot
from kafka_quotas.loadtest.plan.workload import Workload

MS = 1_000_000
S = 1_000_000_000


def test_what_comes_in_one_millisecond_is_one_entry() -> None:
    trace = AckTrace()
    for t_ms, size in ((0, 10), (0, 5), (1, 7), (900, 1)):
        trace.add(t_ms, size)

    assert trace.entries() == ((0, 15), (1, 7), (900, 1))
    assert trace.recent_bytes(1) == 8


@given(steps=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 1000)), max_size=300), limit=st.integers(2, 20))
def test_a_long_trace_gets_coarser_and_loses_nothing(steps: list[tuple[int, int]], limit: int) -> None:
    trace = AckTrace(max_entries=limit)
    now = 0
    for step_ms, size in steps:
        now += step_ms
        trace.add(now, size)

    entries = trace.entries()
    assert len(entries) <= limit
    assert sum(size for _, size in entries) == sum(size for _, size in steps)
    assert [t_ms for t_ms, _ in entries] == sorted({t_ms for t_ms, _ in entries})
    assert all(t_ms % trace.resolution_ms == 0 for t_ms, _ in entries)


def test_the_three_latencies_are_kept_apart() -> None:
    recorder = Recorder(start_ns=0, measure_from_ns=0)
    recorder.latency(intended_ns=0, sent_ns=3 * S, acked_ns=3 * S + 20 * MS)

    assert recorder.service_times.summary().p50_us == recorder.service_times.summary().max_us
    assert abs(recorder.service_times.summary().max_us - 20_000) < 20
    assert abs(recorder.schedule_delays.summary().max_us - 3_000_000) < 3000
    assert abs(recorder.response_times.summary().max_us - 3_020_000) < 3000


def test_the_warm_up_has_no_latencies_but_counts() -> None:
    recorder = Recorder(start_ns=0, measure_from_ns=S)
    recorder.latency(intended_ns=S - 1, sent_ns=S, acked_ns=S)
    recorder.arrival(intended_ns=S - 1, arrived_ns=2 * S)
    recorder.acknowledged(S // 2, records=3, size=300)
    assert recorder.response_times.summary().count == 0
    assert (recorder.acked, recorder.acked_bytes) == (3, 300)

    recorder.arrival(intended_ns=S, arrived_ns=2 * S)
    assert recorder.response_times.summary().count == 1


def test_a_latency_beyond_the_range_is_its_end() -> None:
    recorder = Recorder(start_ns=0, measure_from_ns=0)
    recorder.latency(intended_ns=0, sent_ns=0, acked_ns=7200 * S)

    assert recorder.response_times.summary().max_us >= HIGHEST_US
    assert recorder.schedule_delays.summary().min_us == 1


def test_throttle_times_are_counted_summed_and_kept_by_second() -> None:
    recorder = Recorder(start_ns=0, measure_from_ns=0)
    for now_ns, throttle_ms in ((S, 100), (S + 1, 400), (2 * S, 0), (5 * S, 1000)):
        recorder.throttled(now_ns, throttle_ms)

    assert (recorder.throttle.count, recorder.throttle.sum_ms) == (3, 1500.0)
    assert abs(recorder.throttle.max_ms - 1000) < 1
    assert [
        (slot.start_ms, slot.throttled, slot.throttle_sum_ms, slot.throttle_max_ms) for slot in _slots(recorder)
    ] == [
        (1000, 2, 500, 400),
        (5000, 1, 1000, 1000),
    ]


def test_wire_bytes_leave_out_what_waits_to_be_sent() -> None:
    statistics = {
        "brokers": {
            "b": {
                "txbytes": 1010,
                "rxbytes": 77,
                "outbuf_msg_cnt": 4,
                "req": {"Produce": 9, "Fetch": 8, "Metadata": 2},
            },
            "bootstrap": _idle(),
        },
        "topics": {"t": {"partitions": {"0": {"txbytes": 1400, "txmsgs": 14, "rxbytes": 50}, "-1": _no_records()}}},
    }

    produced = _counted(statistics, workload=Workload.PRODUCE)
    consumed = _counted(statistics, workload=Workload.CONSUME)

    assert (produced.wire_bytes, produced.payload_bytes, produced.ratio) == (1010, 1000, 1.01)
    assert (produced.requests, consumed.requests) == (9, 8)
    assert (consumed.wire_bytes, consumed.payload_bytes) == (77, 50)


def test_without_any_record_the_ratio_is_one() -> None:
    assert _counted({"brokers": {}, "topics": {}}, workload=Workload.PRODUCE).ratio == 1.0


def test_wire_bytes_survive_a_lost_broker_and_one_that_counts_anew() -> None:
    def document(sent: int | None) -> str:
        brokers = {} if sent is None else {"b": {"txbytes": sent, "rxbytes": 0, "outbuf_msg_cnt": 0}}
        partitions = {"0": {"txbytes": 1000, "txmsgs": 10, "rxbytes": 0}}
        return json.dumps({"brokers": brokers, "topics": {"t": {"partitions": partitions}}})

    counter = WireCounter(topic="t", workload=Workload.PRODUCE)

    assert [counter.counted(document(sent)).wire_bytes for sent in (1010, None, 30, 50)] == [1010, 1010, 1040, 1060]


def _counted(statistics: dict[str, object], *, workload: Workload) -> WireCount:
    return WireCounter(topic="t", workload=workload).counted(json.dumps(statistics))


def _slots(recorder: Recorder) -> tuple[Slot, ...]:
    return recorder.timeline.slots()


def _idle() -> dict[str, int]:
    return {"txbytes": 0, "rxbytes": 0, "outbuf_msg_cnt": 0}


def _no_records() -> dict[str, int]:
    return {"txbytes": 0, "txmsgs": 0, "rxbytes": 0}


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
def test_the_figures_are_those_of_answers_recorded_one_by_one(answers: list[Answer], copies: int, failing: int) -> None:
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
