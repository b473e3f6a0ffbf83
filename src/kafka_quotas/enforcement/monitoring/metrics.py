"""The daemon's figures for Prometheus, under Kafka's names where Kafka has the same figure.

The hot path knows nothing of this: figures are taken from the status at a scrape. Counters and queue sizes are those of
all clients, whichever have series of their own. The tags of buckets are Kafka's (sanitized user, client-id).
`docs/reference/metrics.md` describes every metric; a test holds the two against each other.
"""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafka_quotas.core.model.quota_key import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    REQUEST_RATE,
)
from kafka_quotas.enforcement.telemetry.status import BucketRow, DaemonStatus, FleetRow, QuotaTotals

if TYPE_CHECKING:
    from prometheus_client.core import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFamily:
    """The names of one quota key's metrics."""

    kind: str
    """Kafka's type of the quota."""
    attribute: str
    """Attribute that is measured."""
    unit: str
    """Unit of the attribute, for the help text."""


_MUTATIONS: Final = "controllermutation"
QUOTA_FAMILIES: Final = {
    PRODUCER_BYTE_RATE.name: QuotaFamily(kind="produce", attribute="byte_rate", unit="bytes per second"),
    CONSUMER_BYTE_RATE.name: QuotaFamily(kind="fetch", attribute="byte_rate", unit="bytes per second"),
    REQUEST_PERCENTAGE.name: QuotaFamily(
        kind="request", attribute="request_time", unit="per cent of a thread's time, estimated"
    ),
    CONTROLLER_MUTATION_RATE.name: QuotaFamily(kind=_MUTATIONS, attribute="tokens", unit="partitions; below 0 a debt"),
    REQUEST_RATE.name: QuotaFamily(kind="requestrate", attribute="request_rate", unit="requests per second"),
}
"""Families by quota key. Brokers have no quota of the last, and no type for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSample:
    """One figure of a series: its labels by name, and its value."""

    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """A metric with its figures, which prometheus-client's registry takes as a collector."""

    name: str
    """Name of the metric, of counters without `_total`."""
    is_counter: bool
    """Whether the metric only grows."""
    help: str
    samples: tuple[SeriesSample, ...]

    def collect(self) -> "Iterable[Metric]":
        """Return the metric in prometheus-client's form, whose registry asks for it."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - as below

        labels = list(self.samples[0].labels) if self.samples else []
        kind: Any = CounterMetricFamily if self.is_counter else GaugeMetricFamily
        metric: Metric = kind(self.name, self.help, labels=labels)
        for sample in self.samples:
            metric.add_metric(list(sample.labels.values()), sample.value)  # type: ignore[attr-defined]
        return (metric,)


def families(status: DaemonStatus, *, is_ready: bool) -> Iterator[Family]:
    """Yield every metric of a status, with series of their own for the buckets in it.

    Args:
        status: The status.
        is_ready: Whether clients should connect, as `/readyz` says it.
    """
    for quota, family in QUOTA_FAMILIES.items():
        yield from _bucket_families(family, [row for row in status.buckets if row.quota == quota])
        totals = next((each for each in status.quota_totals if each.quota == quota), QuotaTotals(quota=quota))
        yield from _total_families(totals, f"kafka_server_{family.kind}")
    yield from _store_families(status)
    if status.fleet is not None:
        yield from _fleet_families(status.fleet)
    if status.workers:
        yield _gauge("kafka_quotas_workers", "Processes that serve connections.", [({}, len(status.workers))])
        again = sum(row.starts - 1 for row in status.workers)
        yield _counter("kafka_quotas_worker_restarts", "Workers that were started again after their end.", again)
    yield _gauge("kafka_quotas_connections", "Open client connections.", [({}, status.connections)])
    yield _gauge("kafka_quotas_buckets", "Buckets that are kept.", [({}, status.bucket_count)])
    yield _gauge("kafka_quotas_ready", "1 while clients should connect, as /readyz says it.", [({}, float(is_ready))])
    if status.state_age_ms is not None:
        text = "Time since the state file was saved, or since the start."
        yield _gauge("kafka_quotas_state_age_seconds", text, [({}, status.state_age_ms / 1000)])
    text = "Longest time in the last 30 to 60 s for which an event loop served nobody."
    yield _gauge("kafka_quotas_event_loop_longest_stall_seconds", text, [({}, status.longest_stall_ms / 1000)])
    yield _gauge("kafka_quotas_draining", "1 while the daemon ends.", [({}, float(status.draining))])
    yield _gauge("kafka_quotas_uptime_seconds", "Time since the start.", [({}, status.uptime_ms / 1000)])
    for name, total in status.counters.items():
        yield _counter(f"kafka_quotas_{name}", f"{name.replace('_', ' ').capitalize()} since the start.", total)


class Exposition(Protocol):
    """A function that makes the text of a scrape, one slice of the work at a time."""

    def __call__(self, status: DaemonStatus, *, is_ready: bool) -> Generator[None, None, bytes]:
        """Yield between two slices and return the text."""
        ...


def exposition() -> Exposition:
    """Return a function that writes the daemon's figures, and the process's, in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest  # noqa: PLC0415 - seldom needed

    process = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=process)

    def text(status: DaemonStatus, *, is_ready: bool) -> Generator[None, None, bytes]:
        pieces = []
        for family in families(status, is_ready=is_ready):
            registry = CollectorRegistry(auto_describe=False)
            registry.register(family)
            pieces.append(generate_latest(registry))
            yield
        return b"".join((*pieces, generate_latest(process)))

    return text


