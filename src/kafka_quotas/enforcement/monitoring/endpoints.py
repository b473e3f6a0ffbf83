"""The HTTP endpoints of a daemon: `/metrics`, `/healthz`, `/readyz`, and pages made of a view of the daemon.

Alive is a daemon that answers at all. Ready is one that takes connections and reaches any broker; a store that is lost
makes it no less ready, for its last content stays in force.

Metrics have Kafka's names if Kafka has the same figure. The hot path knows nothing of them: figures are taken from the
status at a scrape. Counters and queue sizes are those of all clients, whichever have series of their own. The tags of
buckets are Kafka's (sanitized user, client-id). `docs/reference/metrics.md` describes every metric; a test holds the
two against each other.
"""

import json
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafka_quotas.core.groups.group import GroupTree
from kafka_quotas.core.groups.membership import ClientGroups
from kafka_quotas.core.model.quota_key import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    REQUEST_RATE,
)
from kafka_quotas.core.resolution.effective import EffectiveQuotas, QuotaClient
from kafka_quotas.core.resolution.quota_resolver import GUARANTEED_USER, bucket_tags
from kafka_quotas.core.resolution.usage import share_used
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.monitoring.http_server import (
    JSON,
    TEXT,
    HttpHandler,
    HttpReply,
    HttpRoutes,
    HttpServer,
    Query,
)
from kafka_quotas.enforcement.proxy.brokers import UpstreamHealth
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify
from kafka_quotas.enforcement.telemetry.status import (
    BucketRow,
    DaemonStatus,
    FleetRow,
    QuotaTotals,
    StoreRow,
    figures_of,
    run_sliced,
)
from kafka_quotas.stores.store import QuotaEntry

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

_METRICS: Final = "text/plain; version=1.0.0; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The answer to a readiness probe: whether clients should connect, and why not."""

    ready: bool
    draining: bool
    upstream_reachable: bool
    store_trouble: str | None
    """Error of the last access to the store, None without one."""
    store_age_ms: int
    """Time since the store's content was last confirmed."""


async def readiness(
    upstreams: Iterable[Address], health: UpstreamHealth, store: StoreRow, *, draining: bool
) -> Readiness:
    """Return the readiness of a daemon, for which brokers are tried unless it is draining."""
    reachable = not draining and await health.first_answering(upstreams) is not None
    return Readiness(
        ready=reachable,
        draining=draining,
        upstream_reachable=reachable,
        store_trouble=store.trouble,
        store_age_ms=store.age_ms,
    )


def probe_routes(
    metrics: Callable[[], Awaitable[bytes]], readiness: Callable[[], Awaitable[Readiness]] | None = None
) -> dict[str, HttpHandler]:
    """Return the paths of metrics and health, without `/readyz` in a process that is not a daemon."""

    async def exposed(_: Query) -> HttpReply:
        return HttpReply(body=await metrics(), content_type=_METRICS)

    async def healthz(_: Query) -> HttpReply:
        return HttpReply(body=b"alive\n", content_type=TEXT)

    routes: dict[str, HttpHandler] = {"/metrics": exposed, "/healthz": healthz}
    if readiness is None:
        return routes

    async def readyz(_: Query) -> HttpReply:
        found = await readiness()
        status = "200 OK" if found.ready else "503 Service Unavailable"
        return HttpReply(body=json.dumps(asdict(found)).encode() + b"\n", content_type=JSON, status=status)

    return {**routes, "/readyz": readyz}


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonView:
    """A running daemon, for pages in its own event loop."""

    status: Callable[[], Awaitable[DaemonStatus]]
    """Returns the status, while clients are served."""
    entries: Callable[[], list[QuotaEntry]]
    """Returns the quotas in force, those of a static file and of the policy file too."""
    resolver: Callable[[], EffectiveQuotas]
    """Returns the resolution, for clients the one by which the daemon itself finds limits, so that both agree."""
    groups: Callable[[], GroupTree]
    groups_of: Callable[[QuotaClient], ClientGroups]


Pages: TypeAlias = Callable[[DaemonView], HttpRoutes]
"""Makes the pages of a daemon, once, when it starts."""


def daemon_server(
    address: Address,
    figures: Callable[[], Awaitable[DaemonStatus]],
    readiness: Callable[[], Awaitable[Readiness]],
    pages: HttpRoutes,
    *,
    notify: Notify,
) -> HttpServer:
    """Return the server of a daemon's metrics, probes and pages, which is yet to be started."""
    _process()  # now, not at the first scrape, if prometheus-client is missing

    async def text() -> bytes:
        is_ready = (await readiness()).ready
        return await run_sliced(exposition(families(await figures(), is_ready=is_ready)))

    return HttpServer(
        address,
        routes=probe_routes(text, readiness),
        pages=pages,
        on_defect=lambda error: notify(LogEvent.failure("a page could not be made", error)),
    )


def metric_routes(families: "Callable[[], Iterable[Metric]]") -> dict[str, HttpHandler]:
    """Return the paths of metrics and health of a process that is not a daemon.

    The metrics are made once before: a library that is missing ends the start, and it is loaded by one thread, as
    prometheus_client imports itself in a circle, of which two would find half.
    """
    tuple(families())

    async def text() -> bytes:
        return await run_sliced(exposition(families()))

    return probe_routes(text)


