"""Throttle times that a broker sets itself, in responses that the session changes."""

import struct

import pytest
from tests.support.frames.enforcement import START_MS, Pair, fetch, fetch_response, response, throttle_of

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import FetchOverQuota


@pytest.mark.parametrize(("theirs_ms", "waited_ms"), [(9000, 9000), (2999, 3000), (0, 3000)])
@pytest.mark.parametrize("version", [1, 4])
def test_the_longer_throttle_time_counts_for_a_fetch_that_is_emptied(
    version: int, theirs_ms: int, waited_ms: int
) -> None:
    pair = Pair(quotas={QuotaType.FETCH: 1000.0}, fetch_over_quota=FetchOverQuota.KAFKA)
    pair.send(fetch(1, version=version))
    data = fetch_response(1, size=5004, version=version, throttle_ms=theirs_ms)
    out = pair.answer(data[:11])
    out += pair.answer(data[11:])
    assert out == response(1, struct.pack(">i", waited_ms) + bytes(4))
    assert throttle_of(out) == waited_ms
    assert pair.session.state.wake_at_ms == START_MS + waited_ms
    counts = [(count.times, count.total_ms) for count in pair.throttle_stats.set_upstream.by_bucket.values()]
    assert counts == ([(1, theirs_ms)] if theirs_ms else [])
