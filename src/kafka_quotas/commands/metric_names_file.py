"""Names of metrics from a TOML file: `broker_labels`, and one `[[rule]]` per way to name them."""

from pathlib import Path
from typing import Any

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.metric_names import BUILT_IN, MetricNames, NameRule

_HINT = "write [[rule]] tables with pattern, user_label, client_id_label and maybe type_label"
_TEXTS = ("pattern", "user_label", "client_id_label", "type_label")


def read_metric_names(path: Path) -> MetricNames:
    """The names that a file gives.

    Raises `UsageError` where it can't be read, or does not say what is needed.
    """
    import tomllib  # noqa: PLC0415 - only a mapping file needs it

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot read {path}: {reason}", hint=_HINT) from error
    unknown = set(content) - {"rule", "broker_labels"}
    rules, labels = content.get("rule"), content.get("broker_labels", list(BUILT_IN.broker_labels))
    if unknown or not isinstance(rules, list) or not rules:
        raise UsageError(f"{path}: {'unknown: ' + ', '.join(sorted(unknown)) if unknown else 'no rules'}", hint=_HINT)
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise UsageError(f"{path}: broker_labels is no list of texts", hint=_HINT)
    return MetricNames(rules=tuple(_rule(path, rule) for rule in rules), broker_labels=tuple(labels))


def _rule(path: Path, rule: Any) -> NameRule:
    fits = isinstance(rule, dict) and set(rule) <= set(_TEXTS) and all(isinstance(text, str) for text in rule.values())
    if not fits or not set(_TEXTS[:3]) <= set(rule):
        raise UsageError(f"{path}: not a rule: {rule}", hint=_HINT)
    return NameRule(**rule)
