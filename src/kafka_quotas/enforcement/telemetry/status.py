"""The status of a daemon: its figures, each with its help, its metric and how it is merged over workers.

The records are the table of figures. JSON, metrics, the merged status and the schema derive from them.
Times are milliseconds, rates and limits bytes per second. Lists are sorted and cut at `MAX_ROWS`: of buckets those stay
that use most of their limit, of throttle counts those with the longest times, of waiting clients those that wait
longest. `quota_totals` and `counters` are of all there are.

Sliced work is a generator that knows nothing of event loops: between two of its slices anything may happen.
"""

import asyncio
import json
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Annotated, Any, ClassVar, Final, TypeVar, get_args, get_origin

from kafka_quotas.core.described import Described
from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import REQUEST_PERCENTAGE

T = TypeVar("T")
R = TypeVar("R")

MAX_ROWS: Final = 1000
ESTIMATED: Final = REQUEST_PERCENTAGE.name
"""Quota whose figures are estimates, because a broker's thread time can't be seen from outside."""


class Merge(Enum):
    """How the values of two processes become one."""

    FIRST = "first"
    KEY = "key"
    SUM = "sum"
    LARGEST = "largest"
    LEADS = "leads"
    """The row with the larger value gives the fields that are not merged otherwise."""


@dataclass(frozen=True, slots=True)
class Figure(Described):
    """Metadata of a field of the status, with a sentence as its text."""

    text: str = ""
    metric: str | None = None
    """Name of the metric without its prefix and without `_total`, None without a metric."""
    read: Callable[[Any], float | None] = float
    """Returns the metric's value of the field's, None for no metric."""
    is_counter: bool = False
    merge: Merge = Merge.FIRST


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


Key = Annotated[str, Figure(merge=Merge.KEY)]
Sum = Annotated[int, Figure(merge=Merge.SUM)]


def _sum(text: str) -> Figure:
    return Figure(text, merge=Merge.SUM)


def _key(text: str) -> Figure:
    return Figure(text, merge=Merge.KEY)


def _total(metric: str, text: str) -> Figure:
    return Figure(text, metric, is_counter=True, merge=Merge.SUM)


@cache
def figures_of(kind: Any) -> dict[str, Figure]:
    """Return the figures of a record by the names of its fields."""
    notes = {each.name: get_args(each.type)[1:] for each in fields(kind) if get_origin(each.type) is Annotated}
    return {name: note for name, found in notes.items() for note in found if isinstance(note, Figure)}


def merge_rows(rows: Iterable[R]) -> list[R]:
    """Return the rows of several processes, those with the same keys merged into one."""
    found: dict[object, R] = {}
    for row in rows:
        kind: Any = type(row)
        figures = figures_of(kind)
        key = tuple(getattr(row, name) for name, each in figures.items() if each.merge is Merge.KEY)
        found[key] = _merged(found[key], row, figures) if key in found else row
    return list(found.values())


def _merged(one: R, other: R, figures: dict[str, Figure]) -> R:
    base: Any = one
    values: dict[str, Any] = {}
    for name, figure in figures.items():
        first, second = getattr(one, name), getattr(other, name)
        if figure.merge is Merge.LEADS and second > first:
            base = other
        elif figure.merge is Merge.LARGEST:
            values[name] = max(first, second)
        elif figure.merge is Merge.SUM:
            values[name] = _summed(first, second) if isinstance(first, tuple) else first + second
    merged: R = replace(base, **values)
    return merged


