"""All judgements of a run together: what each is made from, and what they come to."""

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from tests.support.load.closed_loop import Loop
from tests.support.load.recordings import MS, WINDOW, recorded, run_of
from tests.support.load.results import greedy, result, unlimited

from kafka_quotas.loadtest.judgement import Aspect, State
from kafka_quotas.loadtest.measurement.delivery import Books, Delivery
from kafka_quotas.loadtest.measurement.traces import Charge
from kafka_quotas.loadtest.plan.client_verdict import ClientVerdict, Observation, entity_verdict
from kafka_quotas.loadtest.plan.workload import ClientKind, RateUnit, Workload
from kafka_quotas.loadtest.results.prediction import PredictionSource
from kafka_quotas.loadtest.results.result import CpuUse, LoadResult
from kafka_quotas.loadtest.verdict.analysis import warnings
from kafka_quotas.loadtest.verdict.judging import Evidence, judge_run
from kafka_quotas.loadtest.verdict.thresholds import parse_expectation


def _states(run: LoadResult, aspect: Aspect) -> list[tuple[str | None, State]]:
    return [(each.entity, each.state) for each in run.judgements if each.aspect is aspect]


def test_a_run_is_met_when_every_judgement_is() -> None:
    run = result(greedy(), unlimited())

    assert (run.ok, run.state) == (True, State.MET)
    assert _states(run, Aspect.RATE) == [("greedy", State.MET), ("alice/free", State.MET)]


def test_quotas_that_changed_make_a_run_void_whatever_else() -> None:
    run = result(greedy(ok=False), evidence=Evidence(quotas_changed="producer_byte_rate of greedy was 2, is 3"))

    assert (run.ok, run.state) == (False, State.VOID)
    assert run.judgements[0].evidence == "the quotas changed during the run: producer_byte_rate of greedy was 2, is 3"


def test_an_interrupted_run_and_one_too_short_are_void() -> None:
    short = replace(greedy(ok=False), verdict=replace(greedy(ok=False).verdict, too_short=True))

    assert result(greedy(), interrupted=True).state is State.VOID
    assert result(short).state is State.VOID


@pytest.mark.parametrize(
    ("alone_us", "factor", "state"),
    [
        (12_000, None, State.UNCHECKED),
        (500, None, State.NOT_MET),
        (500, 10, State.UNCHECKED),
        (None, None, State.UNCHECKED),
    ],
)
def test_a_control_client_is_compared_with_its_solo_run(
    alone_us: int | None, factor: float | None, state: State
) -> None:
    control = replace(unlimited(), control=True)  # its p99 is 12.3 ms; 10 ms are allowed in any case
    solo = {} if alone_us is None else {control.key: replace(control.response, p99_us=alone_us)}
    run = result(greedy(), control, evidence=Evidence(solo=solo, control_factor=factor))

    assert _states(run, Aspect.ISOLATION) == [("alice/free", state)]
    assert run.ok is (state is not State.NOT_MET)


@pytest.mark.parametrize(
    ("books", "state"),
    [
        (Books(due=4100, acknowledged=4080, failed=0, unsent=2, unanswered=18, settled=3900), State.MET),
        (Books(due=4100, acknowledged=3474, failed=0, unsent=10, unanswered=616, settled=3900), State.NOT_MET),
        (Books(due=4100, acknowledged=4000, failed=0, unsent=0, unanswered=0, settled=3900), State.VOID),
    ],
)
def test_what_was_due_is_accounted_for_and_served(books: Books, state: State) -> None:
    run = result(replace(unlimited(), books=books))

    assert _states(run, Aspect.BOOKS) == [("alice/free", state)]
    assert run.ok is (state is State.MET)


def test_a_greedy_client_may_leave_what_its_quota_holds_back() -> None:
    books = Books(due=126_000, acknowledged=61_615, failed=0, unsent=64_001, unanswered=384, settled=120_000)

    assert _states(result(replace(greedy(), books=books)), Aspect.BOOKS) == [("greedy", State.MET)]


def test_lost_records_and_failed_ones_are_not_met() -> None:
    lost = result(greedy(), evidence=Evidence(deliveries={greedy().key: Delivery(found=9, lost=1)}))
    failed = result(greedy(failures=(("_MSG_TIMED_OUT", 3),)))

    assert _states(lost, Aspect.DELIVERY) == _states(failed, Aspect.DELIVERY) == [("greedy", State.NOT_MET)]
    assert not lost.ok
    assert not failed.ok


