"""What `top` and `why` make of a daemon's status and metrics."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.daemon.statuses import bucket_row, daemon_status
from tests.support.stores.stored_quotas import new_store

from kafka_quotas.commands.insight.usage import top, usage_of_daemon
from kafka_quotas.commands.insight.why import why
from kafka_quotas.core.formats.metric_names import BUILT_IN, parse_metrics, usages_of
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import RecentThrottling
from kafka_quotas.enforcement.telemetry.status import BucketRow
from kafka_quotas.stores import open_store

PRODUCE = "producer_byte_rate"
MUTATIONS = "controller_mutation_rate"


def mutations(tokens: float, *, rate: float, throttle_ms: float = 0.0, broker: str = "1") -> BucketRow:
    """A bucket of tokens for client app, which may create one partition a second."""
    return bucket_row(
        quota=MUTATIONS, limit=1.0, observed=tokens, broker=broker, mutation_rate=rate, throttle_ms=throttle_ms
    )


def test_what_is_used_of_a_mutation_quota_is_the_rate_and_not_the_tokens_that_are_left(tmp_path: Path) -> None:
    url = new_store(tmp_path, {Entity.of(client_id="app"): {MUTATIONS: 1.0}})
    idle = usage_of_daemon(daemon_status(buckets=(mutations(11.0, rate=0.0),)))
    assert [(usage.observed, usage.throttle_ms) for usage in idle.usages] == [(0.0, 0.0)]
    with closing(open_store(url)) as store:
        (row,) = top(store, idle).rows
        assert (row.share, row.held_back) == (0.0, False)
        indebted = usage_of_daemon(daemon_status(buckets=(mutations(-14.2, rate=0.5),)))
        (row,) = top(store, indebted).rows
        assert (row.share, row.held_back) == (0.5, True)
        assert row.usage.throttle_ms == pytest.approx(14_200.0)
        answer = why(store, indebted, user=None, client_id="app")
        assert answer.culprit is not None
        assert answer.culprit.quota.key.name == MUTATIONS


def test_a_client_is_held_back_between_two_short_throttle_times_as_well(tmp_path: Path) -> None:
    url = new_store(tmp_path, {Entity.of(client_id="held"): {PRODUCE: 5e6}})
    bucket = bucket_row(client_id="held", limit=5e6, observed=5e6, throttle_ms=35.5)
    minute = {"last_minute_times": 2, "last_minute_total_ms": 71, "last_minute_held_ms": 70}
    reading = usage_of_daemon(daemon_status(buckets=(replace(bucket, **minute),)))
    assert [(usage.last_minute, usage.is_waiting) for usage in reading.usages] == [
        (RecentThrottling(times=2, total_ms=71, held_ms=70), False)
    ]
    assert [usage.throttle_ms for usage in reading.usages] == [35.5]
    with closing(open_store(url)) as store:
        answer = why(store, reading, user=None, client_id="held")
    assert answer.culprit is not None
    assert answer.culprit.quota.key.name == PRODUCE


METRICS = """
kafka_server_controllermutation_tokens{broker="1",client_id="app",mode="kafka",user=""} -3.0
kafka_server_controllermutation_tokens_limit{broker="1",client_id="app",mode="kafka",user=""} 1.0
kafka_server_controllermutation_mutation_rate{broker="1",client_id="app",mode="kafka",user=""} 0.5
kafka_server_controllermutation_throttle_time{broker="1",client_id="app",mode="kafka",user=""} 250.0
kafka_server_produce_byte_rate{broker="1",client_id="app",mode="kafka",user=""} 5.0
kafka_server_produce_byte_rate_limit{broker="1",client_id="app",mode="kafka",user=""} 7.0
"""


def test_the_limits_that_a_daemons_metrics_tell_are_read() -> None:
    usages = usages_of(parse_metrics(METRICS), names=BUILT_IN, broker="daemon")
    assert [(usage.key, usage.observed, usage.limit, usage.throttle_ms) for usage in usages] == [
        (MUTATIONS, 0.5, 1.0, 250.0),
        (PRODUCE, 5.0, 7.0, None),
    ]
