"""Thresholds that end a run: which figures they may name, and when they are broken."""

import pytest
from tests.support.load.recordings import MS, RecordedClient, recorded

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.verdict.thresholds import AbortCheck, parse_abort


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
