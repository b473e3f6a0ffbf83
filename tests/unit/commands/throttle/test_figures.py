"""The documents' worked figures, through the calculator's plain functions."""

import pytest

from kafka_quotas.commands.throttle.mutation import (
    Burst,
    burst_outcome,
    throttle_compare,
    throttle_mutation,
)
from kafka_quotas.commands.throttle.rate import (
    Calculation,
    CalculatorAnswer,
    RateTraffic,
    RequestLoad,
    throttle_rate,
    throttle_request,
)
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.model.value_format import format_amount
from kafka_quotas.core.quotas.simulation import MUTATION_ALGORITHMS, Algorithm

DEFAULT = QuotaWindow()
KIP_599 = Burst(quota=5, partitions=560, window=QuotaWindow(samples=100))


def calculation(answer: CalculatorAnswer, method: str) -> Calculation:
    return next(each for each in answer.calculations if each.method == method)


def figures(found: Calculation) -> dict[str, str]:
    return {step.name: format_amount(step.value, step.unit) for step in found.steps}


def arithmetic(found: Calculation) -> dict[str, str]:
    return {step.name: step.arithmetic for step in found.steps}


def test_kip_13_60_mb_against_50_mb_is_a_delay_of_2_s() -> None:
    answer = throttle_rate(RateTraffic(quota=5e6, steady=5e6, burst=15e6), DEFAULT)
    kip = calculation(answer, "kip-13")
    assert figures(kip) == {
        "window": "10 s",
        "produced": "60 MB",
        "bound": "50 MB",
        "rate": "6 MB/s",
        "delay": "2 s",
    }
    assert arithmetic(kip)["produced"] == "9 x 5 MB + 15 MB"
    assert arithmetic(kip)["delay"] == "(60 MB - 50 MB) / 5 MB/s"
    assert kip.delay_ms == 2000


def test_the_shipped_rate_gives_3_s_at_the_start_of_a_sample_and_2_1_s_at_its_end() -> None:
    answer = throttle_rate(RateTraffic(quota=5e6, steady=5e6, burst=15e6), DEFAULT)
    start, end = calculation(answer, "kafka-start"), calculation(answer, "kafka-end")
    assert figures(start) == {
        "window": "11 s",
        "produced": "70 MB",
        "bound": "55 MB",
        "rate": "6.364 MB/s",
        "delay": "3 s",
    }
    assert (figures(end)["window"], figures(end)["produced"], end.delay_ms) == ("10.9 s", "65 MB", 2100)


def test_an_idle_client_may_send_a_whole_window_at_once() -> None:
    answer = throttle_rate(RateTraffic(quota=5e6, burst=50e6), DEFAULT)
    assert {each.delay_ms for each in answer.calculations} == {0}
    assert "is not above" in arithmetic(calculation(answer, "kafka-start"))["delay"]
    over = throttle_rate(RateTraffic(quota=5e6, burst=55e6), DEFAULT)
    assert [each.delay_ms for each in over.calculations] == [1000, 1000, 1000]


def test_other_windows_give_other_delays() -> None:
    traffic = RateTraffic(quota=5e6, steady=5e6, burst=15e6)
    small = throttle_rate(traffic, QuotaWindow(samples=3, window_s=2))
    kip = calculation(small, "kip-13")
    assert (figures(kip)["produced"], figures(kip)["bound"], kip.delay_ms) == ("35 MB", "30 MB", 1000)
    ten = calculation(throttle_rate(traffic, QuotaWindow(samples=10)), "kip-13")
    assert (figures(ten)["produced"], figures(ten)["bound"], ten.delay_ms) == ("60 MB", "50 MB", 2000)
    single = throttle_rate(traffic, QuotaWindow(samples=1))
    assert figures(calculation(single, "kip-13"))["produced"] == "15 MB"


