"""The status of a daemon as a person reads it: limits in their own units, and estimates called so."""

from dataclasses import replace

from tests.support.daemon.statuses import bucket_row, daemon_status, fleet_row, waiting_client

from kafka_quotas.cli.daemon.command import status_listing
from kafka_quotas.enforcement.telemetry.status import (
    DaemonStatus,
    QuotaTotals,
    ThrottledClient,
)


def waiting(quota: str, limit: float, observed: float, *, estimated: bool = False) -> ThrottledClient:
    return waiting_client(quota=quota, limit=limit, observed=observed, estimated=estimated)


def status(*throttled: ThrottledClient, refused: int = 0, shadow_times: int = 0) -> DaemonStatus:
    rows = [
        bucket_row(quota=row.quota, user="u", client_id="a", limit=1, observed=2, estimated=row.estimated)
        for row in throttled
    ]
    empty = daemon_status()
    return replace(
        empty,
        throttled=throttled,
        buckets=tuple(rows),
        quota_totals=(QuotaTotals(quota="producer_byte_rate", shadow_times=shadow_times),),
        counters=empty.counters | {"refused_requests": refused},
        mode="smooth",
        scope="cluster",
        on_violation="error",
        cost_model="calibrated with h:1",
    )


def test_the_buckets_that_were_throttled_in_the_last_minute_are_listed_by_how_long() -> None:
    quiet = status()
    assert "throttled in the last minute: nobody\nthrottled now: nobody" in str(status_listing(quiet).table.caption)
    minute = {"last_minute_times": 36, "last_minute_total_ms": 41_000, "last_minute_held_ms": 40_800}
    rows = [
        bucket_row(broker=broker, client_id=name, limit=1, observed=2, **held)
        for broker, name, held in (("1", "fine", {}), ("cluster", "less", minute | {"last_minute_held_ms": 60}))
    ]
    rows.append(replace(rows[0], user="al%20ice", **minute))
    rows.append(replace(rows[1], user=":group", client_id="payments", last_minute_held_ms=30))
    caption = str(status_listing(replace(quiet, buckets=tuple(rows))).table.caption)
    assert (
        "throttled in the last minute:\n"
        "  user 'al ice', client-id fine at broker 1 by producer_byte_rate: 36x 41 s, 68% of the minute\n"
        "  client-id less at all brokers together by producer_byte_rate: 36x 41 s, 0% of the minute\n"
        "  group payments at all brokers together by producer_byte_rate: 36x 41 s, 0% of the minute\n"
        "throttled now: nobody"
    ) in caption


def test_limits_are_in_their_own_units_and_estimates_are_called_so() -> None:
    listing = status_listing(
        status(
            waiting("producer_byte_rate", 1048576.0, 2097152.0),
            waiting("request_percentage", 5.0, 7.5, estimated=True),
            waiting("request_rate", 20.0, 40.0),
        )
    )
    assert [row[5:7] for row in listing.table.rows] == [
        ("1 MiB/s", "2 MiB/s"),
        ("5 % of one thread", "7.5 % of one thread (estimated)"),
        ("20 requests/s", "40 requests/s"),
    ]
    assert listing.table.caption is not None
    assert "request times: estimated, calibrated with h:1" in listing.table.caption


def test_the_terms_are_said_and_what_came_of_them_only_if_something_did() -> None:
    said = status_listing(status()).table.caption
    assert said is not None
    assert "mode: smooth, limits per cluster, over a limit: error" in said
    assert "estimated" not in said
    assert "refused with an error" not in said
    assert "shadows" not in said
    told = status_listing(status(refused=3, shadow_times=2)).table.caption
    assert told is not None
    assert "requests refused with an error for their client's byte rate: 3" in told
    assert "throttle times that shadows would have got: 2" in told


FLEET = fleet_row()


def test_a_fleet_without_a_secret_is_shown_with_the_acls_that_it_needs() -> None:
    caption = str(status_listing(replace(status(), fleet=replace(FLEET, signing=("two:9192",)))).table.caption)
    assert "NOT SIGNED; signed by two:9192; needs --fleet-secret-file, or ACLs on topic fleet: Create" in caption
    signed = str(status_listing(replace(status(), fleet=replace(FLEET, signs=True))).table.caption)
    assert "SIGNED" not in signed
    assert "did not count" not in signed


def test_members_that_are_not_trusted_and_what_was_refused_are_named() -> None:
    row = replace(
        FLEET, signs=True, not_trusted=1, strangers=("x:1: its reports are not signed",), refused={"unsigned": 7}
    )
    caption = str(status_listing(replace(status(), fleet=row)).table.caption)
    assert "fleet: NOT TRUSTED: x:1: its reports are not signed" in caption
    assert "fleet: reports that did not count: 7 unsigned" in caption