@pytest.mark.parametrize(("expected", "state"), [("POLICY_VIOLATION", State.MET), ("OTHER", State.NOT_MET)])
def test_errors_that_belong_to_what_is_shown_are_no_loss(expected: str, state: State) -> None:
    entity = greedy(failures=(("POLICY_VIOLATION", 3),))
    run = result(entity, evidence=Evidence(expected_errors={entity.key: frozenset((expected,))}))

    assert _states(run, Aspect.DELIVERY) == [("greedy", state)]


def test_refusals_of_a_daemon_that_answers_by_errors_are_no_loss() -> None:
    entity = greedy(failures=(("THROTTLING_QUOTA_EXCEEDED", 1237),))
    expected = {entity.key: frozenset(("THROTTLING_QUOTA_EXCEEDED",))}
    run = result(entity, evidence=Evidence(expected_errors=expected))
    unexpected = result(entity)

    assert _states(run, Aspect.DELIVERY) == [("greedy", State.MET)]
    assert _states(unexpected, Aspect.DELIVERY) == [("greedy", State.NOT_MET)]
    assert "1237 refused for the quota (THROTTLING_QUOTA_EXCEEDED)" in run.judgements[-1].evidence


def test_throttle_times_of_refused_requests_are_not_judged_by_what_was_charged() -> None:
    client = recorded(quota=1000, rate=Fraction(10))
    client.recorder.response(0, charged=9000, throttle_ms=9999)
    client.recorder.failed("THROTTLING_QUOTA_EXCEEDED")

    assert _states(run_of(client), Aspect.THROTTLE) == [("app", State.UNCHECKED)]


def test_what_could_not_be_checked_does_not_count_against_the_run() -> None:
    run = result(greedy(), evidence=Evidence(deliveries={greedy().key: Delivery(unchecked="too short")}))

    assert _states(run, Aspect.DELIVERY) == [("greedy", State.UNCHECKED)]
    assert run.ok


def test_thresholds_of_ones_own_come_last_and_count() -> None:
    run = result(greedy(), evidence=Evidence(expectations=(parse_expectation("throttle.count == 0"),)))

    assert run.judgements[-1].aspect is Aspect.EXPECTATION
    assert not run.ok


def test_judging_again_makes_no_judgement_twice() -> None:
    run = result(greedy(), unlimited())

    assert judge_run(run, Evidence()) == run


def test_single_responses_are_predicted_and_the_daemons_log_is_better() -> None:
    client = recorded(quota=1000, rate=Fraction(10))
    for index, throttle_ms in enumerate((0, 0, 0, 0, 3000, 3000)):
        client.recorder.response(index * 100 * MS, charged=1000, throttle_ms=throttle_ms)
    run = run_of(client)
    logged = judge_run(run, Evidence(charges={run.entities[0].key: [Charge(t_ms=0, charged=9000, throttle_ms=6000)]}))

    told = [each.entities[0].prediction for each in (run, logged)]
    assert [each.source for each in told if each] == [PredictionSource.RESPONSES, PredictionSource.EVENT_LOG]
    assert [each.announced_ms for each in told if each] == [6000, 6000]


def test_a_fetch_that_the_daemon_holds_has_no_throttle_time_to_predict() -> None:
    reader = recorded("reader", workload=Workload.CONSUME, kind=ClientKind.LIBRDKAFKA, quota=1000)
    reader.recorder.response(0, charged=0, throttle_ms=500)
    run = run_of(reader)
    logged = judge_run(run, Evidence(charges={run.entities[0].key: [Charge(t_ms=0, charged=90_000, throttle_ms=500)]}))

    assert _states(logged, Aspect.THROTTLE) == [("reader", State.UNCHECKED)]
    (prediction,) = (each.prediction for each in logged.entities)
    assert prediction is not None
    assert "holds a fetch" in prediction.unchecked


def test_with_two_quotas_at_once_throttle_times_are_not_predicted() -> None:
    client = recorded(quota=1000, rate=Fraction(10))
    client.recorder.response(0, charged=9000, throttle_ms=9999)
    run = run_of(client)
    limited = judge_run(run, Evidence(time_limited=frozenset({run.entities[0].key})))

    assert _states(run, Aspect.THROTTLE) == [("app", State.NOT_MET)]
    assert _states(limited, Aspect.THROTTLE) == [("app", State.UNCHECKED)]


