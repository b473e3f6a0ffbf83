"""The daemon's figures for Prometheus, under Kafka's names where Kafka has the same figure.

The hot path knows nothing of this: figures are taken from the status when somebody asks. The tags of buckets are
Kafka's (sanitized user, client-id); there are at most `status.MAX_ROWS` of them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.quota_key import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from kafka_quotas.enforcement.status import DaemonStatus

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_KINDS: Final = {PRODUCER_BYTE_RATE.name: "produce", CONSUMER_BYTE_RATE.name: "fetch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One figure: labels by name, and the value."""

    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric: its name (counters without `_total`), whether it only grows, a help text, and its figures."""

    name: str
    is_counter: bool
    help: str
    samples: tuple[Sample, ...]


def families(status: DaemonStatus) -> Iterator[Family]:
    """Every metric of a status."""
    for quota, kind in _KINDS.items():
        yield from _quota_families(status, quota, kind)
    yield _gauge("kafka_quotas_connections", "Open client connections.", [({}, status.connections)])
    yield _gauge("kafka_quotas_limits", "Limits in force.", [({}, status.store.limits)])
    yield _gauge(
        "kafka_quotas_store_age_seconds",
        "Time since the store's content was last confirmed.",
        [({}, status.store.age_ms / 1000)],
    )
    yield _gauge(
        "kafka_quotas_store_reachable", "1 while the store can be read.", [({}, float(status.store.trouble is None))]
    )
    for name, total in status.counters.items():
        yield _counter(f"kafka_quotas_{name}", f"{name.replace('_', ' ').capitalize()} since the start.", [({}, total)])


def exposition(status: Callable[[], DaemonStatus]) -> Callable[[], bytes]:
    """A function that tells the figures in Prometheus' text format.

    Raises `KafkaQuotasError` where prometheus-client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise KafkaQuotasError(
            "metrics need prometheus-client, which is not installed", hint="pip install 'kafka-quotas[daemon]'"
        ) from error

    class StatusCollector:
        """Turns a status into Prometheus' families at each scrape."""

        def collect(self) -> "Iterable[Metric]":
            """The families of this moment."""
            return map(_prometheus, families(status()))

    registry = CollectorRegistry(auto_describe=False)
    registry.register(StatusCollector())
    return lambda: generate_latest(registry)


def _quota_families(status: DaemonStatus, quota: str, kind: str) -> Iterator[Family]:
    """The families of one quota type; Kafka: `kafka.server:type=Produce,user=..,client-id=..` and `type=Fetch`."""
    buckets = [row for row in status.buckets if row.quota == quota]
    throttles = [row for row in status.throttles if row.quota == quota]
    place = f"kafka_server_{kind}"
    tags = [({"user": row.user, "client_id": row.client_id}, row) for row in throttles]
    yield _gauge(
        f"{place}_byte_rate",
        "Bytes per second of a bucket with a limit.",
        [({"broker": row.broker, "user": row.user, "client_id": row.client_id}, row.observed) for row in buckets],
    )
    yield _gauge(
        f"{place}_byte_rate_limit",
        "The limit of a bucket, in bytes per second.",
        [({"broker": row.broker, "user": row.user, "client_id": row.client_id}, row.limit) for row in buckets],
    )
    yield _gauge(
        f"{place}_queue_size",
        "Connections that wait for the end of a throttle time.",
        [({}, sum(row.connections for row in status.throttled if row.quota == quota))],
    )
    yield _counter(
        f"{place}_throttle_time_ms", "Throttle time set, in milliseconds.", [(tag, row.total_ms) for tag, row in tags]
    )
    yield _counter(f"{place}_throttles", "Throttle times set.", [(tag, row.times) for tag, row in tags])
    yield _counter(
        f"{place}_upstream_throttles",
        "Throttle times that the upstream set for clients that have a limit here as well.",
        [(tag, row.upstream_times) for tag, row in tags],
    )


def _gauge(name: str, text: str, samples: Iterable[tuple[dict[str, str], float]]) -> Family:
    return Family(name=name, is_counter=False, help=text, samples=_samples(samples))


def _counter(name: str, text: str, samples: Iterable[tuple[dict[str, str], float]]) -> Family:
    return Family(name=name, is_counter=True, help=text, samples=_samples(samples))


def _samples(samples: Iterable[tuple[dict[str, str], float]]) -> tuple[Sample, ...]:
    return tuple(Sample(labels=labels, value=value) for labels, value in samples)


def _prometheus(family: Family) -> "Metric":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - optional, as above

    labels = list(family.samples[0].labels) if family.samples else []
    kind: Any = CounterMetricFamily if family.is_counter else GaugeMetricFamily
    metric: Metric = kind(family.name, family.help, labels=labels)
    for sample in family.samples:
        metric.add_metric(list(sample.labels.values()), sample.value)  # type: ignore[attr-defined]
    return metric
