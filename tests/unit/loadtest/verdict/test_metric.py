"""The highest rate of a client by the measures of Kafka's system test."""

import math

import pytest

from kafka_quotas.loadtest.measurement.traces import Slot
from kafka_quotas.loadtest.verdict.thresholds import peak_client_rate, peak_minute_rate


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
