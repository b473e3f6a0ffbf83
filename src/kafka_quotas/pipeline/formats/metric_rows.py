"""Throttling as clients measured it, and the use of each quota as brokers measured it.

Clients are librdkafka (its statistics) and Java (its metrics). Brokers' figures come from scrapes, under the names of
any exporter: Prometheus' text (with or without times), a Prometheus server's response, Jolokia's response, JSON lines
of samples, and the output of Kafka's own tools with `--print-metrics`. What has none of these forms is a
`BadLineError`.

**Source:** librdkafka's STATISTICS.md (`brokers.*.throttle`, ms), `FetchMetricsRegistry` and `SenderMetricsRegistry`
(Kafka 4.0: produce-/fetch-throttle-time-avg and -max, ms), KIP-13 and KIP-219 for the meaning of the figures.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import orjson

from kafka_quotas.core.formats.metric_names import MetricNames, MetricSample, parse_metrics, usages_of
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.core.resolution.usage import Usage
from kafka_quotas.pipeline.formats.lines import file_size, read_blocks
from kafka_quotas.pipeline.formats.task import (
    BadLineError,
    IngestTask,
    InputFormat,
    ParsedBatch,
    Row,
)

_TYPES = {each.key.name: each.value for each in QuotaType}
_RATES = {
    QuotaType.PRODUCE.value: "byte_rate",
    QuotaType.FETCH.value: "byte_rate",
    QuotaType.REQUEST.value: "request_time",
    QuotaType.CONTROLLER_MUTATION.value: "mutation_rate",
}


_TIME: Final = re.compile(r"\s(?P<time>-?\d{9,15})\s*(?:#.*)?$", re.ASCII)
_PRINTED: Final = re.compile(r"(?P<group>[\w-]+):(?P<name>[\w.-]+):\{(?P<tags>.*)\}\s*:\s*(?P<value>\S+)", re.ASCII)
_MBEAN: Final = re.compile(r"(?P<domain>[\w.]+):(?P<keys>.+)", re.ASCII)
_MS_FROM: Final = 100_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSample:
    """A metric sample and its time."""

    sample: MetricSample
    ts_ms: int | None = None
    """Time in ms since 1970, None if only the scrape as a whole has one."""


def prometheus_samples(line: str) -> Iterator[TimedSample]:
    """Yield the sample of a line of Prometheus' text, or none for a comment."""
    if line.startswith("#") or not line.strip():
        return
    sample = next(parse_metrics(line), None)
    if sample is None:
        raise BadLineError("no sample of Prometheus' text format")
    time = _TIME.search(line)
    yield TimedSample(sample=sample, ts_ms=None if time is None else _time_ms(float(time["time"])))


def printed_samples(line: str) -> Iterator[TimedSample]:
    """Yield the sample of a line that Kafka's tools print."""
    match = _PRINTED.fullmatch(line.strip())
    if match is None:
        raise BadLineError("no metric as Kafka's tools print it")
    labels = dict(pair.split("=", 1) for pair in match["tags"].split(", ") if "=" in pair)
    yield TimedSample(sample=_sample(f"{match['group']}_{match['name']}", labels, match["value"]))


