"""A reader of Prometheus' text format: the name, the labels and the value of every sample.

Invariants: the reader skips lines that are no samples (comments and unreadable ones) and ignores timestamps and
exemplars.

**Source:** Prometheus' exposition formats, text 0.0.4 and OpenMetrics 1.0.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SAMPLE = re.compile(
    r'(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(?P<value>[^\s#]+)(?:\s.*)?',
    re.ASCII,
)
_LABEL = re.compile(r'\s*(?P<name>[a-zA-Z_]\w*)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"\s*,?', re.ASCII)
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSample:
    """One figure of a metric."""

    name: str
    labels: Mapping[str, str]
    value: float


def parse_metrics(text: str) -> Iterator[MetricSample]:
    """Yield the samples of an exposition, in order."""
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line.strip())
        value = _number(match["value"]) if match else None
        if match is not None and value is not None:
            labels = {
                label["name"]: re.sub(r'\\[\\"n]', lambda found: _ESCAPES[found[0]], label["value"])
                for label in _LABEL.finditer(match["labels"] or "")
            }
            yield MetricSample(name=match["name"], labels=labels, value=value)


def _number(text: str) -> float | None:
    try:
        return float(text)  # NaN and +Inf are written as Python reads them
    except ValueError:
        return None
