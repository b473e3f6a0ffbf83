"""The pipeline's kernels against `core` on the same events, throttle by throttle."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.core.quotas.simulation import Algorithm, Event, EventOperation, new_limiter, replay
from kafka_quotas.pipeline.kernels import admission, loop
from kafka_quotas.pipeline.kernels.limiters import LimiterRule, Limiters
from kafka_quotas.pipeline.kernels.order import sort_ties

BASE_MS = 1_700_000_000_000
OPERATIONS = {
    EventOperation.RECORD: admission.RECORD,
    EventOperation.RECORD_NOCHECK: admission.NOCHECK,
    EventOperation.STRICT: admission.STRICT,
    EventOperation.CHECK: admission.CHECK,
}
windows = st.builds(QuotaWindow, samples=st.integers(1, 12), window_s=st.integers(1, 3))
bounds = st.sampled_from([0.5, 3.0, 1000.0, 20_000.0, 5e6])
# Steps back and far ahead as well: clocks jump.
steps = st.one_of(st.integers(0, 300), st.integers(900, 12_500), st.sampled_from([-3_000, -1, 40_000, 3_600_000]))
traces = st.lists(
    st.tuples(
        st.integers(0, 3),
        steps,
        st.one_of(st.integers(0, 30_000), st.floats(0, 9e6)),
        st.sampled_from(list(OPERATIONS)),
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=50)
@given(ties=st.lists(st.lists(st.floats(0, 9e6), min_size=1, max_size=40), max_size=5))
def test_any_number_of_ties_is_sorted_among_themselves_alone(ties: list[list[float]]) -> None:
    places = np.repeat(np.arange(len(ties)), [len(own) for own in ties])
    values = np.array([value for own in ties for value in own])
    sort_ties((places // 2).astype(np.int32), places, values)
    assert values.tolist() == [value for own in ties for value in sorted(own)]


@settings(deadline=None, max_examples=50)
@given(trace=traces, window=windows, bound=bounds)
def test_limiters_that_run_beside_each_other_count_as_if_they_ran_alone(trace, window, bound) -> None:
    rows, times, amounts, _ = _events(trace)
    rules = [LimiterRule(closed=closed, window=window) for closed in (False, True)]
    first, second, *alone = (Limiters(rule, np.full((4, 1), bound)) for rule in (*rules, *rules))
    first.run(rows, times, amounts, beside=[second])
    for together, apart in zip((first, second), alone, strict=True):
        apart.run(rows, times, amounts)
        assert together.counts.tolist() == apart.counts.tolist()
        assert together.amounts.tolist() == apart.amounts.tolist()
        assert together.percentiles_ms(0.5).tolist() == apart.percentiles_ms(0.5).tolist()


@settings(deadline=None, max_examples=150)
@given(
    trace=traces,
    window=windows,
    bound=bounds,
    algorithm=st.sampled_from([Algorithm.RATE, Algorithm.BOUNDED, Algorithm.TOKEN_BUCKET]),
    closed=st.booleans(),
)
def test_each_throttle_is_the_one_of_core(trace, window, bound, algorithm, closed) -> None:
    rule = LimiterRule(
        tokens=algorithm is Algorithm.TOKEN_BUCKET,
        bounded=algorithm is Algorithm.BOUNDED,
        closed=closed,
        window=window,
    )
    rows, times, amounts, operations = _events(trace)
    limiters = Limiters(rule, np.full((4, 1), bound))
    half = len(rows) // 2
    parts = [
        limiters.trace(rows[part], times[part], amounts[part], operations[part])
        for part in (slice(0, half), slice(half, None))
    ]
    for row in range(4):
        mine = rows == row
        limiter = new_limiter(algorithm, bound=bound, samples=window.samples, window_ms=window.window_ms)
        events = [
            Event(t_ms=int(time), amount=float(amount), operation=list(OPERATIONS)[_place(operation)])
            for time, amount, operation in zip(times[mine], amounts[mine], operations[mine], strict=True)
        ]
        decisions = list(replay(events, limiter, usual=EventOperation.RECORD, closed_loop=closed))
        last = [each for each, after in pairwise([*decisions, None]) if each and (not after or after.attempt == 1)]
        throttles = np.concatenate([part.throttle_ms for part in parts])[mine, 0]
        assert throttles.tolist() == [decision.outcome.throttle_ms for decision in last]
        assert np.concatenate([part.happened_ms for part in parts])[mine, 0].tolist() == [d.t_ms for d in last]
        _judged_alike(np.concatenate([part.level for part in parts])[mine, 0], last)
        counts = limiters.counts[row, 0]
        assert counts[loop.EVENTS] == len(events)
        assert counts[loop.REFUSALS] == sum(not decision.outcome.admitted for decision in decisions)
        delays = [decision.outcome.throttle_ms for decision in decisions if decision.outcome.throttle_ms > 0]
        assert counts[loop.THROTTLE_MS] == _java_long(sum(delays))
        assert counts[loop.LONGEST_MS] == max(delays, default=0)


def _events(trace):
    rows = np.array([row for row, *_ in trace], dtype=np.int32)
    times = BASE_MS + np.cumsum([step for _, step, *_ in trace], dtype=np.int64)
    amounts = np.array([amount for *_, amount, _ in trace], dtype=np.float64)
    operations = np.array([OPERATIONS[operation] for *_, operation in trace], dtype=np.int8)
    return rows, times.reshape(-1), amounts, operations


def _place(operation: int) -> int:
    return list(OPERATIONS.values()).index(operation)


def _judged_alike(levels, decisions) -> None:
    for level, decision in zip(levels, decisions, strict=True):
        if decision.operation is not EventOperation.RECORD_NOCHECK:  # nothing is judged there
            assert level == decision.outcome.level


def _java_long(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


@pytest.mark.parametrize("quota_type", [QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST])
def test_a_random_trace_of_many_clients_is_throttled_as_by_a_broker(quota_type) -> None:
    random = np.random.default_rng(7)
    count, clients, bound = 4_000, 40, 700.0
    rows = random.integers(0, clients, count).astype(np.int32)
    times = BASE_MS + np.sort(random.integers(0, 60_000, count))
    amounts = np.minimum(np.floor(random.exponential(800.0, count)), 7_000.0)  # what a broker cuts a fetch to
    operation = admission.FETCH if quota_type is QuotaType.FETCH else admission.RECORD
    rule = LimiterRule(operation=operation, bounded=quota_type is QuotaType.REQUEST)
    trace = Limiters(rule, np.full((clients, 1), bound)).trace(rows, times, amounts)
    manager = ClientQuotaManager(quota_type)
    manager.limits.update(Entity.of(client_id=None), bound)
    expected = []
    for row, time, amount in zip(rows.tolist(), times.tolist(), amounts.tolist(), strict=True):
        throttle_ms = manager.record_and_throttle_ms("", f"client-{row}", amount, time)
        if quota_type is QuotaType.FETCH and throttle_ms > 0:
            manager.record_without_throttle("", f"client-{row}", -amount, time)
        expected.append(throttle_ms)
    assert sum(expected) > 0
    assert trace.throttle_ms[:, 0].tolist() == expected


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("operation", [admission.RECORD, admission.STRICT, admission.FETCH])
@pytest.mark.parametrize("closed", [False, True])
def test_limits_in_one_pass_and_one_by_one_come_to_the_same(closed, operation, tokens) -> None:
    if tokens and operation == admission.FETCH:
        operation = admission.RECORD  # fetches are no mutations
    random = np.random.default_rng(3)
    rows = random.integers(-1, 20, 5_000).astype(np.int32)
    times = BASE_MS + np.sort(random.integers(0, 300_000, 5_000))
    amounts = random.integers(0, 9_000, 5_000).astype(np.float64)
    rule = LimiterRule(operation=operation, tokens=tokens, closed=closed)
    limits = np.array([10.0, 900.0, 4_000.0, 1e9])
    together = Limiters(rule, np.tile(limits, (20, 1)))
    for part in np.array_split(np.arange(5_000), 7):
        together.run(rows[part], times[part], amounts[part])
    for place, limit in enumerate(limits):
        alone = Limiters(rule, np.full((20, 1), limit))
        alone.run(rows, times, amounts)
        assert alone.counts[:, 0].tolist() == together.counts[:, place].tolist()
        assert alone.amounts[:, 0].tolist() == together.amounts[:, place].tolist()
        for share in (0.5, 0.95, 0.99):
            assert alone.percentiles_ms(share)[:, 0].tolist() == together.percentiles_ms(share)[:, place].tolist()
    assert together.counts[:, 0, loop.THROTTLED].sum() > 0


def test_a_row_can_be_added_and_a_limit_changed_between_two_calls() -> None:
    limiters = Limiters(LimiterRule(), np.array([[1000.0]]))
    limiters.run(np.array([0], dtype=np.int32), np.array([BASE_MS]), np.array([5_000.0]))
    limiters.rebound(np.array([[100.0], [100.0]]))
    rows, times = np.array([1, 0], dtype=np.int32), np.array([BASE_MS, BASE_MS])
    trace = limiters.trace(rows, times, np.array([5_000.0, 0.0]))
    assert trace.throttle_ms[:, 0].tolist() == [40_000, 40_000]


def test_nothing_comes_of_no_events_and_of_no_rows() -> None:
    nothing = np.empty(0, dtype=np.int64)
    limiters = Limiters(LimiterRule(), np.full((3, 2), 5.0))
    limiters.run(nothing.astype(np.int32), nothing, nothing.astype(np.float64))
    assert limiters.counts[:, :, loop.EVENTS].sum() == 0
    Limiters(LimiterRule(), np.empty((0, 2))).run(
        np.full(4, -1, dtype=np.int32), np.zeros(4, dtype=np.int64), np.ones(4)
    )


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([0, 3], 2, "events of rows 0 to 3, but there are 3"),
        ([-2, 0], 2, "events of rows -2 to 0, but there are 3"),
        ([0, 1], 1, "2 rows of events, but columns of"),
    ],
)
def test_events_that_do_not_fit_are_refused_before_anything_is_written(rows, columns, message) -> None:
    limiters = Limiters(LimiterRule(), np.full((3, 1), 5.0))
    events = np.array(rows, dtype=np.int32), np.full(columns, BASE_MS), np.ones(2)
    for take in (limiters.run, limiters.trace):
        with pytest.raises(ValueError, match=message):
            take(*events)
    assert limiters.counts[:, :, loop.EVENTS].sum() == 0


@pytest.mark.parametrize("tokens", [False, True])
def test_rings_of_another_size_than_the_rules_are_refused(tokens) -> None:
    narrow, wide = QuotaWindow(samples=2, window_s=1), QuotaWindow(samples=200, window_s=1)
    limiters = Limiters(LimiterRule(window=narrow, tokens=tokens), np.full((3, 1), 5.0))
    events = np.zeros(1, dtype=np.int32), np.full(1, BASE_MS), np.ones(1)
    limiters.run(*events)
    if tokens:
        limiters.bounds = np.full((4, 1), 5.0)  # not by `rebound`, which makes place for the row
    else:
        limiters.rule = LimiterRule(window=wide)
    with pytest.raises(ValueError, match="where the rule and the bounds need"):
        limiters.run(*events)


def test_a_percentile_of_delays_is_at_most_one_in_thirty_two_off() -> None:
    rows, times = np.zeros(400, dtype=np.int32), BASE_MS + np.arange(400) * 50
    amounts = np.random.default_rng(2).integers(0, 2_000, 400).astype(np.float64)
    limiters = Limiters(LimiterRule(), np.full((1, 1), 5_000.0))
    delays = limiters.trace(rows, times, amounts).throttle_ms[:, 0]
    delays = np.sort(delays[delays > 0])
    for share in (0.5, 0.95, 0.99, 1.0):
        exact = delays[int(np.ceil(share * delays.size)) - 1]
        assert limiters.percentiles_ms(share)[0, 0] == pytest.approx(exact, rel=1 / 32)


def test_parts_of_any_size_come_to_the_same(monkeypatch) -> None:
    random = np.random.default_rng(8)
    rows = random.integers(0, 9, 3_000).astype(np.int32)
    times = BASE_MS + np.sort(random.integers(0, 700, 3_000)) * 100  # many events at a time
    amounts = random.integers(0, 5_000, 3_000).astype(np.float64)
    found = []
    for part_events in (1 << 16, 50, 1):
        monkeypatch.setattr("kafka_quotas.pipeline.kernels.limiters._PART_EVENTS", part_events)
        limiters = Limiters(LimiterRule(closed=True), np.full((9, 1), 4_000.0))
        limiters.run(rows, times, amounts)
        found.append(limiters.counts.tolist())
    assert found[0] == found[1] == found[2]
    assert sum(lane[0][loop.THROTTLED] for lane in found[0]) > 0
