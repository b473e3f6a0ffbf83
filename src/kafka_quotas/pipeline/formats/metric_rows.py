"""Throttling as clients measured it, and the use of each quota as brokers measured it.

Clients are librdkafka (its statistics) and Java (its metrics). Brokers' figures come from scrapes, under the names of
any exporter.

**Source:** librdkafka's STATISTICS.md (`brokers.*.throttle`, ms), `FetchMetricsRegistry` and `SenderMetricsRegistry`
(Kafka 4.0: produce-/fetch-throttle-time-avg and -max, ms), KIP-13 and KIP-219 for the meaning of the figures.
"""

import math
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

import orjson

from kafka_quotas.core.formats.metric_names import MetricNames, usages_of
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.core.resolution.usage import Usage
from kafka_quotas.pipeline.formats.metric_sample import TimedSample
from kafka_quotas.pipeline.formats.rows import BadLineError, ClientThrottleRow, MetricRow

_TYPES = {each.key.name: each.value for each in QuotaType}
_RATES = {
    QuotaType.PRODUCE.value: "byte_rate",
    QuotaType.FETCH.value: "byte_rate",
    QuotaType.REQUEST.value: "request_time",
    QuotaType.CONTROLLER_MUTATION.value: "mutation_rate",
}


def metric_rows(
    samples: Iterable[TimedSample], *, names: MetricNames, broker: str, ts_ms: int, cluster: str, src_file: str
) -> Iterator[MetricRow]:
    """Yield the quota metrics among the samples.

    Samples that name no broker are of `broker`, those without a time of `ts_ms` (milliseconds since 1970).
    """

    def taken_ms(timed: TimedSample) -> int:
        return ts_ms if timed.ts_ms is None else timed.ts_ms

    for at_ms, group in groupby(sorted(samples, key=taken_ms), key=taken_ms):
        for usage in usages_of((timed.sample for timed in group), names=names, broker=broker):
            for metric, value in _figures(usage):
                yield MetricRow(
                    ts_ms=at_ms,
                    cluster=cluster,
                    broker=usage.broker,
                    quota_type=_TYPES[usage.key],
                    user=usage.user,
                    client_id=usage.client_id,
                    metric=metric,
                    value=value,
                    src_file=src_file,
                )


def _figures(usage: Usage) -> Iterator[tuple[str, float]]:
    rate = _RATES[_TYPES[usage.key]]
    for metric, value in ((rate, usage.observed), ("throttle_time", usage.throttle_ms), (f"{rate}_limit", usage.limit)):
        if value is not None:
            yield metric, value


_JAVA: Final = re.compile(r".*(?:produce|fetch)[-_]throttle[-_]time[-_](?P<kind>avg|max)", re.IGNORECASE | re.ASCII)
_CLIENT_LABELS: Final = ("client_id", "client-id", "clientId", "clientid")


def librdkafka_rows(line: bytes, *, cluster: str, src_file: str) -> Iterator[ClientThrottleRow]:
    """Yield the throttling by each broker that answered, from a line of statistics.

    Raises:
        BadLineError: The line is not librdkafka's statistics.
    """
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
    """Yield the throttling of each Java client in a scrape, without figures that are NaN.

    Samples without a time are of `ts_ms` (milliseconds since 1970).
    """
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