def json_samples(content: bytes) -> Iterator[TimedSample]:
    """Yield the samples of a JSON document or line."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise BadLineError(f"broken JSON: {error.msg}") from error
    try:
        for each in document if isinstance(document, list) else [document]:
            yield from _of_document(each)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadLineError("no metrics in a form that is known") from error


def _of_document(document: Mapping[str, Any]) -> Iterator[TimedSample]:
    if "data" in document:
        for series in document["data"]["result"]:
            labels = dict(series["metric"])
            name = labels.pop("__name__")
            for time, value in series["values"] if "values" in series else [series["value"]]:
                yield TimedSample(sample=_sample(name, labels, value), ts_ms=_time_ms(time))
    elif "request" in document:
        yield from _of_jolokia(document)
    else:
        time = document.get("timestamp", document.get("ts_ms"))
        yield TimedSample(
            sample=_sample(document["name"], document.get("labels", {}), document["value"]),
            ts_ms=None if time is None else _time_ms(time),
        )


def _of_jolokia(document: Mapping[str, Any]) -> Iterator[TimedSample]:
    """Yield the samples of a response to a read request.

    It holds one MBean's attributes, or those of each MBean that the request's pattern matched.
    """
    value, mbean = document["value"], document["request"]["mbean"]
    beans = value if any(isinstance(each, dict) for each in value.values()) else {mbean: value}
    for name, attributes in beans.items():
        match = _MBEAN.fullmatch(name)
        if match is None:
            raise ValueError(name)
        keys = dict(pair.split("=", 1) for pair in match["keys"].split(","))
        kind = keys.pop("type")
        for attribute, figure in attributes.items():
            metric = "_".join((match["domain"], kind, attribute)).replace(".", "_").replace("-", "_")
            labels = {key.replace("-", "_"): text.strip('"') for key, text in keys.items()}
            yield TimedSample(sample=_sample(metric, labels, figure), ts_ms=_time_ms(document["timestamp"]))


def _sample(name: str, labels: Mapping[str, str], value: Any) -> MetricSample:
    if not all(isinstance(text, str) for text in (name, *labels.values())):
        raise TypeError(name)
    return MetricSample(name=name, labels=labels, value=float("nan" if value is None else value))


def _time_ms(time: float) -> int:
    """Return milliseconds of a time in seconds or milliseconds since 1970."""
    if not math.isfinite(time) or abs(time) > 10**15:
        raise ValueError(time)
    return round(time if abs(time) >= _MS_FROM else time * 1000)


def metric_rows(
    samples: Iterable[TimedSample], *, names: MetricNames, broker: str, ts_ms: int, cluster: str, src_file: str
) -> Iterator[Row]:
    """Yield the quota metrics among the samples.

    Samples that name no broker are of `broker`, those without a time of `ts_ms` (milliseconds since 1970).
    """

    def taken_ms(timed: TimedSample) -> int:
        return ts_ms if timed.ts_ms is None else timed.ts_ms

    for at_ms, group in groupby(sorted(samples, key=taken_ms), key=taken_ms):
        for usage in usages_of((timed.sample for timed in group), names=names, broker=broker):
            for metric, value in _figures(usage):
                yield {
                    "ts_ms": at_ms,
                    "cluster": cluster,
                    "broker": usage.broker,
                    "quota_type": _TYPES[usage.key],
                    "user": usage.user,
                    "client_id": usage.client_id,
                    "metric": metric,
                    "value": value,
                    "src_file": src_file,
                }


def _figures(usage: Usage) -> Iterator[tuple[str, float]]:
    rate = _RATES[_TYPES[usage.key]]
    for metric, value in ((rate, usage.observed), ("throttle_time", usage.throttle_ms), (f"{rate}_limit", usage.limit)):
        if value is not None:
            yield metric, value


_JAVA: Final = re.compile(r".*(?:produce|fetch)[-_]throttle[-_]time[-_](?P<kind>avg|max)", re.IGNORECASE | re.ASCII)
_CLIENT_LABELS: Final = ("client_id", "client-id", "clientId", "clientid")


def librdkafka_rows(line: bytes, *, cluster: str, src_file: str) -> Iterator[Row]:
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
                yield {
                    "ts_ms": round(entry["time"] * 1000),
                    "cluster": cluster,
                    "client_id": str(entry["client_id"]),
                    "broker": str(broker["nodeid"]),
                    "throttle_ms": float(throttle["avg"]),
                    "max_throttle_ms": float(throttle["max"]),
                    "samples": int(throttle["cnt"]),
                    "source": "librdkafka",
                    "src_file": src_file,
                }
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise BadLineError("not librdkafka's statistics") from error


def java_rows(samples: Iterable[TimedSample], *, ts_ms: int, cluster: str, src_file: str) -> Iterator[Row]:
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
        yield {
            "ts_ms": taken_ms,
            "cluster": cluster,
            "client_id": client_id,
            "broker": "",
            "throttle_ms": figures.get("avg", figures.get("max", 0.0)),
            "max_throttle_ms": figures.get("max", figures.get("avg", 0.0)),
            "samples": None,
            "source": "java",
            "src_file": src_file,
        }


def read_document(task: IngestTask, parsed: ParsedBatch) -> None:
    """Add the rows of a file to the batch."""
    _DocumentReader(task, parsed).read_samples()
    parsed.counts.read_to = file_size(task.path)


class _DocumentReader:
    def __init__(self, task: IngestTask, parsed: ParsedBatch) -> None:
        self._task = task
        self._src_file = str(task.path)
        self._parsed = parsed

    def read_samples(self) -> None:
        """Add the figures about quotas to the batch, and count the others."""
        task, src_file, parsed = self._task, self._src_file, self._parsed
        samples = list(
            self._json_samples() if self._task.input_format is InputFormat.JSON_METRICS else self._line_samples()
        )
        broker = "" if task.broker_id is None else str(task.broker_id)
        parsed.metrics += metric_rows(
            samples, names=task.names, broker=broker, ts_ms=task.ts_ms, cluster=task.cluster, src_file=src_file
        )
        parsed.client_throttle += java_rows(samples, ts_ms=task.ts_ms, cluster=task.cluster, src_file=src_file)
        parsed.counts.unused = max(0, len(samples) - len(parsed.metrics) - len(parsed.client_throttle))

    def _line_samples(self) -> Iterator[TimedSample]:
        parse = printed_samples if self._task.input_format is InputFormat.JAVA_CLIENT else prometheus_samples
        for number, line in self._lines():
            try:
                yield from parse(line.decode())
            except UnicodeDecodeError:
                self._refuse(line, BadLineError("not UTF-8"), number)
            except BadLineError as error:
                self._refuse(line, error, number)

    def _json_samples(self) -> Iterator[TimedSample]:
        """Yield the samples of one document, or of each line where the whole is no document."""
        lines = list(self._lines())
        try:
            found = list(json_samples(b"\n".join(line for _, line in lines)))
        except BadLineError:
            for number, line in lines:
                try:
                    yield from json_samples(line)
                except BadLineError as error:
                    self._refuse(line, error, number)
        else:
            yield from found

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        counts = self._parsed.counts
        for block in read_blocks(self._task.path):
            for line in block.lines:
                counts.lines += 1
                if block.fault is not None:
                    self._refuse(line, BadLineError(block.fault), counts.lines)
                elif line.strip():
                    yield counts.lines, line
                else:
                    counts.blank += 1

    def _refuse(self, line: bytes, error: BadLineError, number: int) -> None:
        self._parsed.refuse(line, error, src_file=self._src_file, line_no=number)