def test_an_observed_rate_is_judged_over_the_shortest_and_the_longest_window() -> None:
    answer = throttle_rate(RateTraffic(quota=5e6, observed=6e6), DEFAULT)
    assert [(each.method, each.delay_ms) for each in answer.calculations] == [
        ("shortest-window", 2000),
        ("longest-window", 2400),
    ]
    given = throttle_rate(RateTraffic(quota=50, observed=100, over_ms=2000), DEFAULT)
    assert [each.delay_ms for each in given.calculations] == [2000]  # QuotaUtilsTest


@pytest.mark.parametrize(
    "traffic",
    [
        RateTraffic(quota=5),
        RateTraffic(quota=5, observed=6, burst=7),
        RateTraffic(quota=5, burst=7, over_ms=1000),
    ],
)
def test_a_question_without_a_meaning_is_refused(traffic: RateTraffic) -> None:
    with pytest.raises(UsageError):
        throttle_rate(traffic, DEFAULT)


def test_kip_124_a_stall_of_100_ms_at_a_tenth_of_a_per_cent_is_100_s_unbounded_and_1_s_bounded() -> None:
    answer = throttle_request(RequestLoad(quota=0.1, stall_ms=100), DEFAULT)
    for method in ("kip-124", "kafka"):
        found = calculation(answer, method)
        assert figures(found)["delay, unbounded"] == "100 s"
        assert figures(found)["delay"] == "1 s"
        assert found.delay_ms == 1000
    assert arithmetic(calculation(answer, "kip-124"))["delay, unbounded"] == "(10.1 % - 0.1 %) / 0.1 % x 1 s"


def test_a_stall_of_an_idle_client_is_diluted_by_the_window() -> None:
    answer = throttle_request(RequestLoad(quota=0.1, stall_ms=100, steady=0), DEFAULT)
    assert figures(calculation(answer, "kip-124"))["delay, unbounded"] == "99 s"
    assert figures(calculation(answer, "kafka"))["delay, unbounded"] == "90 s"


def test_one_per_cent_of_a_second_is_10_ms() -> None:
    worth = calculation(throttle_request(RequestLoad(quota=1), DEFAULT), "worth")
    assert figures(worth) == {
        "time per window": "10 ms",
        "threads": "0.01 threads",
        "capacity": "1100 %",
        "share of capacity": "0.0909091 %",
    }
    halves = RequestLoad(quota=50, io_threads=4, network_threads=1)
    wide = calculation(throttle_request(halves, QuotaWindow(window_s=2)), "worth")
    assert (figures(wide)["time per window"], figures(wide)["share of capacity"]) == ("1 s", "10 %")


@pytest.mark.parametrize(("quota", "expected"), [(1, "100 ms"), (50, "500 ms")])
def test_the_most_a_client_can_use_is_the_larger_of_quota_and_c_times_r(quota: float, expected: str) -> None:
    answer = throttle_request(RequestLoad(quota=quota, connections=4, request_ms=25), DEFAULT)
    assert figures(calculation(answer, "ceiling"))["most per window"] == expected


def test_a_quota_above_the_capacity_is_said_to_hold_nobody_back() -> None:
    assert throttle_request(RequestLoad(quota=1100), DEFAULT).notes == ()
    (note,) = throttle_request(RequestLoad(quota=1101), DEFAULT).notes
    assert "never holds anybody back" in note


def test_kip_599_the_burst_of_560_in_all_four_algorithms() -> None:
    comparison = throttle_compare(KIP_599)
    assert [
        (each.algorithm.value, each.level, each.delay_ms, each.admitted_after_ms, each.retries, each.retried_ms)
        for each in comparison.outcomes
    ] == [
        ("token-bucket", -60, 12_000, 12_000, 1, 12_000),
        ("rate", 5.6, 12_000, 101_000, 9, 108_000),
        ("rate-spread-even", 5.6, 12_000, 11_000, 1, 12_000),
        ("rate-spread-fill", 5.6, 12_000, 12_000, 1, 12_000),
    ]


