"""A day of load on a virtual clock: no arrival is missed, and memory is that of an hour."""

import json
from fractions import Fraction

import pytest
from tests.support.core.virtual_clock import VirtualClock
from tests.support.load.recordings import MS, RecordedClient, recorded, run_of

from kafka_quotas.loadtest.measurement.recorder import RecorderRoom
from kafka_quotas.loadtest.plan.plan import ClientLoad
from kafka_quotas.loadtest.plan.schedule import schedule_of
from kafka_quotas.loadtest.plan.workload import Arrival
from kafka_quotas.loadtest.results.run_file import run_document

DAY_S = 24 * 3600
RATE = 10
LOOK_MS = 10_000
ROOM = RecorderRoom()


def _driven(client: RecordedClient, arrival: Arrival) -> None:
    """A client that looks at its schedule every 10 s, sends all that is due, and is throttled for a second."""
    schedule = schedule_of(_with(client.entity, arrival), seed=1)
    assert schedule is not None
    clock, recorder = VirtualClock(0), client.recorder
    while clock.now_ms() < DAY_S * 1000:
        clock.advance(LOOK_MS)
        now_ns = clock.now_ms() * MS
        due = schedule.due_count(min(now_ns, DAY_S * 1000 * MS - 1)) - recorder.sent
        if due:
            intended_ns = schedule.intended_ns(recorder.sent)
            recorder.sent += due
            recorder.latency(intended_ns=intended_ns, sent_ns=now_ns - MS, acked_ns=now_ns, count=due)
            recorder.acknowledged(now_ns, records=due, size=100 * due)
        recorder.response(now_ns, charged=100 * due, throttle_ms=1000)


def _with(entity: ClientLoad, arrival: Arrival) -> ClientLoad:
    return ClientLoad(
        name=entity.name,
        workload=entity.workload,
        topic=entity.topic,
        arrivals_per_second=entity.arrivals_per_second,
        arrival=arrival,
        burst_size=100,
    )


@pytest.mark.parametrize("arrival", Arrival)
def test_a_day_is_scheduled_and_recorded_whole_in_bounded_memory(arrival: Arrival) -> None:
    client = recorded(rate=Fraction(RATE))
    _driven(client, arrival)
    recorder = client.recorder

    assert recorder.acked == recorder.service_times.summary().count == RATE * DAY_S
    assert recorder.response_count == recorder.throttle.count == DAY_S * 1000 // LOOK_MS
    assert len(recorder.trace.entries()) <= ROOM.entries
    assert len(recorder.timeline.slots()) <= ROOM.slots
    assert len(recorder.responses) <= ROOM.responses
    assert len(recorder.response_times.counts) < 25_000  # the cells of the histogram


def test_the_result_of_a_day_fits_into_a_document() -> None:
    client = recorded(rate=Fraction(RATE), quota=1000)
    _driven(client, Arrival.CONSTANT)
    result = run_of(client, elapsed_s=float(DAY_S))
    entity = result.entities[0]

    assert entity.sample_s * len(entity.seconds) == DAY_S
    assert sum(sample.records for sample in entity.seconds) == pytest.approx(RATE * DAY_S, abs=RATE * entity.sample_s)
    assert {window.throttle_avg_ms for window in entity.windows} == {1000.0}
    assert len(json.dumps(run_document(result))) < 3_000_000
