"""The daemon's figures for Prometheus, under Kafka's names where Kafka has the same figure.

The hot path knows nothing of this: figures are taken from the status at a scrape. Counters and queue sizes are those of
all clients, whichever have series of their own. The tags of buckets are Kafka's (sanitized user, client-id).
`docs/reference/metrics.md` describes every metric; a test holds the two against each other.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafka_quotas.core.model.quota_key import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    REQUEST_RATE,
)
from kafka_quotas.enforcement.telemetry.status import BucketRow, DaemonStatus, QuotaTotals, figures_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFamily:
    """The names of one quota key's metrics."""

    kind: str
    """Kafka's type of the quota."""
    attribute: str
    """Attribute that is measured."""


_PREFIX: Final = "kafka_quotas"
_MUTATIONS: Final = "controllermutation"
QUOTA_FAMILIES: Final = {
    PRODUCER_BYTE_RATE.name: QuotaFamily(kind="produce", attribute="byte_rate"),
    CONSUMER_BYTE_RATE.name: QuotaFamily(kind="fetch", attribute="byte_rate"),
    REQUEST_PERCENTAGE.name: QuotaFamily(kind="request", attribute="request_time"),
    CONTROLLER_MUTATION_RATE.name: QuotaFamily(kind=_MUTATIONS, attribute="tokens"),
    REQUEST_RATE.name: QuotaFamily(kind="requestrate", attribute="request_rate"),
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
        yield from _quota_families(status, quota, family)
    for record in (status, status.store, status.fleet):
        if record is not None:
            yield from _families(_PREFIX, type(record), [({}, record)])
    if status.fleet is not None:
        text = "Reports, or entries of them, that do not count, by reason."
        refused = [({"reason": reason}, float(total)) for reason, total in status.fleet.refused.items()]
        yield _family(f"{_PREFIX}_fleet_refused_reports", text, refused, is_counter=True)
    if status.workers:
        yield _family(f"{_PREFIX}_workers", "Processes that serve connections.", [({}, len(status.workers))])
        again = sum(row.starts - 1 for row in status.workers)
        text = "Workers that were started again after their end."
        yield _family(f"{_PREFIX}_worker_restarts", text, [({}, again)], is_counter=True)
    yield _family(f"{_PREFIX}_ready", "1 while clients should connect, as /readyz says it.", [({}, is_ready)])
    for name, total in status.counters.items():
        text = f"{name.replace('_', ' ').capitalize()} since the start."
        yield _family(f"{_PREFIX}_{name}", text, [({}, total)], is_counter=True)


def _quota_families(status: DaemonStatus, quota: str, family: QuotaFamily) -> Iterator[Family]:
    """Yield the metrics of a quota's buckets and of all its clients.

    **Source:** Kafka's `kafka.server:type=Produce,user=..,client-id=..` and so on.
    """
    prefix = f"kafka_server_{family.kind}"
    rows = [row for row in status.buckets if row.quota == quota]
    tags = [{"broker": row.broker, "user": row.user, "client_id": row.client_id, "mode": row.mode} for row in rows]
    yield from _families(prefix, BucketRow, list(zip(tags, rows, strict=True)), attribute=family.attribute)
    if family.kind == _MUTATIONS:
        # A bucket of a rate, unlike one of tokens, measures nothing else.
        rates = [row.observed if row.mutation_rate is None else row.mutation_rate for row in rows]
        text = figures_of(BucketRow)["mutation_rate"].text
        yield _family(f"{prefix}_mutation_rate", text, list(zip(tags, rates, strict=True)))
    totals = next((each for each in status.quota_totals if each.quota == quota), QuotaTotals(quota=quota))
    yield from _families(prefix, QuotaTotals, [({}, totals)])


def _families(
    prefix: str, kind: type[Any], rows: Sequence[tuple[dict[str, str], Any]], *, attribute: str = ""
) -> Iterator[Family]:
    """Yield the metrics of the figures of some records, without a figure that none of them has."""
    for name, figure in figures_of(kind).items():
        if figure.metric is None:
            continue
        found = [(labels, figure.read(getattr(record, name))) for labels, record in rows]
        samples = [(labels, value) for labels, value in found if value is not None]
        if samples or not found:
            metric = f"{prefix}_{figure.metric.format(attribute=attribute)}"
            yield _family(metric, figure.text, samples, is_counter=figure.is_counter)


def _family(
    name: str, text: str, samples: Iterable[tuple[dict[str, str], float]], *, is_counter: bool = False
) -> Family:
    series = tuple(SeriesSample(labels=labels, value=float(value)) for labels, value in samples)
    return Family(name=name, is_counter=is_counter, help=text, samples=series)


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
