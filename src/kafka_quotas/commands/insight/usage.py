"""Who uses how much of which quota, read from a daemon, exporters of brokers, or a Prometheus server.

A TOML file names the metrics with `broker_labels` and one `[[rule]]` per way to name them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final
from urllib.parse import SplitResult, urlencode, urlsplit

from kafka_quotas.core.described import Described, Limit, Sentences, StoreAddress
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.core.formats.metric_names import BUILT_IN, MetricNames, MetricSample, parse_metrics, usages_of
from kafka_quotas.core.model.entity import ABSENT, EVERYTHING, GROUP, Entity, sanitize
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow, RecentThrottling
from kafka_quotas.core.resolution.effective import OTHER, EffectiveQuotas
from kafka_quotas.core.resolution.quota_resolver import (
    GROUP_LEVELS,
    GROUP_MARKS,
    GROUP_USER,
    Level,
    bucket_of_tags,
    bucket_tags,
)
from kafka_quotas.core.resolution.usage import Usage, is_held_back, share_used
from kafka_quotas.stores import QuotaEntry, Store

if TYPE_CHECKING:
    from kafka_quotas.enforcement import BucketRow, DaemonStatus

TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
OURS: Final = "mode"
"""The label that metrics of daemons and exporters of this program have, and those of brokers lack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSource:
    """The source of usage: the addresses of metrics, or else the daemon at a control socket.

    An address with a path (`http://broker:7071/metrics`) is an exporter, one without is a Prometheus server.
    """

    control: Path | None = None
    """None for the only daemon of this user."""
    metrics_urls: tuple[str, ...] = ()
    names: MetricNames = BUILT_IN
    of_brokers_alone: bool = False
    """Whether to leave out metrics of daemons and exporters, which a Prometheus server has as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReading:
    """The usage at one moment."""

    origin: str
    usages: tuple[Usage, ...]
    window: QuotaWindow = DEFAULT_WINDOW
    store_url: str | None = None
    """The store that the daemon follows, None without a daemon."""


def read_usage(source: UsageSource) -> UsageReading:
    """Read the usage from the source."""
    if not source.metrics_urls:
        return usage_of_daemon(read_status(source.control))
    usages = [usage for url in source.metrics_urls for usage in _of_address(url, source)]
    return UsageReading(origin=", ".join(source.metrics_urls), usages=tuple(usages))


def read_status(control: Path | None) -> "DaemonStatus":
    """Return the status of the daemon at a control socket, None for the only daemon of this user."""
    from kafka_quotas.enforcement import ControlError, ask_status, find_control_path  # noqa: PLC0415 - only what asks a daemon

    if control is not None:
        return ask_status(control)
    try:
        path = find_control_path()
    except ControlError as error:
        raise ControlError(
            error.message,
            hint="name a daemon's socket with --control, or the brokers' own metrics with --prometheus "
            "http://HOST:PORT",
        ) from error
    return ask_status(path)


def usage_of_daemon(status: "DaemonStatus") -> UsageReading:
    """Return the usage of every limited bucket in a daemon's status, in the form of brokers' metrics."""
    waits_ms = _waits_ms(status)
    return UsageReading(
        origin=f"daemon {status.pid}",
        usages=tuple(
            _usage(row, waits_ms.get((row.broker, row.quota, row.user, row.client_id))) for row in status.buckets
        ),
        window=QuotaWindow(samples=status.window_num, window_s=status.window_size_seconds),
        store_url=status.store.url,
    )


def _usage(row: "BucketRow", wait_ms: int | None) -> Usage:
    return Usage(
        broker=row.broker,
        key=row.quota,
        user=bucket_of_tags(row.user, row.client_id)[0],
        client_id=row.client_id,
        observed=row.observed if row.mutation_rate is None else row.mutation_rate,
        throttle_ms=_throttle_ms(row, wait_ms),
        limit=row.limit,
        last_minute=RecentThrottling(
            times=row.last_minute_times,
            total_ms=row.last_minute_total_ms,
            held_ms=row.last_minute_held_ms,
        ),
        is_waiting=wait_ms is not None,
    )


def _throttle_ms(bucket: "BucketRow", wait_ms: int | None) -> float:
    """Return the longest throttle time that a client of the bucket waits for now, in ms.

    Between two such times it is the average of the latest ones, as a broker's `throttle-time` is. For a bucket of
    tokens in debt it is the time until the debt is paid, because requests before that are refused. It is 0 where the
    bucket throttles nobody.
    """
    is_in_debt = bucket.mutation_rate is not None and bucket.observed < 0 and bucket.limit > 0
    debt_ms = -bucket.observed / bucket.limit * 1000 if is_in_debt else 0.0
    return float(wait_ms or max(debt_ms, bucket.throttle_ms))


def _waits_ms(status: "DaemonStatus") -> dict[tuple[str, str, str, str], int]:
    """Return the longest time that a client waits for now, by broker, quota and bucket's tags."""
    from kafka_quotas.enforcement import CLUSTER  # noqa: PLC0415 - only what asks a daemon

    found: dict[tuple[str, str, str, str], int] = {}
    for row in status.throttled:
        group = row.whose.part(GROUP) if row.whose is not None else ABSENT
        buckets = (
            [bucket_tags((GROUP_USER, group))]
            if isinstance(group, str)
            else list(product(("", sanitize(row.user)), ("", row.client_id)))
        )
        for broker, tags in product((row.broker, CLUSTER), buckets):
            key = (broker, row.quota, *tags)
            found[key] = max(found.get(key, 0), row.throttle_ms)
    return found


