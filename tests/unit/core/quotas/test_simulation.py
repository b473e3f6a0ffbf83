"""Replays: the figures of the documents, open and closed loops, and looking that changes nothing."""

import json
from pathlib import Path

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.metrics.throttle_time import MAX_ATTEMPTS
from kafka_quotas.core.model.value_format import format_duration_ms, parse_duration_ms
from kafka_quotas.core.quotas.simulation import (
    SPREADS,
    Algorithm,
    Event,
    EventOperation,
    SimulatedDecision,
    full_bucket_ms,
    new_limiter,
    operations,
    replay,
    usual_operation,
)

START_MS = 1_700_000_000_000
DATA = Path(__file__).parents[3] / "conformance" / "data"
KINDS = {"rate": "rate", "bounded": "bounded", "count_rate": "count-rate", "simple_rate": "simple-rate"}
KINDS |= {"token_bucket": "token-bucket"}


def run(algorithm: Algorithm, events: list[Event], *, bound: float, samples: int = 11, closed: bool = False):
    limiter = new_limiter(algorithm, bound=bound, samples=samples, window_ms=1000)
    origin_ms = full_bucket_ms(samples=samples, window_ms=1000)
    usual = usual_operation(algorithm)
    return list(replay(events, limiter, usual=usual, origin_ms=origin_ms, closed_loop=closed))


