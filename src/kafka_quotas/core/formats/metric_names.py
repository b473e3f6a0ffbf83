"""The quota metrics of brokers in Prometheus' text format, by the names that an exporter gives them.

The MBeans are `kafka.server:type=Produce|Fetch|Request|ControllerMutation,user=..,client-id=..`, with the attributes
byte-rate, request-time, mutation-rate and throttle-time. Each exporter's configuration names its metrics differently,
so the names are rules here: a pattern of the metric's name with the groups `attribute` and maybe `type`, and the
labels. The reader skips lines that are no samples and ignores timestamps and exemplars.

**Source:** `ClientQuotaManager`, `ClientRequestQuotaManager`, `ControllerMutationQuotaManager` (Kafka 4.0); Prometheus'
exposition formats, text 0.0.4 and OpenMetrics 1.0.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import read_text
from kafka_quotas.core.formats.nodes import toml_node
from kafka_quotas.core.formats.typed_document import FieldSpec, read_record
from kafka_quotas.core.model.quota_key import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from kafka_quotas.core.resolution.quota_resolver import bucket_of_tags
from kafka_quotas.core.resolution.usage import Usage

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


_KEYS: Final = {
    "produce": (PRODUCER_BYTE_RATE.name, "byte_rate"),
    "fetch": (CONSUMER_BYTE_RATE.name, "byte_rate"),
    "request": (REQUEST_PERCENTAGE.name, "request_time"),
    "controllermutation": (CONTROLLER_MUTATION_RATE.name, "mutation_rate"),
}
"""The type of an MBean: the quota key, and the attribute that is its rate."""
_LIMITS: Final = {"controllermutation": "tokens_limit"}
"""The attribute of the limit by MBean type, where it is not the rate's; only daemons report limits."""
_RULE_HINT: Final = "write [[rule]] tables with pattern, user_label, client_id_label and maybe type_label"
_THROTTLE_TIME: Final = "throttle_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRule:
    """One naming of the metrics."""

    pattern: str
    user_label: str
    client_id_label: str
    type_label: str | None = None
    """The label of the type; None where the name holds it."""

    def __post_init__(self) -> None:
        try:
            groups = re.compile(self.pattern, re.ASCII).groupindex
        except re.error as error:
            raise UsageError(f"not a pattern: {self.pattern!r} ({error})") from error
        if "attribute" not in groups or (self.type_label is None and "type" not in groups):
            raise UsageError(
                f"the pattern {self.pattern!r} does not say enough",
                hint="it needs a group (?P<attribute>...), and (?P<type>...) where no type_label is given",
            )


def _some_rules(rules: tuple[NameRule, ...]) -> tuple[NameRule, ...]:
    if not rules:
        raise UsageError("no rules", hint=_RULE_HINT)
    return rules


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricNames:
    """The naming rules, of which the first match counts, and the labels of the broker."""

    rules: Annotated[tuple[NameRule, ...], FieldSpec(_some_rules, name="rule")]
    broker_labels: tuple[str, ...] = ("broker", "instance", "pod")
    """The labels of the broker, of which the first one present counts."""

    def selector(self) -> str:
        """Return the pattern of all names of the rules without named groups, as Prometheus takes it."""
        return "(?i)(" + "|".join(re.sub(r"\(\?P<\w+>", "(", rule.pattern) for rule in self.rules) + ")"


def read_metric_names(path: Path) -> MetricNames:
    """Read the names of metrics from a TOML file."""
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {path}: {reason}", hint=_RULE_HINT) from error
    return read_record(MetricNames, toml_node(text, str(path)))


_BY_TYPE: Final = r"kafka_server_(?P<type>produce|fetch|request|controllermutation)_(?P<attribute>\w+)"
BUILT_IN: Final = MetricNames(
    rules=(
        NameRule(
            pattern=r"kafka_server_quota_(?P<attribute>\w+)",
            type_label="resource",
            user_label="user",
            client_id_label="clientId",
        ),
        NameRule(pattern=_BY_TYPE, user_label="user", client_id_label="clientId"),
        NameRule(pattern=_BY_TYPE, user_label="user", client_id_label="client_id"),
    )
)
"""The three styles seen in the field: the exporter's own example rules, rules by type, and no rules at all."""


def usages_of(samples: Iterable[MetricSample], *, names: MetricNames, broker: str) -> list[Usage]:
    """Return the usage of each bucket at each broker from metrics.

    Skips rates that are not a number, and metrics without user and client-id. Without a label of the broker its name is
    `broker`.
    """
    compiled = [(re.compile(rule.pattern, re.IGNORECASE | re.ASCII), rule) for rule in names.rules]
    found: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for sample in samples:
        for place, attribute in _placed(sample, compiled):
            if math.isfinite(sample.value):
                named = next(
                    (sample.labels[label] for label in names.broker_labels if sample.labels.get(label)), broker
                )
                found.setdefault((named, *place), {})[attribute] = sample.value
    return [
        Usage(
            broker=named,
            key=_KEYS[kind][0],
            user=bucket_of_tags(user, client_id)[0],
            client_id=client_id,
            observed=figures[_KEYS[kind][1]],
            throttle_ms=figures.get(_THROTTLE_TIME),
            limit=figures.get(_LIMITS.get(kind, f"{_KEYS[kind][1]}_limit")),
        )
        for (named, kind, user, client_id), figures in found.items()
        if _KEYS[kind][1] in figures
    ]


def _placed(
    sample: MetricSample, compiled: Iterable[tuple[re.Pattern[str], NameRule]]
) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yield the MBean's type, user and client-id of a sample with its attribute, if a rule matches.

    Rules may differ in the label of the client-id alone: then the one whose label is present counts.
    """
    labels = sample.labels
    fitting = [(match, rule) for pattern, rule in compiled if (match := pattern.fullmatch(sample.name))]
    fitting.sort(key=lambda pair: pair[1].client_id_label not in labels)
    for match, rule in fitting[:1]:
        kind = labels.get(rule.type_label, "") if rule.type_label else match["type"]
        user, client_id = labels.get(rule.user_label, ""), labels.get(rule.client_id_label, "")
        if kind.lower() in _KEYS and (user or client_id):
            yield (kind.lower(), user, client_id), match["attribute"].lower().replace("-", "_")
