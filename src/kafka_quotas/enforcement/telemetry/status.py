"""The status of a daemon, its JSON form, and the slices in which work over everything that a daemon keeps is done.

Times are milliseconds, rates and limits bytes per second. Lists are sorted and cut at `MAX_ROWS`: of buckets those stay
that use most of their limit, of throttle counts those with the longest times, of waiting clients those that wait
longest. `quota_totals` and `counters` are of all there are.

Sliced work is a generator that knows nothing of event loops: between two of its slices anything may happen.
"""

import asyncio
import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeVar

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.quota_key import REQUEST_PERCENTAGE
from kafka_quotas.enforcement.telemetry.throttle_history import HourRow

T = TypeVar("T")

MAX_ROWS: Final = 1000
ESTIMATED: Final = REQUEST_PERCENTAGE.name
"""Quota whose figures are estimates, because a broker's thread time can't be seen from outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottledClient:
    """A client that waits now for one quota."""

    broker: str
    user: str
    client_id: str
    quota: str
    entity: str
    """Entity whose quota it is, as people read it, empty if its limit was removed meanwhile."""
    limit: float
    observed: float
    connections: int
    """Number of its connections that wait."""
    throttle_ms: int
    remaining_ms: int
    """Time that it waits from now on."""
    estimated: bool = False
    """Whether `observed` is an estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRow:
    """A bucket that has a limit, with its measured rate."""

    broker: str
    """Node id, or `cluster` for buckets of all brokers together."""
    quota: str
    user: str
    """Sanitized user, as in Kafka's tag."""
    client_id: str
    """Client-id, as in Kafka's tag."""
    limit: float
    observed: float
    mode: str = "kafka"
    estimated: bool = False
    """Whether `observed` is an estimate."""
    throttle_ms: float = 0.0
    """Average of the throttle times that it gave lately."""
    last_minute_times: int = 0
    """Throttle times in the last minute."""
    last_minute_total_ms: int = 0
    """Their sum over all connections."""
    last_minute_held_ms: int = 0
    """Part of the minute in which any client waited."""
    mutation_rate: float | None = None
    """Partitions per second, None where the bucket has no tokens of mutations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleRow:
    """The throttle times of one bucket since the start, by where they were set."""

    quota: str
    user: str
    client_id: str
    times: int
    """Throttle times set here."""
    total_ms: int
    upstream_times: int
    """Throttle times set by the upstream."""
    upstream_total_ms: int
    shadow_times: int = 0
    """Throttle times that shadow mode did not enforce."""
    shadow_total_ms: int = 0
    refused_times: int = 0
    """Errors in place of throttle times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaTotals:
    """The throttle times of one quota over all clients, since the start."""

    quota: str
    waiting: int = 0
    """Connections that wait now for the end of a throttle time."""
    times: int = 0
    total_ms: int = 0
    upstream_times: int = 0
    shadow_times: int = 0
    refused_times: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdRow:
    """The rate at which a broker takes in a topic, and its threshold, in bytes/s."""

    broker: str
    topic: str
    """Topic, `""` for all together."""
    threshold: float | None
    """Threshold, None without one."""
    observed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerRow:
    """A listener and the broker it leads to."""

    broker: str
    listen: str
    upstream: str
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRow:
    """The state of the store."""

    url: str
    revision: str
    age_ms: int
    """Time since its content was last confirmed."""
    trouble: str | None
    """Error that keeps it from being confirmed, None without one."""
    limits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """A process that serves a part of the connections."""

    number: int
    pid: int
    connections: int
    starts: int
    """How often it was started, or started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """The state of the daemon's fleet, as this member sees it."""

    name: str
    topic: str
    member: str
    """Name of this member."""
    members: int
    """Number of members, this one included."""
    others: tuple[str, ...]
    """Names of the other members."""
    not_trusted: int
    """Members whose version, windows or secret are others."""
    strangers: tuple[str, ...] = ()
    """Their names, each with the reason."""
    signs: bool = False
    """Whether this member signs its reports and takes no others than signed ones."""
    signing: tuple[str, ...] = ()
    """Names of the other members that sign theirs."""
    refused: dict[str, int] = field(default_factory=dict)
    """Reports, or entries of them, that do not count, by reason."""
    unnamed_buckets: int = 0
    """Buckets in use that are not shared, because the node id of their broker is not known yet."""
    wrong_clocks: int
    """Members whose clock differs from this one's by more than a report takes."""
    cut_off: bool
    """Whether its own reports no longer come back."""
    fallback: str
    """What it allows while it is cut off."""
    trouble: str | None
    """Last error of the topic, None while it works."""
    shared_buckets: int
    """Buckets near their limits, of which members report at present."""
    published_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStatus:
    """The status of a daemon at one moment.

    `mode`, `scope`, `fetch_over_quota` and `on_violation` are the daemon's own; a policy file may have others for some
    clients.
    """

    pid: int
    uptime_ms: int
    event_loop: str
    upstream: str
    throttle_style: str
    fetch_over_quota: str
    window_num: int
    window_size_seconds: int
    max_throttle_ms: int | None
    draining: bool
    connections: int
    store: StoreRow
    listeners: tuple[ListenerRow, ...]
    throttled: tuple[ThrottledClient, ...]
    buckets: tuple[BucketRow, ...]
    throttles: tuple[ThrottleRow, ...]
    counters: dict[str, int]
    """Totals since the start, by name."""
    mode: str = "kafka"
    scope: str = "broker"
    on_violation: str = "delay"
    cost_model: str = ""
    """Source of the cost model by which request times are estimated."""
    thresholds: tuple[ThresholdRow, ...] = ()
    quota_totals: tuple[QuotaTotals, ...] = ()
    bucket_count: int = 0
    """Number of buckets, with and without a limit."""
    longest_stall_ms: float = 0.0
    """The longest time in the last 30 to 60 s for which an event loop served nobody, of all processes."""
    fleet: FleetRow | None = None
    """The fleet with which limits are shared, None without one."""
    last_hour: tuple[HourRow, ...] = ()
    """The buckets throttled longest in the last hour, minute by minute."""
    workers: tuple[WorkerRow, ...] = ()
    """The processes that serve connections, none where the daemon itself does."""
    state_age_ms: int | None = None
    """Time since the state file was saved, or since the start, None without a file."""


