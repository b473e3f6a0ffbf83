"""The daemon's figures for Prometheus, under Kafka's names if Kafka has the same figure.

The hot path knows nothing of this: figures are taken from the status at a scrape. Counters and queue sizes are those of
all clients, whichever have series of their own. The tags of buckets are Kafka's (sanitized user, client-id).
`docs/reference/metrics.md` describes every metric; a test holds the two against each other.
"""

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
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


_PREFIX: Final = "kafka_quotas"
_MUTATIONS: Final = "controllermutation"
QUOTA_FAMILIES: Final = {
    PRODUCER_BYTE_RATE.name: ("produce", "byte_rate"),
    CONSUMER_BYTE_RATE.name: ("fetch", "byte_rate"),
    REQUEST_PERCENTAGE.name: ("request", "request_time"),
    CONTROLLER_MUTATION_RATE.name: (_MUTATIONS, "tokens"),
    REQUEST_RATE.name: ("requestrate", "request_rate"),
}
"""Kafka's type of each quota key, and the attribute that is measured. Brokers have no quota like the last."""


def families(status: DaemonStatus, *, is_ready: bool) -> "Iterator[Metric]":
    """Yield every metric of a status, with series of their own for the buckets in it.

    Args:
        status: The status.
        is_ready: Whether clients should connect, as `/readyz` says it.
    """
    for quota, (kind, attribute) in QUOTA_FAMILIES.items():
        yield from _quota_families(status, quota, kind, attribute)
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


def _quota_families(status: DaemonStatus, quota: str, kind: str, attribute: str) -> "Iterator[Metric]":
    """Yield the metrics of a quota's buckets and of all its clients.

    **Source:** Kafka's `kafka.server:type=Produce,user=..,client-id=..` and so on.
    """
    prefix = f"kafka_server_{kind}"
    rows = [row for row in status.buckets if row.quota == quota]
    tags = [{"broker": row.broker, "user": row.user, "client_id": row.client_id, "mode": row.mode} for row in rows]
    yield from _families(prefix, BucketRow, list(zip(tags, rows, strict=True)), attribute=attribute)
    if kind == _MUTATIONS:
        # A bucket of a rate, unlike one of tokens, measures nothing else.
        rates = [row.observed if row.mutation_rate is None else row.mutation_rate for row in rows]
        text = figures_of(BucketRow)["mutation_rate"].text
        yield _family(f"{prefix}_mutation_rate", text, list(zip(tags, rates, strict=True)))
    totals = next((each for each in status.quota_totals if each.quota == quota), QuotaTotals(quota=quota))
    yield from _families(prefix, QuotaTotals, [({}, totals)])


def _families(
    prefix: str, kind: Any, rows: Sequence[tuple[dict[str, str], Any]], *, attribute: str = ""
) -> "Iterator[Metric]":
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
    name: str, text: str, samples: Sequence[tuple[dict[str, str], float]], *, is_counter: bool = False
) -> "Metric":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - as below

    kind: Any = CounterMetricFamily if is_counter else GaugeMetricFamily
    metric = kind(name, text, labels=list(samples[0][0]) if samples else [])
    for labels, value in samples:
        metric.add_metric(list(labels.values()), float(value))
    found: Metric = metric
    return found


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
        for metric in families(status, is_ready=is_ready):
            one: Any = SimpleNamespace(collect=partial(iter, (metric,)))
            pieces.append(generate_latest(one))
            yield
        return b"".join((*pieces, generate_latest(process)))

    return text
