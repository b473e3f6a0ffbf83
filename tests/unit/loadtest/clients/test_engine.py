"""The books of a client name all that was due, and the latencies what an end without answers adds."""

from dataclasses import replace
from fractions import Fraction

import pytest

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.clients.engine import LoadClient, RunClock, phase_ns
from kafka_quotas.loadtest.measurement.delivery import Books
from kafka_quotas.loadtest.measurement.histogram import Histogram
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan
from kafka_quotas.loadtest.plan.workload import Arrival, Loop, MutationFlood, Workload

S = 1_000_000_000
END_S = 60


def client(
    *,
    rate: int | None = 100,
    workload: Workload = Workload.PRODUCE,
    loop: Loop = Loop.OPEN,
    flood: MutationFlood | None = None,
) -> LoadClient:
    """A client of a run of a minute."""
    entity = ClientLoad(
        name=ClientName(user=None, client_id="app"),
        workload=workload,
        topic="t",
        loop=loop,
        flood=flood,
        arrivals_per_second=None if rate is None else Fraction(rate),
    )
    plan = LoadPlan(
        bootstrap="127.0.0.1:1", entities=(entity,), duration_s=END_S, warmup_s=0, window=QuotaWindow(samples=1)
    )
    return LoadClient(plan, entity, RunClock(start_ns=0, measure_from_ns=0, end_ns=END_S * S))


def take(each: LoadClient, sent: int, *, acked: int, failed: int = 0) -> None:
    each.pacer.taken += sent
    each.recorder.sent += sent
    each.recorder.acknowledged(END_S * S, records=acked, size=acked)
    if failed:
        each.recorder.failed("SOME_ERROR", failed)
    each.unfinished = sent - acked - failed


def test_arrivals_that_were_due_and_never_sent_are_in_the_books() -> None:
    slow = client()
    take(slow, 2900, acked=2880, failed=5)
    slow.settle(END_S * S)
    books = slow.books(answer_ms=2000)

    assert books == Books(due=6000, acknowledged=2880, failed=5, unsent=3100, unanswered=15, settled=5801)
    assert books.unaccounted == 0
    assert books.evidence == "6,000 due = 2,880 acknowledged + 5 failed + 3,100 unsent + 15 unanswered"


def test_a_client_that_begins_later_has_its_whole_part() -> None:
    late = client()
    late.postpone(5 * S)

    assert (late.start_ns, late.end_ns) == (5 * S, (5 + END_S) * S)
    assert late.pacer.due(5 * S - 1, most=10) == 0
    late.settle((5 + END_S) * S)
    assert late.books(answer_ms=0).due == 6000
    late.recorder.latency(intended_ns=5 * S - 1, sent_ns=5 * S, acked_ns=5 * S)
    assert late.recorder.service_times.summary().count == 0


def test_clients_of_one_rate_are_due_one_after_the_other() -> None:
    load = ClientLoad(
        name=ClientName(user=None, client_id="app"),
        workload=Workload.PRODUCE,
        topic="t",
        arrivals_per_second=Fraction(2),
    )

    assert [phase_ns(load, index, of=4) for index in range(4)] == [0, S // 8, S // 4, 3 * S // 8]
    assert phase_ns(replace(load, arrivals_per_second=None), 1, of=4) == 0
    assert phase_ns(replace(load, arrival=Arrival.BURST, burst_size=9), 1, of=4) == 0


def test_the_wait_of_what_was_never_sent_counts_as_long_as_it_has_lasted() -> None:
    """At half of the offered rate, an arrival at t would be served at 2 t: the last half of the run is missing."""
    slow = client()
    take(slow, 3000, acked=3000)
    for index in range(3000):
        due_ns = index * S // 100
        slow.recorder.latency(intended_ns=due_ns, sent_ns=2 * due_ns, acked_ns=2 * due_ns)
    before = slow.recorder.response_times.summary()
    slow.settle(END_S * S)
    after = slow.recorder.response_times.summary()

    assert (before.p50_us, before.is_bound(0.5)) == (pytest.approx(15e6, rel=0.01), False)
    assert (after.count, after.censored) == (pytest.approx(6000, abs=10), pytest.approx(3000, abs=10))
    assert after.is_bound(0.99)
    assert slow.recorder.schedule_delays.summary().censored == after.censored
    assert slow.recorder.service_times.summary().censored == 0


def test_a_dropped_arrival_is_unsent_once() -> None:
    late = client()
    late.count_dropped(61 * S)
    late.settle(END_S * S)
    books = late.books(answer_ms=0)

    assert late.recorder.dropped_count == 101
    assert (books.due, books.unsent, books.unaccounted) == (6000, 6000, 0)


@pytest.mark.parametrize(("rate", "loop"), [(None, Loop.OPEN), (100, Loop.CLOSED)])
def test_without_an_open_schedule_only_what_was_sent_was_due(rate: int | None, loop: Loop) -> None:
    free = client(rate=rate, loop=loop)
    take(free, 10, acked=9)
    free.settle(END_S * S)

    assert free.books(answer_ms=0) == Books(due=10, acknowledged=9, failed=0, unsent=0, unanswered=1)


def test_the_books_of_a_flood_of_changes_are_of_topics() -> None:
    mutator = client(rate=1, workload=Workload.MUTATE, flood=MutationFlood(topics_per_request=3))
    mutator.pacer.taken, mutator.recorder.sent = 51, 153
    mutator.recorder.acknowledged(END_S * S, records=153, size=153)
    mutator.settle(END_S * S)

    assert mutator.books(answer_ms=0) == Books(due=180, acknowledged=153, failed=0, unsent=27, unanswered=0)


def test_a_failed_fetch_is_no_failed_record() -> None:
    reader = client(workload=Workload.CONSUME)
    take(reader, 6001, acked=6001)
    reader.recorder.failed("OFFSET_OUT_OF_RANGE")
    reader.settle(END_S * S)

    assert reader.books(answer_ms=0).unaccounted == 0


def test_lost_count_shows() -> None:
    assert Books(due=10, acknowledged=5, failed=1, unsent=1, unanswered=1).unaccounted == 2


@pytest.mark.parametrize(("open_ones", "is_bound"), [(1, False), (2, True)])
def test_a_percentile_is_a_bound_where_more_are_open_than_lie_above_it(open_ones: int, is_bound: bool) -> None:
    histogram = Histogram()
    histogram.add(S, 100 - open_ones)
    histogram.add_bound(S, open_ones)

    assert histogram.summary().is_bound(0.99) is is_bound