def lines(name: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def replayable(line) -> bool:
    config = line["config"]
    plain = all(op in set(EventOperation) for _, op, *_ in line["events"])
    bounded = config.get("max_throttle_ms") in (None, config["window_ms"])
    return line["kind"] in KINDS and plain and bounded and config["bound"] is not None and line["observe"] == "own"


@pytest.mark.parametrize("line", list(filter(replayable, lines("scenarios.jsonl"))), ids=lambda line: line["id"])
def test_a_replay_of_the_scenarios_gives_their_delays(line) -> None:
    config = line["config"]
    limiter = new_limiter(
        Algorithm(KINDS[line["kind"]]), bound=config["bound"], samples=config["samples"], window_ms=config["window_ms"]
    )
    events = [Event(t_ms=t, amount=(rest or [0])[0], operation=EventOperation(op)) for t, op, *rest in line["events"]]
    decisions = list(replay(events, limiter, usual=EventOperation.RECORD))
    assert [decision.outcome.throttle_ms for decision in decisions] == [row[3] or 0 for row in line["expect"]]
    assert [decision.outcome.window_ms for decision in decisions if decision.outcome.throttle_ms] == [
        row[1] for row in line["expect"] if row[3]
    ]


def test_enough_scenarios_are_replayed() -> None:
    assert sum(map(replayable, lines("scenarios.jsonl"))) == 14


def test_the_burst_of_560_puts_a_full_bucket_60_into_debt_and_12_s_pay_it_off() -> None:
    events = [Event(t_ms=0, amount=560), Event(t_ms=0, amount=1), Event(t_ms=11_999, amount=1)]
    burst, refused, early, paid = run(
        Algorithm.TOKEN_BUCKET, [*events, Event(t_ms=12_000, amount=1)], bound=5, samples=100
    )
    assert (burst.outcome.admitted, burst.outcome.level, burst.outcome.after) == (True, 500, -60)
    assert (refused.outcome.admitted, refused.outcome.throttle_ms) == (False, 12_000)
    assert (early.outcome.admitted, early.outcome.throttle_ms) == (False, 1)
    assert (paid.outcome.admitted, paid.outcome.after) == (True, pytest.approx(-1))


def test_a_closed_loop_waits_out_each_delay_before_the_next_event() -> None:
    events = [Event(t_ms=0, amount=60e6), Event(t_ms=500, amount=1e6), Event(t_ms=9000, amount=1e6)]
    open_loop = run(Algorithm.RATE, events, bound=5e6)
    closed = run(Algorithm.RATE, events, bound=5e6, closed=True)
    assert [decision.t_ms for decision in open_loop] == [0, 500, 9000]
    assert [decision.t_ms for decision in closed] == [0, 2000, 9000]
    assert [decision.due_ms for decision in closed] == [0, 500, 9000]
    assert closed[0].outcome.throttle_ms == 2000  # 60 MB over 10 s against 5 MB/s


def test_a_closed_loop_repeats_what_was_refused_until_it_is_admitted() -> None:
    events = [Event(t_ms=0, amount=560), Event(t_ms=0, amount=5), Event(t_ms=0, amount=1)]
    decisions = run(Algorithm.TOKEN_BUCKET, events, bound=5, samples=100, closed=True)
    assert [(each.t_ms, each.attempt, each.outcome.admitted) for each in decisions] == [
        (0, 1, True),
        (0, 1, False),
        (12_000, 2, True),
        (12_000, 1, False),
        (13_000, 2, True),
    ]


def test_a_closed_loop_backs_off_where_the_delay_rounds_to_nothing_and_gives_up_in_the_end() -> None:
    at_the_bound = [Event(t_ms=0, amount=500), Event(t_ms=0, amount=1)]
    decisions = run(Algorithm.SPREAD_EVEN, at_the_bound, bound=5, samples=100, closed=True)
    assert [each.t_ms for each in decisions[1:4]] == [0, 100, 200]
    assert decisions[-1].outcome.admitted
    assert decisions[-1].t_ms == 1000
    hopeless = [Event(t_ms=0, amount=1e300), Event(t_ms=0, amount=1), Event(t_ms=0, amount=1)]
    assert len(run(Algorithm.TOKEN_BUCKET, hopeless, bound=5, closed=True)) == 1 + 2 * MAX_ATTEMPTS


def test_a_check_is_not_repeated() -> None:
    events = [Event(t_ms=0, amount=560), Event(t_ms=0, amount=0, operation=EventOperation.CHECK)]
    assert len(run(Algorithm.TOKEN_BUCKET, events, bound=5, samples=100, closed=True)) == 2


def test_unchecked_operations_have_no_delay_and_taking_back_takes_back() -> None:
    events = [
        Event(t_ms=0, amount=900, operation=EventOperation.RECORD_NOCHECK),
        Event(t_ms=0, amount=850, operation=EventOperation.UNRECORD),
        Event(t_ms=0, amount=0, operation=EventOperation.CHECK),
    ]
    recorded, taken_back, checked = (each.outcome for each in run(Algorithm.RATE, events, bound=10))
    assert (recorded.throttle_ms, recorded.after) == (0, 90)
    assert (taken_back.throttle_ms, taken_back.after) == (0, 5)
    assert checked.admitted


def test_the_spreads_take_admission_only() -> None:
    assert operations(Algorithm.SPREAD_FILL) == (EventOperation.STRICT, EventOperation.CHECK)
    assert EventOperation.UNRECORD in operations(Algorithm.RATE)
    limiter = new_limiter(Algorithm.SPREAD_EVEN, bound=5, samples=10, window_ms=1000)
    with pytest.raises(UsageError, match="do not take unrecord"):
        limiter.apply(EventOperation.UNRECORD, 1, 0)
    with pytest.raises(UsageError, match="at most 100000 samples"):
        new_limiter(Algorithm.SPREAD_EVEN, bound=5, samples=100_001, window_ms=1000)


def test_a_replay_takes_one_event_at_a_time() -> None:
    taken: list[int] = []

    def events():
        for t_ms in range(1000):
            taken.append(t_ms)
            yield Event(t_ms=t_ms, amount=1)

    limiter = new_limiter(Algorithm.RATE, bound=5, samples=11, window_ms=1000)
    first: SimulatedDecision = next(replay(events(), limiter, usual=EventOperation.RECORD))
    assert (first.t_ms, taken) == (0, [0])


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("100ms", 100), ("1.5s", 1500), ("2 min", 120_000), (".5h", 1_800_000), ("250us", 0.25)],
)
def test_lengths_of_time_are_parsed_exactly(text: str, expected_ms: float) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["100", "-1s", "1 m", "", "s", "1e3s", "NaN s", "1" * 16 + "s", "\u0661s"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a length of time"):
        parse_duration_ms(text)


def test_lengths_of_time_are_written_for_people() -> None:
    assert [format_duration_ms(value) for value in (0, 0.25, 100, 999, 1000, 12_000, 100_999)] == [
        "0 ms", "0.25 ms", "100 ms", "999 ms", "1 s", "12 s", "100.999 s",
    ]  # fmt: skip


def test_after_the_documents_burst_of_560_a_rate_waits_until_its_window_forgets_all_at_once() -> None:
    limiter = new_limiter(Algorithm.RATE, bound=5.0, samples=100, window_ms=1000)
    assert limiter.apply(EventOperation.STRICT, 560, START_MS).admitted
    refused = limiter.apply(EventOperation.STRICT, 1, START_MS)
    assert (refused.admitted, refused.throttle_ms) == (False, 13_000)  # 560 of 495: the window is 99 s at first
    checks = (limiter.apply(EventOperation.CHECK, 0, START_MS + second * 1000) for second in range(1, 110))
    assert 100 <= next(second for second, outcome in enumerate(checks, 1) if outcome.admitted) <= 102


def test_the_example_of_the_drafts_burst_of_560_waits_12_seconds() -> None:
    for algorithm in SPREADS:
        limiter = new_limiter(algorithm, bound=5, samples=100, window_ms=1000)
        assert limiter.apply(EventOperation.STRICT, 560, START_MS).admitted
        assert limiter.apply(EventOperation.STRICT, 1, START_MS).throttle_ms == 12_000
        assert limiter.level(START_MS + 10_000) > 5
        assert limiter.apply(EventOperation.STRICT, 1, START_MS + 12_000).admitted
    fits = new_limiter(Algorithm.SPREAD_EVEN, bound=5, samples=100, window_ms=1000)
    assert not fits.apply(EventOperation.STRICT, 500, START_MS).throttle_ms


def test_spread_even_refuses_at_the_bound_where_spread_fill_admits() -> None:
    limiters = [new_limiter(each, bound=0.1, samples=10, window_ms=1000) for each in SPREADS]
    for limiter in limiters:
        limiter.apply(EventOperation.STRICT, 1, START_MS)
    assert [each.apply(EventOperation.STRICT, 1, START_MS).admitted for each in limiters] == [False, True]


def test_spread_samples_out_of_reach_are_forgotten() -> None:
    limiter = new_limiter(Algorithm.SPREAD_FILL, bound=5, samples=4, window_ms=1000)
    for second in range(1000):
        limiter.apply(EventOperation.STRICT, 1, START_MS + second * 1000)
    assert len(limiter._sums) <= 2 * 4
