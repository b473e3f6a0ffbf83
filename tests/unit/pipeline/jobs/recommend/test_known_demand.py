"""Recommendations for random workloads of known demand: what fits is not held, and a capacity is kept if it fits."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.pipeline.memory_events import memory_events, produced

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.jobs.recommend.advice import Advice
from kafka_quotas.pipeline.jobs.recommend.job import recommend
from kafka_quotas.pipeline.jobs.recommend.plan import RecommendPlan

DAY_MS = 86_400_000
DAYS = 8
SECONDS = 120
"""Recorded in each day, ten times the quota's window, for the demand of a window is a little above the mean."""


class Client(NamedTuple):
    """A client of known demand in bytes/s."""

    rate: int
    burst: int = 1
    """By which factor it sends more in every tenth second."""
    is_declining: bool = False
    """Whether it sent ten times as much in the first half of the days."""
    has_incident: bool = False
    """Whether it sent fifty times as much on one day."""

    @property
    def peak(self) -> float:
        """The most that it sends over a window of 11 s, which has two bursts."""
        return self.rate * (9 + 2 * self.burst) / 11

    def on(self, day: int) -> int:
        """The rate of a day."""
        return self.rate * (
            10 if self.is_declining and day < DAYS // 2 else 50 if self.has_incident and day == 5 else 1
        )


clients = st.lists(
    st.builds(
        Client,
        rate=st.integers(10_000, 100_000).map(lambda rate: rate // 100 * 100)
        | st.sampled_from([500_000, 2_000_000, 5_000_000]),
        burst=st.sampled_from([1, 1, 4]),
        is_declining=st.sampled_from([False, False, False, True]),
        has_incident=st.sampled_from([False, False, False, True]),
    ).filter(lambda each: not (each.is_declining and each.has_incident)),
    min_size=1,
    max_size=12,
)


def rows(workload: list[Client]) -> Iterator[dict[str, Any]]:
    """One request a second for each client, on each day at the same hour."""
    for number, client in enumerate(workload):
        for day in range(DAYS):
            yield from produced(
                f"client-{number:02}",
                client.on(day),
                burst=client.burst,
                requests=1,
                seconds=SECONDS,
                start_ms=day * DAY_MS,
            )


def advice_of(workload: list[Client], *, capacity: float | None = None, overrides: int | None = None) -> Advice:
    capacities = None if capacity is None else {-1: {QuotaType.PRODUCE: capacity}}
    plan = RecommendPlan(overrides=overrides, capacity_share=1.0, capacities=capacities, min_recorded_s=1)
    (found,) = recommend(memory_events(rows(workload)), plan, step=lambda _: None).advices
    return found


def limit_of(advice: Advice, number: int) -> float:
    return advice.limits().get((f"client-{number:02}", ""), advice.default)


@settings(deadline=None, max_examples=7)
@given(workload=clients, overrides=st.none() | st.integers(0, 3), share=st.floats(0.3, 3.0))
def test_nobody_whose_demand_is_known_is_held_or_gets_far_more_and_a_capacity_cuts_only_what_does_not_fit(
    workload: list[Client], overrides: int | None, share: float
) -> None:
    advice = advice_of(workload, overrides=overrides)
    assert advice.exceeding_clients == 0
    for number, client in enumerate(workload):
        assert limit_of(advice, number) >= client.peak
    for each in advice.overrides:
        client = workload[int(str(each.demand.user)[-2:])]
        assert each.limit <= 1.5 * client.peak
    noted = {str(each.user) for each in advice.most_partial}
    assert noted == {
        f"client-{number:02}" for number, each in enumerate(workload) if each.is_declining or each.has_incident
    }
    (load,) = advice_of(workload, overrides=overrides, capacity=1e15).loads
    assert load.wanted > 0
    bounded = advice_of(workload, overrides=overrides, capacity=load.wanted * share)
    (found,) = bounded.loads
    assert found.wanted == pytest.approx(load.wanted)
    if share >= 1:
        assert (bounded.default, bounded.limits(), found.fits) == (advice.default, advice.limits(), True)
    else:
        assert found.fits is False
        assert found.allowed <= found.available * (1 + 1e-9)
