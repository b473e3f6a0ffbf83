"""Metric samples with their times, from the formats that exporters and tools write.

These are Prometheus' text (with or without times), a Prometheus server's response, Jolokia's response, JSON lines of
samples, and the output of Kafka's own tools with `--print-metrics`. What has none of these forms is a `BadLineError`.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from kafka_quotas.core.formats.prometheus_text import MetricSample, parse_metrics
from kafka_quotas.pipeline.formats.rows import BadLineError

_TIME: Final = re.compile(r"\s(?P<time>-?\d{9,15})\s*(?:#.*)?$", re.ASCII)
_PRINTED: Final = re.compile(r"(?P<group>[\w-]+):(?P<name>[\w.-]+):\{(?P<tags>.*)\}\s*:\s*(?P<value>\S+)", re.ASCII)
_MBEAN: Final = re.compile(r"(?P<domain>[\w.]+):(?P<keys>.+)", re.ASCII)
_MS_FROM: Final = 100_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSample:
    """A metric sample and its time."""

    sample: MetricSample
    ts_ms: int | None = None
    """Time in ms since 1970, None where only the scrape as a whole has one."""


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
    """Return milliseconds of a time in seconds or milliseconds since 1970.

    Raises:
        ValueError: The time is neither.
    """
    if not math.isfinite(time) or abs(time) > 10**15:
        raise ValueError(time)
    return round(time if abs(time) >= _MS_FROM else time * 1000)
