"""Whatever consumers do, what they get stays within the quota, and something always comes."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.daemon.fetchers import Fetcher, FetchWorld

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.fetch_queue import LONGEST_MS
from kafka_quotas.enforcement.config.client_policy import FetchOverQuota, Mode
from kafka_quotas.enforcement.config.rules import EnforcementRules

LIMIT = 50_000.0
TIME_MS = 20_000
SAMPLES = 4
MODES = (Mode.KAFKA, Mode.SMOOTH)
consumers = st.lists(
    st.tuples(
        st.sampled_from([1, 10_000, 200_000, 50_000_000]),  # bytes asked for
        st.sampled_from([500, 5_000, 40_000, 150_000]),  # the least that the broker returns
        st.booleans(),  # a connection for each Fetch
        st.booleans(),  # waits for its throttle times
        st.integers(0, 2_000),  # when it starts
        # Part of the time in which there is data, each time for longer than an answer takes: a client whose requests
        # all end before it and begin after it gets nothing.
        st.sampled_from([1.0, 0.5, 0.1]),
    ),
    min_size=1,
    max_size=12,
)


WORLDS = given(
    consumers, st.sampled_from([Mode.KAFKA, Mode.SMOOTH]), st.sampled_from(list(FetchOverQuota)), st.integers(1, 300)
)


@settings(max_examples=12, deadline=None)
@WORLDS
def test_deliveries_stay_within_the_quota_and_go_on(
    drawn: list[tuple[int, int, bool, bool, int, float]], mode: Mode, fetches: FetchOverQuota, latency_ms: int
) -> None:
    require_bounds(drawn, mode, fetches, latency_ms)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@WORLDS
def test_deliveries_of_many_worlds_stay_within_the_quota_and_go_on(
    drawn: list[tuple[int, int, bool, bool, int, float]], mode: Mode, fetches: FetchOverQuota, latency_ms: int
) -> None:
    require_bounds(drawn, mode, fetches, latency_ms)


def require_bounds(
    drawn: list[tuple[int, int, bool, bool, int, float]], mode: Mode, fetches: FetchOverQuota, latency_ms: int
) -> None:
    rules = EnforcementRules(window=QuotaWindow(samples=SAMPLES, window_s=1), mode=mode, fetch_over_quota=fetches)
    world = FetchWorld(limit=LIMIT, rules=rules, latency_ms=latency_ms)
    fetchers = [
        world.add(
            Fetcher(
                asks_bytes=asks,
                batch_bytes=batch,
                reconnects=reconnects,
                waits=waits,
                has_data=lambda at_ms, part=part: at_ms % 4000 <= 4000 * part,  # type: ignore[misc]
            ),
            after_ms=after_ms,
        )
        for asks, batch, reconnects, waits, after_ms, part in drawn
    ]
    world.run(TIME_MS)
    capacity = LIMIT * (1 if mode is Mode.SMOOTH else SAMPLES - 1)
    got = sorted(each for fetcher in fetchers for each in fetcher.got)
    longest = max((size for _, size in got), default=0)
    # A broker's window lets its whole samples through, and what the current one adds to them.
    burst = max(1.25 * capacity, 0.25 * capacity + longest) + (LIMIT if fetches is FetchOverQuota.KAFKA else 0)
    total = 0
    for at_ms, size in got:
        total += size
        assert total <= LIMIT * at_ms / 1000 + burst + 1
    if fetches is FetchOverQuota.DELIVER:
        gaps_ms = [later - earlier for (earlier, _), (later, _) in pairwise(got)]
        drained_ms = 1000 * (longest + capacity) / LIMIT
        assert got
        assert max(gaps_ms, default=0) <= drained_ms + LONGEST_MS + 4000 + 1000
        assert max(max(each.told_ms, default=0) for each in fetchers) <= LONGEST_MS