def test_kip_599_the_states_over_time() -> None:
    rows = {row.after_ms: row for row in throttle_compare(KIP_599).states}
    levels = {after_ms: tuple(row.levels.values()) for after_ms, row in rows.items()}
    admits = {after_ms: tuple(row.admits.values()) for after_ms, row in rows.items()}
    assert levels[0] == (-60, 5.6, 5.6, 5.6)
    assert levels[11_000] == pytest.approx((-5, 5.6, 4.984, 5.05))
    assert admits[11_000] == (False, False, True, False)
    assert levels[12_000] == pytest.approx((0, 5.6, 4.928, 5))
    assert admits[12_000] == (True, False, True, True)
    assert admits[100_000] == (True, False, True, True)
    assert admits[101_000] == (True, True, True, True)


def test_kip_599_how_each_algorithm_keeps_the_burst() -> None:
    kept = {
        algorithm: arithmetic(throttle_mutation(KIP_599, algorithm).calculations[0])
        for algorithm in MUTATION_ALGORITHMS
    }
    assert kept[Algorithm.TOKEN_BUCKET]["full bucket"] == "5/s x 100 x 1 s"
    assert kept[Algorithm.TOKEN_BUCKET]["tokens after the burst"] == "500 - 560"
    assert kept[Algorithm.TOKEN_BUCKET]["delay"] == "60 / 5"
    assert kept[Algorithm.RATE]["current sample"] == "one sample of 560"
    assert kept[Algorithm.RATE]["delay"] == "(5.6 - 5) / 5 x 100 s"
    assert kept[Algorithm.SPREAD_EVEN]["current sample"] == "100 samples of 5.6"
    assert kept[Algorithm.SPREAD_FILL]["current sample"] == "99 samples of up to 5, one of 65"


def test_strict_clients_get_error_89_and_older_ones_are_muted() -> None:
    answer = throttle_mutation(KIP_599, Algorithm.TOKEN_BUCKET)
    strict, permissive = calculation(answer, "strict"), calculation(answer, "permissive")
    assert arithmetic(strict)["the burst"] == "admitted: 500 tokens >= 0"
    assert arithmetic(strict)["a request right after"] == "error 89 THROTTLING_QUOTA_EXCEEDED, wait 60 / 5"
    assert (strict.delay_ms, permissive.delay_ms) == (12_000, 12_000)
    assert arithmetic(permissive)["the burst"] == "accepted, connection muted for 60 / 5"


def test_a_burst_within_the_credit_costs_nothing() -> None:
    fits = Burst(quota=5, partitions=500, window=QuotaWindow(samples=100))
    answer = throttle_mutation(fits, Algorithm.TOKEN_BUCKET)
    assert [each.delay_ms for each in answer.calculations] == [0, 0, 0]
    assert arithmetic(calculation(answer, "strict"))["a request right after"] == "admitted: 0 tokens >= 0"
    assert burst_outcome(fits, Algorithm.TOKEN_BUCKET).admitted_after_ms == 0


def test_the_window_of_the_rate_grows_within_a_sample_and_may_admit_early() -> None:
    # 503 over 100.6 s is 5: the window begins at 100 s and grows until the next whole second
    assert burst_outcome(Burst(quota=5, partitions=503, window=KIP_599.window), Algorithm.RATE).admitted_after_ms == 600


def test_admission_is_found_to_the_millisecond() -> None:
    for algorithm in MUTATION_ALGORITHMS:
        for partitions in (501, 560, 733, 5000):
            burst = Burst(quota=5, partitions=partitions, window=KIP_599.window)
            after_ms = burst_outcome(burst, algorithm).admitted_after_ms
            rows = throttle_compare(burst).states
            assert all(not row.admits[algorithm.value] for row in rows if row.after_ms < after_ms)


def test_a_wait_beyond_all_counting_is_refused() -> None:
    with pytest.raises(UsageError, match="longer than Kafka can count"):
        burst_outcome(Burst(quota=1e-6, partitions=1e15, window=DEFAULT), Algorithm.TOKEN_BUCKET)
