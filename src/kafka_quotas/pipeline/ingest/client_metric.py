"""What clients measured of the throttling they met: librdkafka's statistics, Java's metrics.

**Source:** librdkafka's STATISTICS.md (`brokers.*.throttle`, ms), `FetchMetricsRegistry` and `SenderMetricsRegistry`
(Kafka 4.0: produce-/fetch-throttle-time-avg and -max, ms), KIP-13 and KIP-219 for what the figures mean.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Final

import orjson

from kafka_quotas.pipeline.ingest.bad_line import BadLineError
from kafka_quotas.pipeline.ingest.metric_sample import TimedSample
from kafka_quotas.pipeline.ingest.rows import ClientThrottleRow

_JAVA: Final = re.compile(r".*(?:produce|fetch)[-_]throttle[-_]time[-_](?P<kind>avg|max)", re.IGNORECASE | re.ASCII)
_CLIENT_LABELS: Final = ("client_id", "client-id", "clientId", "clientid")


def librdkafka_rows(line: bytes, *, cluster: str, src_file: str) -> Iterator[ClientThrottleRow]:
    """What a line of statistics tells of each broker that answered. Raises `BadLineError` for another line."""
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadLineError(f"broken JSON: {error.msg}") from error
    try:
        for broker in entry["brokers"].values():
            throttle = broker["throttle"]
            if throttle["cnt"] > 0:
                yield ClientThrottleRow(
                    ts_ms=round(entry["time"] * 1000),
                    cluster=cluster,
                    client_id=str(entry["client_id"]),
                    broker=str(broker["nodeid"]),
                    throttle_ms=float(throttle["avg"]),
                    max_throttle_ms=float(throttle["max"]),
                    samples=int(throttle["cnt"]),
                    source="librdkafka",
                    src_file=src_file,
                )
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise BadLineError("not librdkafka's statistics") from error


def java_rows(
    samples: Iterable[TimedSample], *, ts_ms: int, cluster: str, src_file: str
) -> Iterator[ClientThrottleRow]:
    """What a scrape tells of each Java client; `ts_ms` is its time where samples have none. NaN is no figure."""
    found: dict[tuple[int, str], dict[str, float]] = {}
    for timed in samples:
        match = _JAVA.fullmatch(timed.sample.name)
        if match is not None and math.isfinite(timed.sample.value):
            labels = timed.sample.labels
            client_id = next((labels[label] for label in _CLIENT_LABELS if label in labels), "")
            taken_ms = ts_ms if timed.ts_ms is None else timed.ts_ms
            found.setdefault((taken_ms, client_id), {})[match["kind"].lower()] = timed.sample.value
    for (taken_ms, client_id), figures in found.items():
        yield ClientThrottleRow(
            ts_ms=taken_ms,
            cluster=cluster,
            client_id=client_id,
            broker="",
            throttle_ms=figures.get("avg", figures.get("max", 0.0)),
            max_throttle_ms=figures.get("max", figures.get("avg", 0.0)),
            samples=None,
            source="java",
            src_file=src_file,
        )