def _bucket_families(family: QuotaFamily, buckets: list[BucketRow]) -> Iterator[Family]:
    """Yield the metrics of each bucket.

    **Source:** Kafka's `kafka.server:type=Produce,user=..,client-id=..` and so on.
    """
    prefix = f"kafka_server_{family.kind}"
    tagged = [
        ({"broker": row.broker, "user": row.user, "client_id": row.client_id, "mode": row.mode}, row) for row in buckets
    ]
    yield _gauge(
        f"{prefix}_{family.attribute}",
        f"What a bucket with a limit is measured at, in {family.unit}.",
        [(tags, row.observed) for tags, row in tagged],
    )
    yield _gauge(
        f"{prefix}_{family.attribute}_limit",
        "The limit of a bucket, per second.",
        [(tags, row.limit) for tags, row in tagged],
    )
    yield _gauge(
        f"{prefix}_throttle_time",
        "Average of the throttle times that a bucket gave in the last minute, in milliseconds; 0 where it gave none.",
        [(tags, row.throttle_ms) for tags, row in tagged],
    )
    if family.kind == _MUTATIONS:
        yield _gauge(
            f"{prefix}_mutation_rate",
            "Mutations that a bucket admitted in the last minute, in partitions per second.",
            # A bucket of a rate, unlike one of tokens, measures nothing else.
            [(tags, row.observed if row.mutation_rate is None else row.mutation_rate) for tags, row in tagged],
        )


def _total_families(totals: QuotaTotals, prefix: str) -> Iterator[Family]:
    text = "Connections that wait for the end of a throttle time."
    yield _gauge(f"{prefix}_queue_size", text, [({}, totals.waiting)])
    counters = (
        ("throttle_time_ms", "Throttle time set, in milliseconds.", totals.total_ms),
        ("throttles", "Throttle times set.", totals.times),
        (
            "upstream_throttles",
            "Throttle times that the upstream set for clients that have a limit here as well.",
            totals.upstream_times,
        ),
        ("shadow_throttles", "Throttle times that shadows would have been set.", totals.shadow_times),
        ("refusals", "Requests that got an error instead of a throttle time.", totals.refused_times),
    )
    for name, text, total in counters:
        yield _counter(f"{prefix}_{name}", text, total)


def _store_families(status: DaemonStatus) -> Iterator[Family]:
    store = status.store
    yield _gauge("kafka_quotas_limits", "Limits in force.", [({}, store.limits)])
    yield _gauge(
        "kafka_quotas_store_age_seconds",
        "Time since the store's content was last confirmed.",
        [({}, store.age_ms / 1000)],
    )
    yield _gauge("kafka_quotas_store_reachable", "1 while the store can be read.", [({}, float(store.trouble is None))])


def _fleet_families(fleet: FleetRow) -> Iterator[Family]:
    yield _gauge("kafka_quotas_fleet_members", "Members of the fleet, this one included.", [({}, fleet.members)])
    yield _gauge(
        "kafka_quotas_fleet_cut_off", "1 while the other members can't be heard.", [({}, float(fleet.cut_off))]
    )
    text = "Members that are not trusted, because their version, windows or secret are others."
    yield _gauge("kafka_quotas_fleet_not_trusted", text, [({}, fleet.not_trusted)])
    text = "Members whose clock is wrong, or ours is."
    yield _gauge("kafka_quotas_fleet_wrong_clocks", text, [({}, fleet.wrong_clocks)])
    text = "Reports, or entries of them, that do not count, by reason."
    refused = [({"reason": reason}, total) for reason, total in fleet.refused.items()]
    yield _gauge("kafka_quotas_fleet_refused_reports", text, refused, is_counter=True)
    text = "1 if reports are signed, and others than signed ones do not count."
    yield _gauge("kafka_quotas_fleet_signed", text, [({}, float(fleet.signs))])
    text = "Buckets near their limits, of which members report."
    yield _gauge("kafka_quotas_fleet_shared_buckets", text, [({}, fleet.shared_buckets)])
    text = "Buckets in use that are not shared, because the node id of their broker is not known yet."
    yield _gauge("kafka_quotas_fleet_unnamed_buckets", text, [({}, fleet.unnamed_buckets)])
    yield _counter("kafka_quotas_fleet_published_bytes", "Bytes of this member's reports.", fleet.published_bytes)
    yield _counter("kafka_quotas_fleet_received_bytes", "Bytes of all members' reports.", fleet.received_bytes)


def _gauge(
    name: str, text: str, samples: Iterable[tuple[dict[str, str], float]], *, is_counter: bool = False
) -> Family:
    series = tuple(SeriesSample(labels=labels, value=value) for labels, value in samples)
    return Family(name=name, is_counter=is_counter, help=text, samples=series)


def _counter(name: str, text: str, total: float) -> Family:
    return _gauge(name, text, [({}, total)], is_counter=True)
