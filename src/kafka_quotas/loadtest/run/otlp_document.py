"""The state of a running load test as an OTLP metrics request, in its JSON encoding.

Contract: pure. Counts are cumulative from the start of the load, as OTLP's sums and histograms are. 64-bit integers are
texts, as protobuf's JSON mapping has them. **Source:** opentelemetry-proto 1.x, `metrics.proto`; OTLP 1.x, JSON.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kafka_quotas.loadtest.plan.workload import UNITS, RateUnit
from kafka_quotas.loadtest.record.histogram import Histogram
from kafka_quotas.loadtest.run.runner import ClientProgress, RunProgress

PREFIX: Final = "kafka_quotas.load_test"
BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
"""The upper bounds of the latencies' buckets, in seconds."""
_CUMULATIVE: Final = 2
_NS_PER_S: Final = 1_000_000_000


def otlp_document(progress: RunProgress, *, now_ns: int, title: str) -> dict[str, Any]:
    """Return the request with the figures of all clients, at `now_ns` nanoseconds since the epoch."""
    times = {
        "startTimeUnixNano": str(now_ns - round(progress.elapsed_s * _NS_PER_S)),
        "timeUnixNano": str(now_ns),
    }
    scope = {"scope": {"name": PREFIX}, "metrics": list(_metrics(progress.entities, times))}
    resource = {"attributes": _attributes({"service.name": "kafka-quotas", "load_test": title})}
    return {"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]}


def _metrics(clients: Sequence[ClientProgress], times: dict[str, str]) -> Iterator[dict[str, Any]]:
    for unit in RateUnit:
        alike = [client for client in clients if UNITS[client.entity.workload] is unit]
        noun, otlp_unit = unit.value.partition("/")[0], "By/s" if unit is RateUnit.BYTES else f"{{{unit.value[:-3]}}}/s"
        yield from _gauge(f"rate.{noun}", otlp_unit, [(client, client.rate) for client in alike], times)
        quotas = [(client, client.entity.quota) for client in alike if client.entity.quota is not None]
        yield from _gauge(f"quota.{noun}", otlp_unit, quotas, times)
    yield from _gauge("waiting", "{record}", [(client, client.waiting) for client in clients], times)
    yield from _total("acknowledged", "{record}", [(client, client.acked) for client in clients], times)
    yield from _total("throttles", "{throttle}", [(client, client.throttle_count) for client in clients], times)
    throttled = [(client, client.throttle_sum_ms / 1000) for client in clients]
    yield from _total("throttle.time", "s", throttled, times)
    recorded = [(client, client.recorder) for client in clients if client.recorder is not None]
    yield from _total("sent", "{record}", [(client, recorder.sent) for client, recorder in recorded], times)
    yield from _total("dropped", "{record}", [(client, recorder.dropped_count) for client, recorder in recorded], times)
    failed = [(client, recorder.failures.total()) for client, recorder in recorded]
    yield from _total("failed", "{record}", failed, times)
    for name in ("service", "schedule_delay", "response"):
        attribute = "schedule_delays" if name == "schedule_delay" else f"{name}_times"
        points = [
            {**_point(client, times), **_buckets(getattr(recorder, attribute).snapshot())}
            for client, recorder in recorded
        ]
        if points:
            histogram = {"dataPoints": points, "aggregationTemporality": _CUMULATIVE}
            yield {"name": f"{PREFIX}.{name}", "unit": "s", "histogram": histogram}


def _gauge(
    name: str, unit: str, values: Iterable[tuple[ClientProgress, float]], times: dict[str, str]
) -> Iterator[dict[str, Any]]:
    points = [{**_point(client, times), "asDouble": float(value)} for client, value in values]
    if points:
        yield {"name": f"{PREFIX}.{name}", "unit": unit, "gauge": {"dataPoints": points}}


def _total(
    name: str, unit: str, values: Iterable[tuple[ClientProgress, float]], times: dict[str, str]
) -> Iterator[dict[str, Any]]:
    points = [
        {**_point(client, times), **({"asInt": str(value)} if isinstance(value, int) else {"asDouble": value})}
        for client, value in values
    ]
    if points:
        total = {"dataPoints": points, "aggregationTemporality": _CUMULATIVE, "isMonotonic": True}
        yield {"name": f"{PREFIX}.{name}", "unit": unit, "sum": total}


def _point(client: ClientProgress, times: dict[str, str]) -> dict[str, Any]:
    name = client.entity.name
    labels = {"client_id": name.client_id or "", "user": name.user or "", "does": client.entity.workload.value}
    return {"attributes": _attributes(labels), **times}


def _attributes(values: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


def _buckets(histogram: Histogram) -> dict[str, Any]:
    """Return the counts of a histogram below each bound and above the last."""
    counts = [0] * (len(BOUNDS_S) + 1)
    for lowest_us, count in histogram.counts.items():
        counts[bisect_left(BOUNDS_S, lowest_us / 1e6)] += count
    total = sum(counts)
    return {
        "count": str(total),
        "sum": histogram.spread_us()[0] / 1e6 * total,
        "bucketCounts": [str(count) for count in counts],
        "explicitBounds": list(BOUNDS_S),
    }