def _summed(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sums of two series that end at the same time."""
    longer, shorter = sorted((one, other), key=len, reverse=True)
    aligned = (0,) * (len(longer) - len(shorter)) + shorter
    return tuple(map(sum, zip(longer, aligned, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottledClient:
    """A client that waits now for one quota."""

    DOCUMENT: ClassVar = (
        "broker user client_id quota entity=whose limit observed connections throttle_ms remaining_ms estimated"
    )
    broker: Key
    user: Key
    client_id: Key
    quota: Key
    entity: str
    """Entity of the quota, as people read it, empty if its limit was removed meanwhile."""
    limit: float
    observed: float
    connections: Annotated[int, _sum("Number of its connections that wait.")]
    throttle_ms: int
    remaining_ms: Annotated[int, Figure("Time that it waits from now on.", merge=Merge.LEADS)]
    estimated: Annotated[bool, Figure("Whether the observed rate is an estimate.")] = False

    @property
    def whose(self) -> Annotated[Entity | None, Described(text="whose quota it is; null for no limit any more")]:
        """The entity."""
        return Entity.from_text(self.entity) if self.entity else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRow:
    """A bucket that has a limit, with its measured rate."""

    broker: Annotated[str, _key("Node id, or `cluster` for buckets of all brokers together.")]
    quota: Key
    user: Annotated[str, _key("Sanitized user, as in Kafka's tag.")]
    client_id: Annotated[str, _key("Client-id, as in Kafka's tag.")]
    limit: Annotated[float, Figure("The limit of a bucket, per second.", "{attribute}_limit")]
    observed: Annotated[float, Figure("What a bucket with a limit is measured at.", "{attribute}")]
    mode: Key = "kafka"
    estimated: Annotated[bool, Figure("Whether the observed rate is an estimate.")] = False
    throttle_ms: Annotated[
        float,
        Figure(
            "Average of the throttle times that a bucket gave in the last minute, in milliseconds; 0 if it gave none.",
            "throttle_time",
            merge=Merge.LARGEST,
        ),
    ] = 0.0
    last_minute_times: Annotated[int, _sum("Throttle times in the last minute.")] = 0
    last_minute_total_ms: Annotated[int, _sum("Their sum over all connections.")] = 0
    last_minute_held_ms: Annotated[
        int, Figure("Part of the minute in which any client waited.", merge=Merge.LARGEST)
    ] = 0
    mutation_rate: Annotated[
        float | None,
        Figure(
            "Mutations that a bucket admitted in the last minute, in partitions per second; null if it has no "
            "tokens of mutations."
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleRow:
    """The throttle times of one bucket since the start, by where they were set."""

    quota: Key
    user: Key
    client_id: Key
    times: Annotated[int, _sum("Throttle times set here.")]
    total_ms: Sum
    upstream_times: Annotated[int, _sum("Throttle times set by the upstream.")]
    upstream_total_ms: Sum
    shadow_times: Annotated[int, _sum("Throttle times that shadow mode did not enforce.")] = 0
    shadow_total_ms: Sum = 0
    refused_times: Annotated[int, _sum("Errors in place of throttle times.")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaTotals:
    """The throttle times of one quota over all clients, since the start."""

    quota: Key
    waiting: Annotated[
        int, Figure("Connections that wait for the end of a throttle time.", "queue_size", merge=Merge.SUM)
    ] = 0
    times: Annotated[int, _total("throttles", "Throttle times set.")] = 0
    total_ms: Annotated[int, _total("throttle_time_ms", "Throttle time set, in milliseconds.")] = 0
    upstream_times: Annotated[
        int,
        _total(
            "upstream_throttles", "Throttle times that the upstream set for clients that have a limit here as well."
        ),
    ] = 0
    shadow_times: Annotated[int, _total("shadow_throttles", "Throttle times that shadows would have been set.")] = 0
    refused_times: Annotated[int, _total("refusals", "Requests that got an error instead of a throttle time.")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdRow:
    """The rate at which a broker takes in a topic, and its threshold, in bytes/s."""

    broker: Key
    topic: Annotated[str, _key('Topic, "" for all together.')]
    threshold: Annotated[float | None, Figure("Threshold, null without one.")]
    observed: Annotated[float, Figure(merge=Merge.LEADS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerRow:
    """A listener and the broker it leads to."""

    broker: Key
    listen: Key
    upstream: str
    connections: Sum


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRow:
    """The state of the store."""

    url: str
    revision: str
    age_ms: Annotated[
        int, Figure("Time since the store's content was last confirmed.", "store_age_seconds", read=_seconds)
    ]
    trouble: Annotated[
        str | None,
        Figure(
            "Error that keeps the store from being read, null (1 as a metric) while it can be read.",
            "store_reachable",
            read=lambda trouble: float(trouble is None),
        ),
    ]
    limits: Annotated[int, Figure("Limits in force.", "limits")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """A process that serves a part of the connections."""

    number: int
    pid: int
    connections: int
    starts: Annotated[int, Figure("How often it was started, or started again.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """The state of the daemon's fleet, as this member sees it."""

    name: str
    topic: str
    member: Annotated[str, Figure("Name of this member.")]
    members: Annotated[int, Figure("Members of the fleet, this one included.", "fleet_members")]
    others: Annotated[tuple[str, ...], Figure("Names of the other members.")]
    not_trusted: Annotated[
        int,
        Figure(
            "Members that are not trusted, because their version, windows or secret are others.", "fleet_not_trusted"
        ),
    ]
    strangers: Annotated[tuple[str, ...], Figure("Their names, each with the reason.")] = ()
    signs: Annotated[
        bool, Figure("Whether reports are signed, and others than signed ones do not count.", "fleet_signed")
    ] = False
    signing: Annotated[tuple[str, ...], Figure("Names of the other members that sign theirs.")] = ()
    refused: Annotated[dict[str, int], Figure("Reports, or entries of them, that do not count, by reason.")] = field(
        default_factory=dict
    )
    unnamed_buckets: Annotated[
        int,
        Figure(
            "Buckets in use that are not shared, because the node id of their broker is not known yet.",
            "fleet_unnamed_buckets",
        ),
    ] = 0
    wrong_clocks: Annotated[
        int, Figure("Members whose clock differs from this one's by more than a report takes.", "fleet_wrong_clocks")
    ]
    cut_off: Annotated[bool, Figure("Whether the other members can't be heard.", "fleet_cut_off")]
    fallback: Annotated[str, Figure("What this member allows while it is cut off.")]
    trouble: Annotated[str | None, Figure("Last error of the topic, null while it works.")]
    shared_buckets: Annotated[
        int, Figure("Buckets near their limits, of which members report.", "fleet_shared_buckets")
    ]
    published_bytes: Annotated[int, _total("fleet_published_bytes", "Bytes of this member's reports.")]
    received_bytes: Annotated[int, _total("fleet_received_bytes", "Bytes of all members' reports.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class HourRow:
    """The throttle times of one bucket in the last hour."""

    quota: Key
    user: Annotated[str, _key("Sanitized user, as in Kafka's tag.")]
    client_id: Key
    times: Annotated[int, _sum("Number of throttle times.")]
    total_ms: Annotated[int, _sum("Their sum over all connections.")]
    minutes_ms: Annotated[tuple[int, ...], _sum("Their sums by minute, the oldest first and the present one last.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStatus:
    """The status of a daemon at one moment.

    `mode`, `scope`, `fetch_over_quota` and `on_violation` are the daemon's own; a policy file may have others for some
    clients.
    """

    pid: int
    uptime_ms: Annotated[int, Figure("Time since the start.", "uptime_seconds", read=_seconds)]
    event_loop: str
    upstream: str
    throttle_style: str
    fetch_over_quota: str
    window_num: int
    window_size_seconds: int
    max_throttle_ms: int | None
    draining: Annotated[bool, Figure("Whether the daemon ends.", "draining")]
    connections: Annotated[int, Figure("Open client connections.", "connections")]
    store: StoreRow
    listeners: tuple[ListenerRow, ...]
    throttled: tuple[ThrottledClient, ...]
    buckets: tuple[BucketRow, ...]
    throttles: tuple[ThrottleRow, ...]
    counters: Annotated[dict[str, int], Figure("Totals since the start, by name.")]
    mode: str = "kafka"
    scope: str = "broker"
    on_violation: str = "delay"
    cost_model: Annotated[str, Figure("Source of the cost model by which request times are estimated.")] = ""
    thresholds: tuple[ThresholdRow, ...] = ()
    quota_totals: tuple[QuotaTotals, ...] = ()
    bucket_count: Annotated[int, Figure("Buckets that are kept, with and without a limit.", "buckets")] = 0
    longest_stall_ms: Annotated[
        float,
        Figure(
            "Longest time in the last 30 to 60 s for which an event loop served nobody, of all processes.",
            "event_loop_longest_stall_seconds",
            read=_seconds,
        ),
    ] = 0.0
    fleet: FleetRow | None = None
    last_hour: tuple[HourRow, ...] = ()
    """Buckets throttled longest in the last hour, minute by minute."""
    workers: tuple[WorkerRow, ...] = ()
    """Processes that serve connections, none if the daemon itself does."""
    state_age_ms: Annotated[
        int | None,
        Figure(
            "Time since the state file was saved, or since the start, null without a file.",
            "state_age_seconds",
            read=_seconds,
        ),
    ] = None


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
        text = (yield from _rows_text(value)) if isinstance(value, tuple) else json.dumps(_plain(value))
        pieces.append(f'"{each.name}":{text}')
    return "{" + ",".join(pieces) + "}"


def _rows_text(rows: tuple[Any, ...]) -> Generator[None, None, str]:
    pieces = []
    for start in range(0, len(rows), _SLICE):
        pieces.append(json.dumps([_plain(row) for row in rows[start : start + _SLICE]], separators=(",", ":"))[1:-1])
        yield
    return "[" + ",".join(pieces) + "]"


def _plain(value: Any) -> object:
    return {each.name: getattr(value, each.name) for each in fields(value)} if is_dataclass(value) else value


def answer_from_json(kind: type[T], data: object) -> T:
    """Return the record of a daemon's answer in JSON values, without the fields of a newer daemon."""
    import msgspec  # noqa: PLC0415 - only a client of the daemon reads answers

    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ProtocolError("the daemon's answer can't be read", hint="is it of another version?") from error


async def run_sliced(work: Generator[None, None, T]) -> T:
    """Run the work slice by slice, let the event loop serve others in between, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
