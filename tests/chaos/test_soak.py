"""Two simulated weeks leave what a day leaves, and what judges the real hours of `python -m tests.chaos --soak`."""

import dataclasses

import pytest
from tests.chaos.fortnight import CONNECTIONS, DAYS, Fortnight
from tests.chaos.soak import Sample, SoakResult

SEED = 20261122
BASE = Sample(
    at_s=0.0, resident_bytes=40_000_000, descriptors=30, threads=4, timers=5, objects=6000, connections=4, buckets=400
)


@pytest.mark.parametrize("days", [7, pytest.param(DAYS, marks=pytest.mark.long)])
def test_weeks_of_traffic_leave_what_a_day_leaves(days: int) -> None:
    traffic = Fortnight(SEED)
    held = traffic.days(days)
    assert len(held) == days
    share = days / DAYS
    assert traffic.requests > 100_000 * share
    assert traffic.throttled > 10_000 * share
    assert traffic.held > 1_000 * share
    assert traffic.emptied > 1_000 * share
    assert traffic.strangers > 1_000 * share
    first, last = held[1:4], held[-3:]
    assert max(day.buckets for day in last) <= 2 * max(day.buckets for day in first) < traffic.strangers / 5
    assert min(day.objects for day in last) <= 1.02 * max(day.objects for day in first)
    assert min(day.blocks for day in last) <= 1.02 * max(day.blocks for day in first)
    assert max(day.timers for day in held) <= CONNECTIONS


def result(samples: list[Sample]) -> SoakResult:
    return SoakResult(samples=tuple(samples), records={}, connections={}, failures=())


def test_a_figure_that_grows_is_named() -> None:
    flat = [BASE] * 40
    assert result(flat).growth() == []
    leaking = [dataclasses.replace(BASE, descriptors=30 + number) for number in range(40)]
    (line,) = result(leaking).growth()
    assert line.startswith("descriptors: ")
