"""Demand from recorded rates and throttle times: what is implied, by hour of the week, with growth and an interval."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kafka_quotas.pipeline.jobs.usage.demand import HeldTime, demand_columns
from kafka_quotas.pipeline.tables.results import DEMAND

MONDAY_S = 1_795_392_000  # 2026-11-23 0:00 UTC
DAY_S = 86_400


def row(**columns: NDArray[Any]) -> dict[str, Any]:
    """Return the demand of one row with these seconds and rates."""
    held = columns.pop("held", None)
    horizon_days = columns.pop("horizon_days", 0.0)
    seconds = columns["seconds"]
    rows = np.zeros(seconds.size, np.int64)
    known = held if isinstance(held, HeldTime) else HeldTime()
    found = demand_columns(rows, seconds, columns["rates"], known, horizon_days=float(horizon_days))
    return {each.name: column[0].as_py() for each, column in zip(DEMAND, found, strict=True)}


def days(values: list[float]) -> dict[str, NDArray[Any]]:
    """Return ten minutes of each day at a rate of its own."""
    seconds = np.concatenate([MONDAY_S + day * DAY_S + np.arange(600) for day in range(len(values))])
    return {"seconds": seconds, "rates": np.repeat(values, 600)}


def throttled(wanted: float, allowed: float, *, connections: int = 1, times: int = 1) -> HeldTime:
    """Return ten minutes of clients who each wait for their response before they send what is due.

    Each request is answered `times` times, which is what several requests under way at once look like.
    """
    held, at_ms, found = HeldTime(), MONDAY_S * 1000, []
    amount = allowed / connections
    throttle_ms = round(1000 * (1 - allowed / wanted))
    for second in range(600):
        for connection in range(connections):
            found += [(connection, at_ms + second * 1000, amount / times, throttle_ms)] * times
    connection_numbers, times_ms, amounts, throttles = (np.array(column) for column in zip(*found, strict=True))
    rows = np.zeros(len(found), np.int32)
    half = len(found) // 2
    for part in (slice(0, half), slice(half, None)):
        held.add(
            rows[part], connection_numbers[part], times_ms[part], amounts=amounts[part], throttle_ms=throttles[part]
        )
    return held


STEADY = {"seconds": MONDAY_S + np.arange(600), "rates": np.full(600, 1000.0)}


@pytest.mark.parametrize(("connections", "times"), [(1, 1), (8, 1), (1, 5)])
def test_throttle_times_imply_what_a_waiting_client_wanted(connections: int, times: int) -> None:
    found = row(**STEADY, held=throttled(3000.0, 1000.0, connections=connections, times=times))
    assert found["demand"] == pytest.approx(3000.0, rel=0.05)
    assert found["held_share"] == pytest.approx(2 / 3, rel=0.05)
    assert not found["is_unknown"]


def test_who_was_held_back_nearly_all_the_time_shows_only_what_it_got() -> None:
    found = row(**STEADY, held=throttled(100_000.0, 1000.0))
    assert found["is_unknown"]
    assert found["demand"] == pytest.approx(1000.0, rel=0.05)


def test_bursts_of_a_client_that_is_held_back_do_not_raise_its_demand() -> None:
    rates = np.where(np.arange(600) % 10 == 0, 4000.0, 1000.0)
    found = row(seconds=STEADY["seconds"], rates=rates, held=throttled(100_000.0, 1000.0))
    assert found["demand"] == pytest.approx(1000.0, rel=0.05)


def test_without_throttle_times_the_busiest_hour_of_the_week_counts() -> None:
    found = row(**days([100.0] * 4 + [700.0] + [100.0] * 9))
    assert (found["demand"], found["busiest_hour"], found["held_share"]) == (700.0, 4 * 24, 0.0)


def test_old_weeks_fade() -> None:
    once, lately = [0.0] * 7 * 20, [0.0] * 7 * 20
    once[0], lately[-7] = 1000.0, 1000.0
    assert row(**days(once))["demand"] == 0.0
    assert row(**days(lately))["demand"] == 1000.0


def test_growth_from_week_to_week_goes_on_to_the_horizon() -> None:
    rising = days([1000.0 + 10.0 * day for day in range(28)])
    assert row(**rising)["growth"] == 1.0
    found = row(**rising, horizon_days=np.float64(90))
    assert found["growth"] == pytest.approx(1 + 900 / 1240, rel=0.01)
    assert found["demand"] == pytest.approx(1270 * found["growth"], rel=0.03)


def test_a_weekend_is_no_decline_and_thirteen_days_no_trend() -> None:
    week = [1000.0] * 5 + [10.0] * 2
    assert row(**days(week * 4), horizon_days=np.float64(90))["growth"] == 1.0
    assert row(**days([100.0 * day for day in range(1, 14)]), horizon_days=np.float64(90))["growth"] == 1.0


def test_the_interval_is_as_wide_as_days_differ_and_missing_for_two_of_them() -> None:
    assert row(**days([500.0, 900.0]))["low"] is None
    same, varied = row(**days([500.0] * 7)), row(**days([100.0, 900.0, 200.0, 300.0, 150.0, 250.0, 120.0]))
    assert (same["low"], same["high"]) == (500.0, 500.0)
    assert varied["low"] < 500.0 < varied["high"] == varied["demand"] == 900.0


@pytest.mark.parametrize(("number", "is_incident"), [(8, True), (5, True), (4, False), (3, False)])
def test_one_day_at_ten_times_the_usual_level_is_an_incident_and_no_demand(number: int, is_incident: bool) -> None:
    found = row(**days([100.0] * (number - 1) + [2000.0]))
    assert found["demand"] == (100.0 if is_incident else 2000.0)
    begin_ms = (MONDAY_S + (number - 1) * DAY_S) * 1000
    expected = (begin_ms, 600, 2000.0) if is_incident else (None, None, None)
    assert (found["incident_ms"], found["incident_s"], found["incident_rate"]) == expected


def test_what_comes_again_or_is_less_than_ten_times_as_much_is_no_incident() -> None:
    assert row(**days([100.0, 2000.0] + [100.0] * 5 + [2000.0]))["demand"] == 2000.0
    assert row(**days([100.0] * 7 + [900.0]))["demand"] == 900.0


def test_a_decline_leaves_the_recent_half_of_the_days_and_a_weekend_is_none() -> None:
    found = row(**days([3000.0] * 4 + [100.0, 120.0, 100.0, 100.0]))
    assert (found["demand"], found["declined_from"], found["days"]) == (120.0, 3000.0, 4)
    for levels in ([3000.0] * 3 + [100.0] * 4, [1000.0] * 5 + [10.0] * 2 + [1000.0], [3000.0] * 4 + [1600.0] * 4):
        found = row(**days(levels))
        assert (found["demand"], found["declined_from"]) == (max(levels), None)
