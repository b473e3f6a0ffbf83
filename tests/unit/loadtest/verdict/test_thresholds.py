"""Thresholds of one's own: what they mean, and what is told where they mean nothing."""

import math
from dataclasses import replace

import pytest
from tests.support.load.recordings import MS, RecordedClient, recorded
from tests.support.load.results import greedy, result, unlimited

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.judgement import Aspect, State
from kafka_quotas.loadtest.measurement.traces import Slot
from kafka_quotas.loadtest.verdict.thresholds import (
    METRICS,
    AbortCheck,
    check_entities,
    parse_abort,
    parse_expectation,
    peak_client_rate,
    peak_minute_rate,
)

RUN = result(greedy(), replace(unlimited(), control=True))


@pytest.mark.parametrize(
    "text",
    [
        "achieved/quota in 0.9..1.05",
        "achieved/quota in 90%..105%",
        "achieved/quota == 0.998",
        "entity(greedy).achieved > 1.9MB/s",
        "entity(greedy).achieved<=2000000",
        "entity(alice/free).achieved/offered >= 1",
        "entity(control).response.p99 < 50ms",
        "response.p99 in 12ms..12.4ms",
        "response.p999 <= 0.014s",
        "entity(greedy).throttle.count > 0",
        "entity(free).throttle.count == 0",
        "throttle.max < 2s",
        "entity(greedy).throttle.avg == 20ms",
        "records.failed != 1",
    ],
)
def test_what_is_met(text: str) -> None:
    judgement = parse_expectation(text).judge(RUN)

    assert (judgement.aspect, judgement.state, judgement.entity) == (Aspect.EXPECTATION, State.MET, None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("achieved/quota > 1", "achieved/quota > 1: greedy 0.998"),
        ("throttle.count > 0", "throttle.count > 0: alice/free 0"),
        ("response.p99 < 10ms", "response.p99 < 10ms: greedy 12.3 ms, alice/free 12.3 ms"),
        ("entity(control).response.p50 > 1s", "entity(control).response.p50 > 1s: alice/free 0.9 ms"),
        ("records.lost == 0", "records.lost == 0: no client of the run has that figure"),
        ("entity(nobody).achieved > 0", "entity(nobody).achieved > 0: no client of the run has that figure"),
    ],
)
def test_what_is_not_met_says_who_failed_and_by_what(text: str, told: str) -> None:
    judgement = parse_expectation(text).judge(RUN)

    assert (judgement.state, judgement.evidence) == (State.NOT_MET, told)


def test_of_many_who_failed_some_are_named() -> None:
    judgement = parse_expectation("achieved > 1GB/s").judge(result(*[greedy()] * 5))

    assert judgement.evidence.endswith("greedy 1.996 MB/s, greedy 1.996 MB/s, greedy 1.996 MB/s, and 2 more")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not an expectation"),
        ("achieved", "not an expectation"),
        ("achieved/quota in 0.9", "not an expectation"),
        ("achieved => 3", "not an expectation"),
        ("entity().achieved > 1", "not an expectation"),
        ("entity(a) > 1", "not an expectation"),
        ("latency.p99 < 5ms", "no such metric in 'latency.p99 < 5ms': latency.p99"),
        ("response < 5ms", "no such metric"),
        ("response.p99 < 50", "'50' in 'response.p99 < 50' is not a length of time"),
        ("achieved/quota in 1.1..0.9", "an empty range"),
        ("achieved/quota > many", "is not a share"),
        ("throttle.count > 5ms", "is not a number"),
        ("achieved > 5parsecs", "is not a rate"),
        ("achieved/quota > 1/0", "is not a share"),
    ],
)
def test_what_means_nothing_is_told_with_a_hint(text: str, told: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_expectation(text)

    assert told in raised.value.message
    assert raised.value.hint


def test_whoever_is_named_must_take_part() -> None:
    labels = ["alice/app", "batch"]
    named = parse_expectation("entity(app).achieved > 0"), parse_expectation("entity(batch).achieved > 0")
    check_entities(named, labels, has_control=False)
    check_entities((parse_expectation("entity(control).achieved > 0"),), labels, has_control=True)

    for name in ("nobody", "control"):
        with pytest.raises(UsageError, match=f"no client is named {name}"):
            check_entities((parse_expectation(f"entity({name}).achieved > 0"),), labels, has_control=False)


def test_every_metric_has_a_value_and_a_text() -> None:
    entity = greedy()

    for name, metric in METRICS.items():
        value = metric.of(entity)
        if value is not None:
            assert parse_expectation(f"{name} >= {_written(metric.text(value, entity.unit))}").metric is metric


def _written(text: str) -> str:
    return text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("response.p99 < 50ms", State.UNCHECKED),
        ("response.p99 in 1ms..50ms", State.UNCHECKED),
        ("response.p99 < 10ms", State.NOT_MET),  # it takes 12.3 ms at least
        ("response.p99 > 10ms", State.MET),
        ("response.p99 > 50ms", State.UNCHECKED),
        ("response.p90 < 50ms", State.MET),  # 5 of 100 had no answer
    ],
)
def test_a_lower_bound_decides_only_what_a_longer_time_would_decide_alike(text: str, state: State) -> None:
    open_ones = replace(greedy(), response=replace(greedy().response, censored=5))

    assert parse_expectation(text).judge(result(open_ones)).state is state