def test_changes_of_topics_that_were_answered_late_are_not_held_against_the_throttle_times() -> None:
    client = recorded(quota=1, rate=Fraction(10), workload=Workload.MUTATE)
    client.recorder.response(0, charged=9, throttle_ms=60_000)
    told = [run_of(client)]
    client.recorder.latency(intended_ns=0, sent_ns=0, acked_ns=90_000 * MS)
    told.append(run_of(client))

    assert [_states(run, Aspect.THROTTLE) for run in told] == [[("app", State.NOT_MET)], [("app", State.UNCHECKED)]]


def test_acknowledgements_of_several_brokers_and_of_consumers_tell_too_little() -> None:
    greedy_one = recorded(kind=ClientKind.LIBRDKAFKA, quota=1000)
    consumer = recorded("reader", workload=Workload.CONSUME, kind=ClientKind.LIBRDKAFKA, quota=1000)
    for client in (greedy_one, consumer):
        for second in range(20):
            client.recorder.acknowledged(second * 1000 * MS, records=1, size=600)

    assert _states(run_of(greedy_one, enforcers=2), Aspect.THROTTLE) == [("app", State.UNCHECKED)]
    consumer.recorder.response(20_000 * MS, charged=0, throttle_ms=500)  # seeing its responses doesn't help it
    assert _states(run_of(greedy_one, consumer), Aspect.THROTTLE) == [("app", State.MET), ("reader", State.UNCHECKED)]


def test_rates_are_of_what_the_workload_is_charged_with() -> None:
    flood = recorded("flood", workload=Workload.REQUESTS, quota=50)
    for tick in range(2000):  # 100 a second for 20 s
        flood.recorder.response(tick * 10 * MS, charged=1, throttle_ms=0)
    entity = run_of(flood).entities[0]

    assert entity.unit is RateUnit.REQUESTS
    assert entity.verdict.ratio == pytest.approx(2, rel=0.01)
    assert not entity.verdict.ok
    assert "100 requests/s of 50 requests/s" in entity.verdict.evidence
    assert [sample.rate for sample in entity.seconds] == [100.0] * 20
    assert {window.rate for window in entity.windows[:-1]} == {100.0}


def test_a_bucket_of_tokens_is_judged_from_when_it_is_empty() -> None:
    """A burst of a whole window may pass first.

    What counts is what the broker lets through afterwards.
    """
    mutator = recorded("mutator", workload=Workload.MUTATE, quota=5)
    for second in range(6):  # the bucket of 15 lasts for 6 s at 7.5 a second
        mutator.recorder.response(second * 1000 * MS, charged=8 if second % 2 else 7, throttle_ms=0)
    for second in range(6, 60):
        mutator.recorder.response(second * 1000 * MS, charged=5, throttle_ms=500)
    run = run_of(mutator, elapsed_s=60.0)

    assert run.entities[0].verdict.ratio == pytest.approx(1, abs=0.001)
    assert run.entities[0].verdict.ok
    assert WINDOW.samples * WINDOW.window_s == 3


