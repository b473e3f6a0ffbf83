"""The words in which schemas of documents are declared: parts of JSON Schema, and notes on how CSV shows them.

Invariants: an object has all of its fields and no others. CSV has a column for each figure or text of a row: nested
objects put their field's name in front (`last_minute_times`), an entity has a column for each entity type and one that
names those of which it is the default, and a list is left out unless its items are words.

**Source:** JSON Schema, draft 2020-12.
"""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from kafka_quotas.core.model.entity import ENTITY_TYPES, THRESHOLD_TYPES

Schema = Mapping[str, Any]
"""A JSON schema, or a part of one."""

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
SEPARATOR: Final = "x-csv-separator"
"""The note of a list that CSV shows as one cell, with what stands between its items."""
PREFIX: Final = "x-csv-prefix"
"""The note of an object or entity whose columns have this in front in place of its field's name."""
COLUMNS: Final = "x-csv-columns"
"""The note of an object with free names: the columns of names and values."""

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "number"}
INTEGER: Final[Schema] = {"type": "integer"}
FLAG: Final[Schema] = {"type": "boolean"}
SENTENCES: Final[Schema] = {"type": "array", "items": TEXT}
"""Lists of texts that CSV leaves out."""
WORDS: Final[Schema] = {**SENTENCES, SEPARATOR: " "}
"""Lists of names, a blank between them in CSV."""
INSTANT: Final[Schema] = {"type": "string", "description": "UTC, as in ISO 8601"}
_ENTITY: Final = "quota_entity"
ENTITY: Final[Schema] = {"$ref": f"#/$defs/{_ENTITY}"}
"""Whose quota it is: an object from entity types to names, null for the default of a type."""
SUBJECT: Final[Schema] = {**ENTITY, PREFIX: ""}
"""The entity that a row is about, whose columns have no prefix."""
DEFINITIONS: Final[Schema] = {
    _ENTITY: {
        "type": "object",
        "description": "names by entity type; null is the default of the type",
        "properties": {kind: {"type": ["string", "null"]} for kind in (*ENTITY_TYPES, *THRESHOLD_TYPES)},
        "minProperties": 1,
        "additionalProperties": False,
    }
}
_SCALARS: Final[Mapping[Any, Schema]] = {str: TEXT, bool: FLAG, int: INTEGER, float: NUMBER}


def described(schema: Schema, text: str) -> Schema:
    """Return the schema with a description, for what a field's name does not say."""
    return {**schema, "description": text}


def nullable(schema: Schema, text: str = "") -> Schema:
    """Return the schema that takes null as well, with what null means."""
    if {"type": "null"} in schema.get("anyOf", ()) or "null" in schema.get("type", ()):
        return schema
    made = (
        {**schema, "type": [schema["type"], "null"]}
        if isinstance(schema.get("type"), str) and schema["type"] not in ("object", "array")
        else {
            "anyOf": [{name: part for name, part in schema.items() if name != PREFIX}, {"type": "null"}],
            **({PREFIX: schema[PREFIX]} if PREFIX in schema else {}),
        }
    )
    return described(made, text) if text else made


def record(properties: Mapping[str, Schema], *, prefix: str | None = None, text: str = "") -> Schema:
    """Return an object with exactly these fields."""
    return {
        "type": "object",
        **({"description": text} if text else {}),
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
        **({} if prefix is None else {PREFIX: prefix}),
    }


def rows(item: Schema, text: str = "") -> Schema:
    """Return a list of such items."""
    return {"type": "array", **({"description": text} if text else {}), "items": item}


def by_name(value: Schema, key: str, title: str, text: str = "") -> Schema:
    """Return an object with free names, and what CSV calls the columns of its names and of its values."""
    return {
        "type": "object",
        **({"description": text} if text else {}),
        "additionalProperties": value,
        COLUMNS: [key, title],
    }


def choice(*values: str) -> Schema:
    """Return a text that is one of these."""
    return {"type": "string", "enum": list(values)}


def of_dataclass(kind: type[Any]) -> dict[str, Schema]:
    """Return the fields of a dataclass as `asdict` shows them."""
    hints = get_type_hints(kind)
    return {each.name: of_type(hints[each.name]) for each in fields(kind)}


def of_type(hint: Any) -> Schema:
    """Return the schema of a type of a dataclass's field."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (each for each in arguments if each is not type(None))
        return nullable(of_type(inner))
    if origin in (tuple, list):
        item = of_type(arguments[0])
        return WORDS if item == TEXT else rows(item)
    if origin is not None and issubclass(origin, Mapping):
        return by_name(of_type(arguments[1]), "name", "value")
    if is_dataclass(hint) and isinstance(hint, type):
        return record(of_dataclass(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return choice(*(str(each.value) for each in hint))
    return _SCALARS[hint]