def answered(client: RecordedClient, response_ms: int, count: int) -> None:
    client.recorder.latency(intended_ns=0, sent_ns=0, acked_ns=response_ms * MS, count=count)


def check(*texts: str) -> AbortCheck:
    return AbortCheck(texts)


@pytest.mark.parametrize("text", ["achieved > 1MB/s", "achieved/quota < 1", "records.lost == 0", "throttle.avg < 1s"])
def test_what_is_known_at_the_end_only_ends_no_run(text: str) -> None:
    with pytest.raises(UsageError, match="known at the end"):
        parse_abort(text)


@pytest.mark.parametrize("text", ["throttle.count > 0", "records.acked >= 5", "records.sent != 0"])
def test_what_is_met_sooner_or_later_ends_no_run(text: str) -> None:
    with pytest.raises(UsageError, match="sooner or later"):
        parse_abort(text)


def test_a_percentile_ends_a_run_from_a_hundred_latencies_on() -> None:
    client, abort = recorded("app"), check("response.p99 < 50ms")

    answered(client, 200, 99)
    assert not abort.is_broken([client])
    answered(client, 200, 1)
    assert abort.is_broken([client])
    assert abort.broken == "response.p99 < 50ms: app 200.1 ms"


def test_one_long_latency_is_a_broken_maximum() -> None:
    client, abort = recorded("app"), check("service.max < 1s")
    answered(client, 20, 1)
    assert not abort.is_broken([client])
    answered(client, 1500, 1)
    assert abort.is_broken([client])


def test_counts_break_their_upper_bound_only() -> None:
    client = recorded("app")
    exact, within = check("records.failed == 2"), check("throttle.count in 1..2")

    assert not exact.is_broken([client])
    client.recorder.failed("TIMED_OUT", 2)
    assert not exact.is_broken([client])
    client.recorder.failed("TIMED_OUT", 1)
    assert exact.is_broken([client])

    assert not within.is_broken([client])
    for _ in range(3):
        client.recorder.throttled(0, 10)
    assert within.is_broken([client])


def test_a_threshold_for_one_client_leaves_others_alone() -> None:
    quiet, busy = recorded("quiet", control=True), recorded("busy")
    answered(busy, 500, 1000)

    assert not check("entity(quiet).response.p99 < 50ms", "entity(control).response.p50 < 50ms").is_broken(
        [quiet, busy]
    )
    assert check("entity(busy).response.p999 < 50ms").is_broken([quiet, busy])
    answered(quiet, 500, 100)
    assert check("entity(control).response.p50 < 50ms").is_broken([busy, quiet])


def samples(*rates: float, sample_s: int = 1) -> list[Slot]:
    return [Slot(start_ms=index * sample_s * 1000, rate=rate) for index, rate in enumerate(rates)]


def test_a_burst_of_a_window_is_spread_over_what_is_measured() -> None:
    burst = samples(11, *([0] * 10), *([1] * 29))  # eleven seconds' quota at once, then none, then the quota

    assert peak_client_rate(burst, sample_s=1) == pytest.approx((11 + 19) / 30)
    assert peak_minute_rate(burst, sample_s=1) < 1


def test_a_minutes_average_comes_near_a_steady_rate_from_below() -> None:
    after_a_minute = peak_minute_rate(samples(*([2.0] * 60)), sample_s=1)

    assert after_a_minute == pytest.approx(2 * (1 - math.exp(-1)))
    assert peak_client_rate(samples(*([2.0] * 60)), sample_s=1) == pytest.approx(2)


def test_longer_samples_tell_the_same() -> None:
    fine, coarse = samples(*([1.0] * 40)), samples(*([1.0] * 20), sample_s=2)

    assert peak_minute_rate(coarse, sample_s=2) == pytest.approx(peak_minute_rate(fine, sample_s=1), rel=0.05)
    assert peak_client_rate(coarse, sample_s=2) == pytest.approx(peak_client_rate(fine, sample_s=1))


def test_nothing_has_no_peak() -> None:
    assert peak_client_rate([], sample_s=1) == peak_minute_rate([], sample_s=1) == 0