_ROWS: Final[dict[str, type]] = {
    "listeners": ListenerRow,
    "throttled": ThrottledClient,
    "buckets": BucketRow,
    "throttles": ThrottleRow,
    "thresholds": ThresholdRow,
    "quota_totals": QuotaTotals,
    "last_hour": HourRow,
    "workers": WorkerRow,
}
_SLICE: Final = 100
"""Rows written at a time: less than a millisecond's work."""


def share_used(measured: float, limit: float, *, of_tokens: bool) -> float:
    """Return the part of a limit that is used, which of tokens is the debt."""
    used = max(0.0, -measured) if of_tokens else measured
    if limit:
        return used / limit
    return 0.0 if of_tokens else float(used > 0)


def status_text(status: DaemonStatus) -> Generator[None, None, str]:
    """Return the status as a JSON object on one line, written some rows at a time."""
    pieces = []
    for each in fields(status):
        value = getattr(status, each.name)
        text = json.dumps(_plain(value)) if each.name not in _ROWS else (yield from _rows_text(value))
        pieces.append(f'"{each.name}":{text}')
    return "{" + ",".join(pieces) + "}"


def _rows_text(rows: tuple[Any, ...]) -> Generator[None, None, str]:
    pieces = []
    for start in range(0, len(rows), _SLICE):
        pieces.append(json.dumps([_plain(row) for row in rows[start : start + _SLICE]], separators=(",", ":"))[1:-1])
        yield
    return "[" + ",".join(pieces) + "]"


def _plain(value: object) -> object:
    if not isinstance(value, (*_ROWS.values(), StoreRow, FleetRow)):
        return value
    return {each.name: getattr(value, each.name) for each in fields(value)}  # type: ignore[arg-type]


def status_from_json(data: object) -> DaemonStatus:
    """Return the status in JSON values, without the fields of a newer daemon.

    Raises:
        ProtocolError: A field is missing that every daemon has.
    """
    try:
        values = _known(DaemonStatus, data)
        values["store"] = StoreRow(**_known(StoreRow, values["store"]))
        fleet = values.get("fleet")
        if fleet is not None:
            row = _known(FleetRow, fleet)
            row |= {name: tuple(row.get(name, ())) for name in ("others", "strangers", "signing")}
            values["fleet"] = FleetRow(**row)
        for name, kind in _ROWS.items():
            values[name] = tuple(kind(**_known(kind, each)) for each in values.get(name, ()))
        values["last_hour"] = tuple(replace(row, minutes_ms=tuple(row.minutes_ms)) for row in values["last_hour"])
        return DaemonStatus(**values)
    except (KeyError, TypeError) as error:
        raise ProtocolError("the daemon's status can't be read", hint="is it of another version?") from error


def _known(kind: type, data: object) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise TypeError("not an object")
    return {each.name: data[each.name] for each in fields(kind) if each.name in data}


async def run_sliced(work: Generator[None, None, T]) -> T:
    """Run the work slice by slice, let the event loop serve others in between, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


def one_slice(work: Callable[[], T]) -> Generator[None, None, T]:
    """Run small work as a single slice and return its result."""
    yield
    return work()
