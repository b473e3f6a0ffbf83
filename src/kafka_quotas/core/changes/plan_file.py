"""A plan as a JSON document, to review, keep and apply later.

    {"schema": "kafka-quotas.plan/1", "store": "zk://...", "fingerprint": "sha256:...",
     "changes": [{"entity": {"user": "alice"}, "key": "producer_byte_rate", "old": null, "new": 1048576}]}

Invariants: a name of null is a default, a value of null is "not set". NaN and infinities are the texts that Java uses.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafka_quotas.core.changes.plan import Plan, PlannedChange
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.java import double as java_double
from kafka_quotas.core.model.entity import Entity

PLAN_SCHEMA: Final = "kafka-quotas.plan/1"
_HINT: Final = "make a new plan: kafka-quotas diff FILE --out plan.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPlan:
    """A plan, and the address of the store that it was made for."""

    plan: Plan
    store_url: str


def plan_text(kept: KeptPlan) -> str:
    """Return the plan as JSON text, one change per line."""
    head = {"schema": PLAN_SCHEMA, "store": kept.store_url, "fingerprint": kept.plan.fingerprint}
    lines = (json.dumps(change_document(change), ensure_ascii=False) for change in kept.plan.changes)
    changes = ",\n    ".join(lines)
    block = f"[\n    {changes}\n  ]" if changes else "[]"
    return f'{json.dumps(head, indent=2, ensure_ascii=False)[:-2]},\n  "changes": {block}\n}}\n'


def is_plan(document: object) -> bool:
    """Return whether a JSON document declares itself a plan, of any version."""
    return isinstance(document, Mapping) and str(document.get("schema", "")).startswith("kafka-quotas.plan/")


def plan_from(document: Mapping[str, Any]) -> KeptPlan:
    """Return the plan in a JSON document.

    Raises:
        UsageError: The plan is of another version, incomplete, or names an entity or key twice.
    """
    if document.get("schema") != PLAN_SCHEMA:
        raise UsageError(f"not a plan of this version: {document.get('schema')!r}", hint=_HINT)
    try:
        changes = tuple(change_from(entry) for entry in document["changes"])
        kept = KeptPlan(
            plan=Plan(changes=changes, fingerprint=text_in(document["fingerprint"])),
            store_url=text_in(document["store"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, KafkaQuotasError) as error:
        problem = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"the plan is damaged: {problem}", hint=_HINT) from error
    if len({(change.entity, change.key) for change in changes}) < len(changes):
        raise UsageError("the plan changes a quota twice", hint=_HINT)
    return kept


def change_document(change: PlannedChange) -> dict[str, object]:
    """Return one change as a JSON object."""
    return {
        "entity": change.entity.to_mapping(),
        "key": change.key,
        "old": _number(change.old),
        "new": _number(change.new),
    }


def change_from(document: Mapping[str, Any]) -> PlannedChange:
    """Return the change that `change_document` wrote.

    Raises:
        UsageError, KeyError, TypeError, ValueError: Any other document.
    """
    names = {kind: None if name is None else text_in(name) for kind, name in document["entity"].items()}
    return PlannedChange(
        entity=Entity.from_mapping(names),
        key=text_in(document["key"]),
        old=_value(document["old"]),
        new=_value(document["new"]),
    )


def _number(value: float | None) -> int | float | str | None:
    """Return a value as JSON can hold it, whole if possible."""
    if value is None:
        return None
    if not math.isfinite(value):
        return java_double.to_string(value)
    return int(value) if value == int(value) else value


def _value(number: object) -> float | None:
    if number is None:
        return None
    if isinstance(number, str):
        return java_double.parse(number)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise TypeError(f"{number!r} is no value")
    return float(number)


def text_in(value: object) -> str:
    """Return a text of a JSON document, or raise a `TypeError` for any other value."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