def exposition(metrics: "Iterable[Metric]") -> Generator[None, None, bytes]:
    """Return metrics, and those of the process, in Prometheus' text format, a metric at a time."""
    from prometheus_client import generate_latest  # noqa: PLC0415 - only daemons with metrics

    pieces = []
    for metric in metrics:
        one: Any = SimpleNamespace(collect=partial(iter, (metric,)))
        pieces.append(generate_latest(one))
        yield
    return b"".join((*pieces, generate_latest(_process())))


@cache
def _process() -> "CollectorRegistry":
    from prometheus_client import CollectorRegistry, ProcessCollector  # noqa: PLC0415 - as above

    process = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=process)
    return process


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
_GUARANTEED: Final = bucket_tags((GUARANTEED_USER, ""))[0]
_CONNECTIONS: Final = ("connection", "creation_rate")
"""The same of connections, of which only groups have figures."""


def families(status: DaemonStatus, *, is_ready: bool) -> "Iterator[Metric]":
    """Yield every metric of a status, with series of their own for the buckets in it."""
    for quota, (kind, _) in QUOTA_FAMILIES.items():
        yield from bucket_families(status.buckets, quota)
        totals = next((each for each in status.quota_totals if each.quota == quota), QuotaTotals(quota=quota))
        yield from _families(f"kafka_server_{kind}", QuotaTotals, [({}, totals)])
    if any(row.quota == CONNECTION_CREATION_RATE.name for row in status.buckets):
        of_groups = bucket_families(status.buckets, CONNECTION_CREATION_RATE.name)
        yield from (each for each in of_groups if not each.name.endswith("throttle_time"))  # closed ones have no bucket
    yield from record_families(status, status.store, status.fleet)
    if status.fleet is not None:
        refused = [({"reason": reason}, float(total)) for reason, total in status.fleet.refused.items()]
        text = figures_of(FleetRow)["refused"].text
        yield metric_family(f"{_PREFIX}_fleet_refused_reports", text, refused, is_counter=True)
    if status.workers:
        yield metric_family(f"{_PREFIX}_workers", "Processes that serve connections.", [({}, len(status.workers))])
        again = sum(row.starts - 1 for row in status.workers)
        text = "Workers that were started again after their end."
        yield metric_family(f"{_PREFIX}_worker_restarts", text, [({}, again)], is_counter=True)
    yield metric_family(f"{_PREFIX}_ready", "1 while clients should connect, as /readyz says it.", [({}, is_ready)])
    for name, total in status.counters.items():
        text = f"{name.replace('_', ' ').capitalize()} since the start."
        yield metric_family(f"{_PREFIX}_{name}", text, [({}, total)], is_counter=True)


def record_families(*records: object) -> "Iterator[Metric]":
    """Yield the metrics of records with one row each, nothing for None."""
    for record in records:
        if record is not None:
            yield from _families(_PREFIX, type(record), [({}, record)])


def bucket_families(buckets: Iterable[BucketRow], quota: str) -> "Iterator[Metric]":
    """Yield the metrics of a quota's buckets.

    **Source:** Kafka's `kafka.server:type=Produce,user=..,client-id=..` and so on, and for the utilization KIP-1373,
    which has none of mutations and of what has no limit.
    """
    kind, attribute = QUOTA_FAMILIES.get(quota, _CONNECTIONS)
    prefix = f"kafka_server_{kind}"
    rows = [
        ({"broker": row.broker, "user": row.user, "client_id": row.client_id, "mode": row.mode}, row)
        for row in buckets
        if row.quota == quota
    ]
    if kind == _MUTATIONS:
        # A bucket of a rate, unlike one of tokens, measures nothing else.
        rates = [(tags, row.observed if row.mutation_rate is None else row.mutation_rate) for tags, row in rows]
        yield metric_family(f"{prefix}_mutation_rate", figures_of(BucketRow)["mutation_rate"].text, rates)
    else:
        limits = [(tags, row) for tags, row in rows if row.user != _GUARANTEED]  # which nobody is held to
        shares = [(tags, share_used(row.observed, row.limit)) for tags, row in limits]
        used = [(tags, share * 100) for tags, share in shares if share is not None]
        text = "Per cent of its limit at which a bucket is measured."
        yield metric_family(f"{prefix}_quota_utilization", text, used)
    yield from _families(prefix, BucketRow, rows, attribute=attribute)


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
            yield metric_family(metric, figure.text, samples, is_counter=figure.is_counter)


def metric_family(
    name: str, text: str, samples: Sequence[tuple[dict[str, str], float]], *, is_counter: bool = False
) -> "Metric":
    """Return a metric, whose samples all have the same labels."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - as above

    kind: Any = CounterMetricFamily if is_counter else GaugeMetricFamily
    metric: Metric = kind(name, text, labels=list(samples[0][0]) if samples else [])
    for labels, value in samples:
        metric.add_metric(list(labels.values()), float(value))  # type: ignore[attr-defined] # of both kinds
    return metric