def _of_address(url: str, source: UsageSource) -> Sequence[Usage]:
    address = metrics_address(url)
    samples = parse_metrics(_text(url)) if address.path.strip("/") else _queried(address, source.names)
    if source.of_brokers_alone:
        samples = (each for each in samples if not each.labels.get(OURS))
    return usages_of(samples, names=source.names, broker=address.netloc.rpartition("@")[2])


def metrics_address(url: str) -> SplitResult:
    """Return the parts of an address of metrics."""
    try:
        address = urlsplit(url)
    except ValueError:  # brackets that are not closed
        address = urlsplit("")
    if address.scheme not in ("http", "https") or not address.hostname:
        raise UsageError(
            f"not an address of metrics: {url!r}",
            hint="http://BROKER:PORT/metrics for an exporter, http://HOST:9090 for a Prometheus server",
        )
    return address


def _queried(address: SplitResult, names: MetricNames) -> Iterator[MetricSample]:
    selector = names.selector().replace("\\", "\\\\").replace('"', '\\"')
    query = urlencode({"query": f'{{__name__=~"{selector}"}}'})
    url = address._replace(path="/api/v1/query", query=query).geturl()
    try:
        for each in load_json(_text(url))["data"]["result"]:
            labels: dict[str, Any] = dict(each["metric"])
            name = labels.pop("__name__")
            yield MetricSample(name=name, labels=labels, value=float(each["value"][1]))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise KafkaQuotasError(
            f"what answers at {address.netloc} is no Prometheus server",
            hint="an exporter's address has a path: http://BROKER:PORT/metrics",
        ) from error


def _text(url: str) -> str:
    from http.client import HTTPException  # noqa: PLC0415 - a daemon needs no HTTP
    from urllib.request import urlopen  # noqa: PLC0415

    try:
        with urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310 - the scheme was checked
            content: bytes = answer.read(MAX_ANSWER_BYTES)
    except (OSError, HTTPException, ValueError) as error:
        cause = getattr(error, "reason", error)
        reason = getattr(cause, "strerror", None) or cause
        raise KafkaQuotasError(
            f"no metrics from {urlsplit(url).netloc.rpartition('@')[2]}: {reason}",
            hint="check the address, and that the exporter runs",
        ) from error
    return content.decode("utf-8", "replace")


_ABOUT_USER: Final = (
    "empty where the limit is not per user; :group for a group's limit and :guaranteed for its guaranteed rate, with "
    "the group's name as client_id"
)


