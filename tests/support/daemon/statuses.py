"""The status of a daemon for tests: whole records, of which a test names only what it is about."""

from dataclasses import fields, replace
from typing import Any

from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.status import (
    BucketRow,
    DaemonStatus,
    FleetRow,
    StoreRow,
    ThrottledClient,
    ThrottleRow,
)

STORE = StoreRow(url="local:x", revision="1", age_ms=250, trouble=None, limits=2)
_STATUS = DaemonStatus(
    pid=1,
    uptime_ms=5000,
    event_loop="uvloop",
    upstream="h:1",
    throttle_style="mute",
    fetch_over_quota="deliver",
    window_num=11,
    window_size_seconds=1,
    max_throttle_ms=None,
    draining=False,
    connections=0,
    store=STORE,
    listeners=(),
    throttled=(),
    buckets=(),
    throttles=(),
    counters={field.name: 0 for field in fields(Counters)},
)
_WAITING = ThrottledClient(
    broker="1",
    user="u",
    client_id="a",
    quota="producer_byte_rate",
    entity="client-id a",
    limit=100.0,
    observed=150.0,
    connections=1,
    throttle_ms=500,
    remaining_ms=400,
)
_BUCKET = BucketRow(broker="1", quota="producer_byte_rate", user="", client_id="app", limit=100.0, observed=150.0)
_THROTTLE = ThrottleRow(
    quota="producer_byte_rate", user="", client_id="app", times=2, total_ms=200, upstream_times=1, upstream_total_ms=5
)
_FLEET = FleetRow(
    name="default",
    topic="kafka://127.0.0.1:9092/fleet",
    member="one:9192",
    members=2,
    others=("two:9192",),
    not_trusted=0,
    wrong_clocks=0,
    cut_off=False,
    fallback="share",
    trouble=None,
    shared_buckets=0,
    published_bytes=0,
    received_bytes=0,
)


def daemon_status(**changes: Any) -> DaemonStatus:
    """A daemon without clients."""
    return replace(_STATUS, **changes)


def waiting_client(**changes: Any) -> ThrottledClient:
    """A client over 100 bytes/s that waits another 400 ms."""
    return replace(_WAITING, **changes)


def bucket_row(**changes: Any) -> BucketRow:
    """A bucket of client-id `app`, over 100 bytes/s."""
    return replace(_BUCKET, **changes)


def throttle_row(**changes: Any) -> ThrottleRow:
    """A bucket of client-id `app` that was throttled twice, for 200 ms in all."""
    return replace(_THROTTLE, **changes)


def fleet_row(**changes: Any) -> FleetRow:
    """A fleet of two without trouble and without a secret."""
    return replace(_FLEET, **changes)
