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
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import orjson

from kafka_quotas.core.formats.metric_names import MetricSample, parse_metrics, usages_of
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.core.resolution.usage import Usage
from kafka_quotas.pipeline.formats.lines import file_size, read_blocks
from kafka_quotas.pipeline.formats.task import BadLineError, IngestTask, InputFormat, ParsedBatch, Row
from kafka_quotas.pipeline.formats.timestamp import epoch_ms

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


_Timed = tuple[MetricSample, int | None]
"""A metric sample and its time in ms since 1970, None if only the scrape as a whole has one."""


def _prometheus_samples(content: bytes) -> Iterator[_Timed]:
    """Yield the sample of a line of Prometheus' text, or none for a comment."""
    line = _text(content)
    if line.startswith("#"):
        return
    sample = next(parse_metrics(line), None)
    if sample is None:
        raise BadLineError("no sample of Prometheus' text format")
    time = _TIME.search(line)
    yield sample, None if time is None else epoch_ms(float(time["time"]))


def _printed_samples(content: bytes) -> Iterator[_Timed]:
    """Yield the sample of a line that Kafka's tools print."""
    match = _PRINTED.fullmatch(_text(content).strip())
    if match is None:
        raise BadLineError("no metric as Kafka's tools print it")
    labels = dict(pair.split("=", 1) for pair in match["tags"].split(", ") if "=" in pair)
    yield _sample(f"{match['group']}_{match['name']}", labels, match["value"]), None


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadLineError("not UTF-8") from error


def _json_samples(content: bytes) -> Iterator[_Timed]:
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


def _of_document(document: Mapping[str, Any]) -> Iterator[_Timed]:
    if "data" in document:
        for series in document["data"]["result"]:
            labels = dict(series["metric"])
            name = labels.pop("__name__")
            for time, value in series["values"] if "values" in series else [series["value"]]:
                yield _sample(name, labels, value), epoch_ms(time)
    elif "request" in document:
        yield from _of_jolokia(document)
    else:
        time = document.get("timestamp", document.get("ts_ms"))
        sample = _sample(document["name"], document.get("labels", {}), document["value"])
        yield sample, None if time is None else epoch_ms(time)


def _of_jolokia(document: Mapping[str, Any]) -> Iterator[_Timed]:
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
            yield _sample(metric, labels, figure), epoch_ms(document["timestamp"])


def _sample(name: str, labels: Mapping[str, str], value: Any) -> MetricSample:
    if not all(isinstance(text, str) for text in (name, *labels.values())):
        raise TypeError(name)
    return MetricSample(name=name, labels=labels, value=float("nan" if value is None else value))


def _metric_rows(samples: Iterable[tuple[int, MetricSample]], task: IngestTask) -> Iterator[Row]:
    """Yield the quota metrics among the samples, in their order in time.

    Samples that name no broker are of the task's.
    """
    broker = "" if task.broker_id is None else str(task.broker_id)
    for at_ms, group in groupby(samples, key=itemgetter(0)):
        for usage in usages_of((sample for _, sample in group), names=task.names, broker=broker):
            for metric, value in _figures(usage):
                yield {
                    "ts_ms": at_ms,
                    "cluster": task.cluster,
                    "broker": usage.broker,
                    "quota_type": _TYPES[usage.key],
                    "user": usage.user,
                    "client_id": usage.client_id,
                    "metric": metric,
                    "value": value,
                    "src_file": str(task.path),
                }


def _figures(usage: Usage) -> Iterator[tuple[str, float]]:
    rate = _RATES[_TYPES[usage.key]]
    for metric, value in ((rate, usage.observed), ("throttle_time", usage.throttle_ms), (f"{rate}_limit", usage.limit)):
        if value is not None:
            yield metric, value


_JAVA: Final = re.compile(r".*(?:produce|fetch)[-_]throttle[-_]time[-_](?P<kind>avg|max)", re.IGNORECASE | re.ASCII)
_CLIENT_LABELS: Final = ("client_id", "client-id", "clientId", "clientid")


def librdkafka_rows(line: bytes, *, cluster: str, src_file: str) -> Iterator[Row]:
    """Yield the throttling by each broker that answered, from a line of statistics."""
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


def _java_rows(samples: Iterable[tuple[int, MetricSample]], task: IngestTask) -> Iterator[Row]:
    """Yield the throttling of each Java client in a scrape, without figures that are NaN."""
    found: dict[tuple[int, str], dict[str, float]] = {}
    for at_ms, sample in samples:
        match = _JAVA.fullmatch(sample.name)
        if match is not None and math.isfinite(sample.value):
            client_id = next((sample.labels[label] for label in _CLIENT_LABELS if label in sample.labels), "")
            found.setdefault((at_ms, client_id), {})[match["kind"].lower()] = sample.value
    for (at_ms, client_id), figures in found.items():
        yield {
            "ts_ms": at_ms,
            "cluster": task.cluster,
            "client_id": client_id,
            "broker": "",
            "throttle_ms": figures.get("avg", figures.get("max", 0.0)),
            "max_throttle_ms": figures.get("max", figures.get("avg", 0.0)),
            "samples": None,
            "source": "java",
            "src_file": str(task.path),
        }


def read_document(task: IngestTask, parsed: ParsedBatch) -> Iterator[ParsedBatch]:
    """Yield the figures about quotas in a file, and count the others."""
    found = [(task.ts_ms if ts_ms is None else ts_ms, sample) for sample, ts_ms in _samples(task, parsed)]
    samples = sorted(found, key=itemgetter(0))
    parsed.metrics += _metric_rows(samples, task)
    parsed.client_throttle += _java_rows(samples, task)
    parsed.counts.unused = max(0, len(samples) - len(parsed.metrics) - len(parsed.client_throttle))
    parsed.counts.read_to = file_size(task.path)
    yield parsed.counted()


def _samples(task: IngestTask, parsed: ParsedBatch) -> Iterator[_Timed]:
    """Yield the samples of one JSON document, or else of each line."""
    lines = list(_lines(task, parsed))
    if task.input_format is InputFormat.JSON_METRICS:
        with suppress(BadLineError):
            yield from list(_json_samples(b"\n".join(line for _, line in lines)))
            return
    for number, line in lines:
        try:
            yield from _BY_FORMAT[task.input_format](line)
        except BadLineError as error:
            parsed.refuse(line, error, src_file=str(task.path), line_no=number)


_BY_FORMAT: Final = {
    InputFormat.JSON_METRICS: _json_samples,
    InputFormat.JAVA_CLIENT: _printed_samples,
    InputFormat.PROMETHEUS: _prometheus_samples,
}


def _lines(task: IngestTask, parsed: ParsedBatch) -> Iterator[tuple[int, bytes]]:
    counts = parsed.counts
    for block in read_blocks(task.path):
        for line in block.lines:
            counts.lines += 1
            if block.fault is not None:
                parsed.refuse(line, BadLineError(block.fault), src_file=str(task.path), line_no=counts.lines)
            elif line.strip():
                yield counts.lines, line
            else:
                counts.blank += 1