class SortBy(StrEnum):
    """The sort key of the rows, whose figures sort in descending order."""

    SHARE = "share"
    RATE = "rate"
    LIMIT = "limit"
    THROTTLE = "throttle"
    NAME = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopRow:
    """A bucket at a broker, and the quota that applies to it."""

    DOCUMENT: ClassVar = (
        "user usage.client_id usage.key limit level entity throttled=held_back usage.broker usage.observed "
        "share usage.throttle_ms usage.last_minute"
    )
    usage: Usage
    limit: Limit
    """By the store, or else by the source of the usage."""
    level: Level | None
    entity: Entity | None

    @property
    def user(self) -> Annotated[str, Described(text=_ABOUT_USER)]:
        """The raw name of the user, or what the tags of a group's bucket have in its place."""
        return self.usage.tags[0] if self.usage.user in GROUP_MARKS else self.usage.user

    @property
    def share(self) -> Annotated[float | None, Described(text="of the limit; null without a limit")]:
        """The part of the limit that is used, 1 for all of it."""
        return share_used(self.usage.observed, self.limit)

    @property
    def held_back(self) -> bool:
        """Whether the bucket's clients are throttled."""
        return is_held_back(self.usage, self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopResult:
    """The rows of one moment, how many more there are, and what to know where there are none."""

    DOCUMENT: ClassVar = "store=store_url source=origin rows left_out notes"
    store_url: StoreAddress
    origin: Annotated[str, Described(text="where the rates come from")]
    rows: tuple[TopRow, ...]
    left_out: int
    notes: Sentences


_FIGURES: Mapping[SortBy, Callable[[TopRow], float | None]] = {
    SortBy.SHARE: lambda row: row.share,
    SortBy.RATE: lambda row: row.usage.observed,
    SortBy.LIMIT: lambda row: row.limit,
    SortBy.THROTTLE: lambda row: row.usage.throttle_ms,
    SortBy.NAME: lambda _: None,
}


def top(store: Store, reading: UsageReading, *, sort: SortBy = SortBy.SHARE, limit: int | None = None) -> TopResult:
    """Return the rows of a reading, all or at most `limit`, with the quotas of the store."""
    entries = store.describe(EVERYTHING)
    resolver = EffectiveQuotas(entries, static=store.kind.is_static)
    rows = sorted((top_row(usage, resolver) for usage in reading.usages), key=lambda row: _order(row, sort))
    kept = rows if limit is None else rows[:limit]
    return TopResult(
        store_url=store.url,
        origin=reading.origin,
        rows=tuple(kept),
        left_out=len(rows) - len(kept),
        notes=() if rows else tuple(why_there_are_none(entries)),
    )


def why_there_are_none(entries: Iterable[QuotaEntry]) -> list[str]:
    """Return why no bucket shows up and what to do about it, a line each.

    Brokers create these metrics only once a quota of that type existed, for any entity.

    Source:
        `ClientQuotaManager.quotasEnabled` (Kafka 4.0).
    """
    keys = [key.name for key in QUOTA_KEYS.values() if not key.for_ip]
    used = {name for entry in entries for name in entry.quotas}
    missing = [name for name in keys if name not in used]
    notes = ["no quota metrics: a broker has them for a client only after a quota of that type existed, for anybody"]
    if missing:
        configs = ",".join(f"{name}=unlimited" for name in missing)
        notes.append(
            f"nothing is stored for {', '.join(missing)}; a default without a limit harms nobody and starts them:"
        )
        notes.append(f"  kafka-quotas alter --user-default --add-config {configs}")
    if len(missing) < len(keys):
        stored = ", ".join(name for name in keys if name in used)
        notes.append(f"for {stored} there are quotas: either no client was busy lately, or --metric-names is needed")
    return notes


def top_row(usage: Usage, resolver: EffectiveQuotas) -> TopRow:
    """Return the row of a bucket."""
    if usage.user in GROUP_MARKS:
        level, entity = GROUP_LEVELS[usage.user], Entity.of(group=usage.client_id)
        return TopRow(usage=usage, limit=usage.limit, level=level, entity=entity)
    # A client of that name may draw on another bucket.
    answers = resolver.for_client(usage.user or OTHER, usage.client_id)
    quota = next((each for each in answers if (each.key.name, each.bucket) == (usage.key, usage.tags)), None)
    if quota is None or quota.limit is None:
        return TopRow(usage=usage, limit=usage.limit, level=None, entity=None)
    limit = quota.limit if usage.limit is None else usage.limit
    return TopRow(usage=usage, limit=limit, level=quota.level, entity=quota.entity)


def _order(row: TopRow, sort: SortBy) -> tuple[bool, float, str, str, str, str]:
    """Return the sort key of a row: figures in descending order, rows without one last, then by name."""
    usage, figure = row.usage, _FIGURES[sort](row)
    return (figure is None, -(figure or 0.0), usage.user, usage.client_id, usage.key, usage.broker)
