"""What a run records: exact counts in bounded memory, three latencies, throttle times."""

import json

from hypothesis import given
from hypothesis import strategies as st

from kafka_quotas.loadtest.clients.engine import WireCount
from kafka_quotas.loadtest.clients.librdkafka import WireCounter
from kafka_quotas.loadtest.measurement.histogram import HIGHEST_US
from kafka_quotas.loadtest.measurement.recorder import Recorder
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