def test_random_arrivals_may_be_a_little_fewer() -> None:
    def judged(count: int) -> bool:
        client = recorded(workload=Workload.REQUESTS, rate=Fraction(10))
        client.entity = replace(client.entity, arrival=client.entity.arrival.POISSON)
        for index in range(count):
            client.recorder.response(index * 20_000 * MS // count, charged=1, throttle_ms=0)
        return run_of(client).entities[0].verdict.ok

    assert judged(170)  # of 200: three times the square root may be missing
    assert not judged(140)


def test_a_busy_load_tester_warns() -> None:
    idle, busy = run_of(recorded(), cpu=0.3), run_of(recorded(), cpu=0.95)

    assert idle.warnings == ()
    assert "the load tester was the bottleneck: its Python threads took 95%" in busy.warnings[0]
    assert busy.cpu == CpuUse(process=0.95, python=0.95, cores=2)


def test_a_busy_machine_warns() -> None:
    busy = replace(run_of(recorded()), cpu=CpuUse(process=0.1, python=0.1, cores=2, late_ms=50.0))

    assert "the machine was too busy for this run: threads waited 50 ms for a core" in warnings(busy)[0]


def test_late_and_dropped_arrivals_warn() -> None:
    client = recorded(rate=Fraction(10))
    client.recorder.dropped(5)
    for _ in range(10):
        client.recorder.latency(intended_ns=0, sent_ns=300 * MS, acked_ns=301 * MS)
    late, dropped = run_of(client).warnings

    assert "1 unthrottled clients were sent late, app by 0.30 s" in late
    assert dropped.startswith("5 arrivals were dropped")


@pytest.mark.parametrize(
    ("late_ms", "share", "state"),
    [(0.3, 0.95, State.NOT_MET), (8.0, 0.95, State.VOID), (8.0, 0.5, State.NOT_MET), (8.0, 1.1, State.NOT_MET)],
)
def test_a_little_less_than_the_quota_on_a_busy_machine_is_no_verdict(
    late_ms: float, share: float, state: State
) -> None:
    client = recorded("app", quota=100_000)
    for at_ms in range(0, 20_000, 10):
        client.recorder.response(at_ms * MS, charged=int(share * 1000), throttle_ms=8)
        client.recorder.acknowledged(at_ms * MS, records=1, size=int(share * 1000))

    (rate,) = (each for each in run_of(client, late_ms=late_ms).judgements if each.aspect is Aspect.RATE)

    assert rate.state is state, rate.evidence
    assert ("the machine was too busy to judge that" in rate.evidence) is (state is State.VOID)


QUOTA = 1e6
REQUEST = 20_000
RUN_MS = 30_000
WINDOW_MS = 3_000
LINK = 20e6


def verdict(
    *,
    factor: float = 1.0,
    at: float = 1.0,
    pause_ms: Callable[[float], float] = lambda _t_ms: 0.0,
    end: float = 1.0,
    samples: int = 3,
) -> ClientVerdict:
    """The verdict on a client whose quota is `factor` of what it should be from the share `at` of the run on.

    It pauses before a request for `pause_ms` of the time, and gets no answer after the share `end` of the run.
    """
    loop = Loop(quota=QUOTA, request=REQUEST, link=LINK, samples=samples)
    taken = list(loop.throttled(RUN_MS * end, change=(RUN_MS * at, QUOTA * factor), pause_ms=pause_ms))
    seen = Observation(
        acks=[(t_ms, REQUEST) for t_ms, _ in taken if t_ms <= RUN_MS],
        offered=None,
        throttle_count=len(taken),
        elapsed_ms=RUN_MS,
        end_ms=RUN_MS,
        patience_ms=max(throttle_ms for _, throttle_ms in taken) + 2000,
    )
    return entity_verdict(seen, quota=QUOTA, window_ms=WINDOW_MS, warmup_ms=WINDOW_MS)


@pytest.mark.parametrize("at", [0.1, 0.5])
@pytest.mark.parametrize("factor", [1000.0, 2.0, 0.5], ids=["removed", "doubled", "halved"])
def test_a_quota_that_is_broken_during_the_run_is_not_held(factor: float, at: float) -> None:
    assert not verdict(factor=factor, at=at).ok


def test_a_quota_that_is_removed_for_the_last_tenth_of_the_run_is_not_held() -> None:
    assert not verdict(factor=1000.0, at=0.9).ok


@pytest.mark.parametrize("end", [0.1, 0.5, 0.8])
def test_a_client_without_answers_up_to_the_end_is_not_held(end: float) -> None:
    assert not verdict(end=end).ok


def test_a_client_that_stands_still_for_a_window_in_the_middle_is_not_held() -> None:
    still = [True]

    def once(t_ms: float) -> float:
        if t_ms > RUN_MS / 2 and still:
            still.clear()
            return 2.0 * WINDOW_MS
        return 0.0

    assert not verdict(pause_ms=once).ok


@pytest.mark.parametrize("samples", [2, 4])
def test_an_enforcer_with_another_window_still_keeps_the_rate(samples: int) -> None:
    """Its throttle times differ, and they are judged apart."""
    assert verdict(samples=samples).ok


@pytest.mark.parametrize("seed", range(20))
def test_a_busy_machine_does_not_break_a_quota_that_is_kept(seed: int) -> None:
    """Every fiftieth request or so waits for a core, for up to a tenth of a second."""
    source = random.Random(seed)

    def starved(_t_ms: float) -> float:
        return source.uniform(0, 100) if source.random() < 0.02 else 0.0

    found = verdict(pause_ms=starved)

    assert found.ok, found.evidence
