"""What a daemon tells about itself, and the JSON it tells it in.

Times are milliseconds, rates and limits bytes per second. Lists are sorted and cut at `MAX_ROWS`: of buckets those stay
that use most of their limit, of throttle counts those with the longest times, of waiting clients those that wait
longest. `quota_totals` and `counters` are of all there are.
"""

import json
from collections.abc import Generator
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.quota_key import REQUEST_PERCENTAGE

MAX_ROWS: Final = 1000
ESTIMATED: Final = REQUEST_PERCENTAGE.name
"""The quota whose figures are estimates: a broker's thread time can't be seen from outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottledClient:
    """A client that waits now: on how many connections, how much longer, and whose quota makes it wait."""

    broker: str
    user: str
    client_id: str
    quota: str
    entity: str
    limit: float
    observed: float
    connections: int
    throttle_ms: int
    remaining_ms: int
    estimated: bool = False
    """Whether what was observed is an estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRow:
    """A bucket with a limit: who draws on it (Kafka's tags), in which mode, and what is measured (an estimate?).

    `throttle_ms` is the average of the throttle times it gave lately; `mutation_rate` partitions per second (None: no
    bucket of mutations' tokens).

    `broker` is `cluster` for buckets of all brokers together.
    """

    broker: str
    quota: str
    user: str
    client_id: str
    limit: float
    observed: float
    mode: str = "kafka"
    estimated: bool = False
    throttle_ms: float = 0.0
    mutation_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleRow:
    """How often and how long a bucket's clients were throttled since the start, here and by the upstream.

    `shadow_*` is what shadows would have been throttled, `refused_times` how often an error was given instead.
    """

    quota: str
    user: str
    client_id: str
    times: int
    total_ms: int
    upstream_times: int
    upstream_total_ms: int
    shadow_times: int = 0
    shadow_total_ms: int = 0
    refused_times: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaTotals:
    """What is counted of a quota as a whole, whoever its clients are: now `waiting`, the others since the start."""

    quota: str
    waiting: int = 0
    """Connections that wait for the end of a throttle time."""
    times: int = 0
    total_ms: int = 0
    upstream_times: int = 0
    shadow_times: int = 0
    refused_times: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdRow:
    """What a broker takes in for a topic (`""`: for all together), and the threshold (None: none), in bytes/s."""

    broker: str
    topic: str
    threshold: float | None
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
    """The store: how long ago its content was last confirmed, and what keeps it from being confirmed."""

    url: str
    revision: str
    age_ms: int
    trouble: str | None
    limits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStatus:
    """Everything at one moment. `counters` are totals since the start, by name.

    `mode`, `scope`, `fetch_over_quota` and `on_violation` are the daemon's own terms; a policy file may have others for
    some clients. `cost_model` says by what request times are estimated.
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
    mode: str = "kafka"
    scope: str = "broker"
    on_violation: str = "delay"
    cost_model: str = ""
    thresholds: tuple[ThresholdRow, ...] = ()
    quota_totals: tuple[QuotaTotals, ...] = ()
    bucket_count: int = 0
    """How many buckets there are, with and without a limit."""


_ROWS: Final[dict[str, type]] = {
    "listeners": ListenerRow,
    "throttled": ThrottledClient,
    "buckets": BucketRow,
    "throttles": ThrottleRow,
    "thresholds": ThresholdRow,
    "quota_totals": QuotaTotals,
}
_SLICE: Final = 100
"""How many rows are written at a time: less than a millisecond's work."""


def share_used(measured: float, limit: float, *, of_tokens: bool) -> float:
    """Return the part of a limit that is used; of tokens the debt counts."""
    used = max(0.0, -measured) if of_tokens else measured
    if limit:
        return used / limit
    return 0.0 if of_tokens else float(used > 0)


def status_to_json(status: DaemonStatus) -> dict[str, Any]:
    """The status as JSON values, field by field."""
    return asdict(status)


def status_text(status: DaemonStatus) -> Generator[None, None, str]:
    """Return the status as a JSON object on one line, written some rows at a time."""
    pieces = []
    for field in fields(status):
        value = getattr(status, field.name)
        text = json.dumps(_plain(value)) if field.name not in _ROWS else (yield from _rows_text(value))
        pieces.append(f'"{field.name}":{text}')
    return "{" + ",".join(pieces) + "}"


def _rows_text(rows: tuple[Any, ...]) -> Generator[None, None, str]:
    pieces = []
    for start in range(0, len(rows), _SLICE):
        written = json.dumps([_plain(row) for row in rows[start : start + _SLICE]], separators=(",", ":"))
        pieces.append(written[1:-1])
        yield
    return "[" + ",".join(pieces) + "]"


def _plain(value: object) -> object:
    """Return a row as a dictionary, any other value as it is."""
    if not isinstance(value, (*_ROWS.values(), StoreRow)):
        return value
    return {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]


def status_from_json(data: object) -> DaemonStatus:
    """The status that `status_to_json` wrote; fields that a newer daemon adds are passed over.

    Raises `ProtocolError` where fields are missing that every daemon has.
    """
    try:
        values = _known(DaemonStatus, data)
        values["store"] = StoreRow(**_known(StoreRow, values["store"]))
        for name, row in _ROWS.items():
            values[name] = tuple(row(**_known(row, each)) for each in values.get(name, ()))
        return DaemonStatus(**values)
    except (KeyError, TypeError) as error:
        raise ProtocolError("the daemon's status can't be read", hint="is it of another version?") from error


def _known(kind: type, data: object) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise TypeError("not an object")
    return {field.name: data[field.name] for field in fields(kind) if field.name in data}
