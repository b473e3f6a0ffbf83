"""What a JSON document is made of, without its values: what a contract about it can pin."""

from collections.abc import Iterable
from typing import Any

FREE = frozenset({"entity", "quotas", "counters", "failed", "levels", "admits", "delay_ms", "apis"})
"""Fields whose names are data: an entity's types, quota keys, kinds of errors."""


def shape(value: Any, name: str = "") -> Any:
    """The shape: kinds in place of values (`text`, `number`, `flag`, `null`), lists with the one shape of their items.

    Kinds that differ between the items of a list are joined by `|`, a field that not all of them have ends with `?`.
    """
    if isinstance(value, dict):
        return (
            "mapping"
            if name in FREE and not _holds_lists(value)
            else {key: shape(each, key) for key, each in value.items()}
        )
    if isinstance(value, list):
        return [_joined(shape(each) for each in value)] if value else []
    if value is None:
        return "null"
    return "flag" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


def _holds_lists(value: dict[str, Any]) -> bool:
    return any(isinstance(each, list) for each in value.values())


def _joined(shapes: Iterable[Any]) -> Any:
    first, *others = shapes
    for other in others:
        first = _both(first, other)
    return first


def _both(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        bare = {key.rstrip("?"): key for key in (*one, *other)}
        optional = {name for name, key in bare.items() if key.endswith("?") or name not in other or name not in one}
        return {f"{name}?" if name in optional else name: _field(one, other, name) for name in bare}
    if isinstance(one, list) and isinstance(other, list):
        return [_both(one[0], other[0])] if one and other else one or other
    if one == other:
        return one
    kinds = {kind for each in (one, other) for kind in (each.split("|") if isinstance(each, str) else ["document"])}
    return "|".join(sorted(kinds))


def _field(one: dict[str, Any], other: dict[str, Any], name: str) -> Any:
    found = [each[key] for each in (one, other) for key in (name, f"{name}?") if key in each]
    return _joined(found)
