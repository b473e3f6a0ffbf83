"""The JSON schema of policy files, for editors: the shape of the tables that TOML makes.

What it can't express (an entity named twice, thresholds that sum to more than a total) the daemon checks when it reads
a file.
**Source:** JSON Schema, draft 2020-12.
"""

from enum import StrEnum
from types import NoneType
from typing import Any, get_args, get_type_hints

from kafka_quotas.enforcement.config.client_policy import MAX_THROTTLE_MS, SETTINGS, EntityTable, OnViolation

_NAME = {"type": "string", "minLength": 1}
_SIZE = {
    "description": "Bytes per second.",
    "oneOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "minLength": 1}],
    "examples": [1048576, "20MiB"],
}
_NUMBERS = {
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": 1, "maximum": MAX_THROTTLE_MS},
    float: {"type": "number", "exclusiveMinimum": 0},
}


def policy_schema() -> dict[str, Any]:
    """Return the schema as a JSON document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Policy of kafka-quotas daemon run --policy",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "internal_principals": {"type": "array", "items": _NAME},
            "entity": {"type": "array", "items": _entity()},
            "thresholds": _thresholds(),
        },
    }


def _entity() -> dict[str, Any]:
    hints = get_type_hints(EntityTable, include_extras=True)
    settings = {name: _setting(hints[name]) for name in SETTINGS}
    who = {
        "user": _NAME,
        "user_default": {"type": "boolean"},
        "client_id": _NAME,
        "client_id_default": {"type": "boolean"},
    }
    is_true = {"const": True}
    named = [
        {"required": ["user"]},
        {"required": ["client_id"]},
        {"required": ["user_default"], "properties": {"user_default": is_true}},
        {"required": ["client_id_default"], "properties": {"client_id_default": is_true}},
    ]
    needs_end = {"properties": {"on_violation": {"const": OnViolation.DELAY_THEN_ERROR.value}}}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {**who, **settings},
        "allOf": [
            {"anyOf": named},
            {"anyOf": [{"required": [name]} for name in settings]},
            *(_excludes(name) for name in ("user", "client_id")),
            {"if": {**needs_end, "required": ["on_violation"]}, "then": {"required": ["max_throttle_ms"]}},
        ],
    }


def _excludes(name: str) -> dict[str, Any]:
    """Return the schema that forbids a name together with its default."""
    default = f"{name}_default"
    return {"not": {"required": [name, default], "properties": {default: {"const": True}}}}


def _setting(hint: Any) -> dict[str, Any]:
    metadata = getattr(hint, "__metadata__", ())
    kind = next(each for each in get_args(get_args(hint)[0] if metadata else hint) if each is not NoneType)
    if issubclass(kind, StrEnum):
        return {"enum": [member.value for member in kind]}
    return {"description": metadata[0].about, **_NUMBERS[kind]}


def _thresholds() -> dict[str, Any]:
    sizes = {"type": "object", "additionalProperties": _SIZE}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {"total": _SIZE, "brokers": sizes, "topics": sizes},
    }
