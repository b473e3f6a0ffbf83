"""The JSON schema of quota files, made from the table of quota keys.

It describes the shape that editors and pipelines check. `validate` reports what it can't express (an entity declared
twice, a value without a name).

**Source:** JSON Schema, draft 2020-12.
"""

from typing import Any, Final

from kafka_quotas.core.model.entity import BROKER, CLIENT_ID, ENTITY_TYPES, IP, TOPIC, USER
from kafka_quotas.core.model.quota_key import KEY_OF_KIND, QUOTA_KEYS, QuotaKey, Unit, ValueType
from kafka_quotas.core.quota_files.declarations import DEFAULT_SUFFIX, QUOTAS_SCHEMA

_NUMBER: Final = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?"
_UNITS: Final = {
    Unit.BYTES_PER_SECOND: r"\s*([kMGT]|[kKMGT]i)?([bB])?(/s|ps)?",
    Unit.PERCENT: r"\s*%?",
    Unit.PARTITIONS_PER_SECOND: r"\s*(/s)?",
    Unit.CONNECTIONS_PER_SECOND: r"\s*(/s)?",
}
_EXAMPLES: Final = {
    Unit.BYTES_PER_SECOND: [1048576, "10MiB", "80Mbps", "unlimited"],
    Unit.PERCENT: [50, "12.5%", "unlimited"],
    Unit.PARTITIONS_PER_SECOND: [5, "10/s", "unlimited"],
    Unit.CONNECTIONS_PER_SECOND: [5, "10/s", "unlimited"],
}
_NAME: Final = {"type": ["string", "null"], "minLength": 1}
_UNLIMITED: Final = "[uU][nN][lL][iI][mM][iI][tT][eE][dD]"
_REFERENCE: Final = r"\$(\{[\w.-]+\}|[\w.-]+)"


def json_schema() -> dict[str, Any]:
    """Return the schema, as a JSON document."""
    entries = {"type": "array", "items": {"$ref": "#/$defs/entry"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Kafka quotas, declared for kafka-quotas apply",
        "oneOf": [entries, {"$ref": "#/$defs/file"}],
        "$defs": {
            "file": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "schema": {"const": QUOTAS_SCHEMA},
                    "values": {
                        "description": "What $name stands for in quotas; --values FILE lays others over them.",
                        "type": "object",
                        "additionalProperties": {"type": ["number", "string", "null"]},
                    },
                    "defaults": {
                        "description": "Quotas that every entry has that does not say otherwise.",
                        **_quotas(QUOTA_KEYS),
                    },
                    "entries": entries,
                },
            },
            "entry": _entry(),
            "entity": _entity(),
            "topic": _alone(TOPIC, "A topic, which has a threshold.", {"type": "string", "minLength": 1}),
            "broker": _alone(
                BROKER, "A broker by node id, which has a total; null is the default.", _NAME, has_default=True
            ),
            "quotas": _quotas(QUOTA_KEYS),
            "invalid_quotas": {"type": "object", "additionalProperties": {"type": ["number", "string", "null"]}},
        },
    }


def _entry() -> dict[str, Any]:
    marked = {"properties": {"invalid": {"const": True}}, "required": ["invalid"]}
    return {
        "type": "object",
        "required": ["entity", "quotas"],
        "additionalProperties": False,
        "properties": {
            "entity": {"anyOf": [{"$ref": f"#/$defs/{kind}"} for kind in ("entity", TOPIC, BROKER)]},
            "quotas": {"type": "object"},
            "invalid": {
                "description": "Values may be such as are refused otherwise; needs --allow-invalid.",
                "type": "boolean",
            },
        },
        "if": marked,
        "then": {"properties": {"quotas": {"$ref": "#/$defs/invalid_quotas"}}},
        "else": {
            "anyOf": [
                _pairing({"$ref": "#/$defs/entity", "minProperties": 1}, {"$ref": "#/$defs/quotas"}),
                *(_pairing({"$ref": f"#/$defs/{kind}"}, _quotas({key.name: key})) for kind, key in KEY_OF_KIND.items()),
            ]
        },
    }


def _pairing(entity: dict[str, Any], quotas: dict[str, Any]) -> dict[str, Any]:
    return {"properties": {"entity": entity, "quotas": quotas}}


def _alone(kind: str, text: str, name: dict[str, Any], *, has_default: bool = False) -> dict[str, Any]:
    properties: dict[str, Any] = {kind: name}
    if has_default:
        properties[f"{kind}{DEFAULT_SUFFIX}"] = {"description": f"The same as {kind}: null, for TOML.", "const": True}
    return {
        "description": text,
        "type": "object",
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
        "properties": properties,
    }


def _entity() -> dict[str, Any]:
    names = {
        kind: {"description": f"The {kind}; null is the default.", "type": ["string", "null"], "minLength": 1}
        for kind in ENTITY_TYPES
    }
    defaults = {
        f"{kind}{DEFAULT_SUFFIX}": {"description": f"The same as {kind}: null, for TOML.", "const": True}
        for kind in ENTITY_TYPES
    }
    alone = [[kind, f"{kind}{DEFAULT_SUFFIX}"] for kind in (USER, CLIENT_ID)]
    return {
        "description": "A user, a client-id, a pair of both, or an ip.",
        "type": "object",
        "additionalProperties": False,
        "properties": names | defaults,
        "allOf": [{"not": {"required": [kind, f"{kind}{DEFAULT_SUFFIX}"]}} for kind in ENTITY_TYPES]
        + [
            {"not": {"required": [ip, other]}}
            for ip in (IP, f"{IP}{DEFAULT_SUFFIX}")
            for pair in alone
            for other in pair
        ],
    }


def _quotas(keys: dict[str, QuotaKey]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _value(key) for name, key in keys.items()},
    }


def _value(key: QuotaKey) -> dict[str, Any]:
    kind = "number" if key.value_type is ValueType.DOUBLE else "integer"
    return {
        "description": f"{key.summary[0].upper()}{key.summary[1:]}; null declares it as not set.",
        "examples": _EXAMPLES[key.unit],
        "oneOf": [
            {"type": kind, "exclusiveMinimum": 0, "maximum": key.unlimited}
            if key.value_type is not ValueType.DOUBLE
            else {"type": kind, "exclusiveMinimum": 0},
            {"type": "null"},
            {"type": "string", "pattern": f"^\\s*(({_NUMBER}{_UNITS[key.unit]})|{_UNLIMITED}|{_REFERENCE})\\s*$"},
        ],
    }
