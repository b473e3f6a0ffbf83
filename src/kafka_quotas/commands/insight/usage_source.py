"""The sources of rates and throttle times: a daemon, exporters of brokers, or a Prometheus server.

A TOML file names the metrics with `broker_labels` and one `[[rule]]` per way to name them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlencode, urlsplit

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.core.formats.metric_names import (
    BUILT_IN,
    MetricNames,
    MetricSample,
    parse_metrics,
    usages_of,
)
from kafka_quotas.core.model.entity import desanitize, sanitize
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow, RecentThrottling
from kafka_quotas.core.resolution.usage import Usage

if TYPE_CHECKING:
    from kafka_quotas.enforcement.telemetry.status import BucketRow, DaemonStatus

TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSource:
    """The source of usage: the addresses of metrics, or else the daemon at a control socket.

    An address with a path (`http://broker:7071/metrics`) is an exporter, one without is a Prometheus server.
    """

    control: Path | None = None
    """None for the only daemon of this user."""
    metrics_urls: tuple[str, ...] = ()
    names: MetricNames = BUILT_IN


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReading:
    """The usage at one moment."""

    origin: str
    """Where it was read from."""
    usages: tuple[Usage, ...]
    window: QuotaWindow = DEFAULT_WINDOW
    """The window of the rates."""
    store_url: str | None = None
    """The store that the daemon follows, None without a daemon."""


def read_usage(source: UsageSource) -> UsageReading:
    """Read the usage from the source.

    Raises:
        KafkaQuotasError: The source can't be reached or parsed.
        UsageError: An address is invalid.
    """
    if not source.metrics_urls:
        return usage_of_daemon(read_status(source.control))
    usages = [usage for url in source.metrics_urls for usage in _of_address(url, source.names)]
    return UsageReading(origin=", ".join(source.metrics_urls), usages=tuple(usages))


def read_status(control: Path | None) -> "DaemonStatus":
    """Return the status of the daemon at a control socket, None for the only daemon of this user.

    Raises:
        KafkaQuotasError: No daemon answers, or not so that it can be understood.
        UsageError: None is given, and several daemons are running.
    """
    from kafka_quotas.enforcement.control.client import (  # noqa: PLC0415 - only what asks a daemon
        ask_status,
        find_control_path,
    )
    from kafka_quotas.enforcement.control.server import ControlError  # noqa: PLC0415

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
    return UsageReading(
        origin=f"daemon {status.pid}",
        usages=tuple(
            Usage(
                broker=row.broker,
                key=row.quota,
                user=desanitize(row.user),
                client_id=row.client_id,
                observed=row.observed if row.mutation_rate is None else row.mutation_rate,
                throttle_ms=_throttle_ms(row, status),
                limit=row.limit,
                last_minute=RecentThrottling(
                    times=row.last_minute_times,
                    total_ms=row.last_minute_total_ms,
                    held_ms=row.last_minute_held_ms,
                ),
                is_waiting=any(_waits(row, status)),
            )
            for row in status.buckets
        ),
        window=QuotaWindow(samples=status.window_num, window_s=status.window_size_seconds),
        store_url=status.store.url,
    )


def _throttle_ms(bucket: "BucketRow", status: "DaemonStatus") -> float:
    """Return the longest throttle time that a client of the bucket waits for now, in ms.

    Between two such times it is the average of the latest ones, as a broker's `throttle-time` is. For a bucket of
    tokens in debt it is the time until the debt is paid, because requests before that are refused. It is 0 where the
    bucket throttles nobody.
    """
    is_in_debt = bucket.mutation_rate is not None and bucket.observed < 0 and bucket.limit > 0
    debt_ms = -bucket.observed / bucket.limit * 1000 if is_in_debt else 0.0
    return float(max(_waits(bucket, status), default=0) or max(debt_ms, bucket.throttle_ms))


def _waits(bucket: "BucketRow", status: "DaemonStatus") -> Iterator[int]:
    """Yield the throttle times that clients of the bucket wait for now."""
    return (
        row.throttle_ms
        for row in status.throttled
        if row.broker == bucket.broker
        and row.quota == bucket.quota
        and bucket.user in ("", sanitize(row.user))
        and bucket.client_id in ("", row.client_id)
    )


def _of_address(url: str, names: MetricNames) -> Sequence[Usage]:
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise UsageError(
            f"not an address of metrics: {url!r}",
            hint="http://BROKER:PORT/metrics for an exporter, http://HOST:9090 for a Prometheus server",
        )
    if address.path.strip("/"):
        return usages_of(parse_metrics(_text(url)), names=names, broker=address.netloc.rpartition("@")[2])
    return usages_of(_queried(address, names), names=names, broker=address.netloc.rpartition("@")[2])


def _queried(address: SplitResult, names: MetricNames) -> Iterator[MetricSample]:
    """Yield the current samples of the metrics at a Prometheus server."""
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
