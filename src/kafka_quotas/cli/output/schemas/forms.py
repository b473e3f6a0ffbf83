"""The words in which schemas of documents are declared: parts of JSON Schema, and notes on how CSV shows them.

Invariants: an object has all of its fields and no others. CSV has a column for each figure or text of a row: nested
objects put their field's name in front (`last_minute_times`), an entity has a column for each entity type and one that
names those of which it is the default, and a list is left out unless its items are words.

**Source:** JSON Schema, draft 2020-12.
"""

import inspect
import types
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from kafka_quotas.core.described import Described, document_fields, nested
from kafka_quotas.core.model.entity import ENTITY_TYPES, GROUP, THRESHOLD_TYPES, Entity

Schema = Mapping[str, Any]

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
_ENTITY: Final = "quota_entity"
ENTITY: Final[Schema] = {"$ref": f"#/$defs/{_ENTITY}"}
"""Whose quota it is: an object from entity types to names, null for the default of a type."""
DEFINITIONS: Final[Schema] = {
    _ENTITY: {
        "type": "object",
        "description": "names by entity type; null is the default of the type",
        "properties": {kind: {"type": ["string", "null"]} for kind in (*ENTITY_TYPES, *THRESHOLD_TYPES, GROUP)},
        "minProperties": 1,
        "additionalProperties": False,
    }
}
_LATE: Final = {
    "Finding": "kafka_quotas.commands.quotas.quota_checks",
    "BlastRadius": "kafka_quotas.core.changes.blast_radius",
    "RecentThrottling": "kafka_quotas.core.model.quota_window",
}
_SCALARS: Final[Mapping[Any, Schema]] = {str: TEXT, Path: TEXT, bool: FLAG, int: INTEGER, float: NUMBER, Any: {}}


def described(schema: Schema, text: str) -> Schema:
    """Return the schema with a description, for what a field's name does not say."""
    return {**schema, "description": text}


def nullable(schema: Schema, text: str = "") -> Schema:
    """Return the schema that takes null as well, with what null means."""
    kind, notes = schema.get("type"), {PREFIX: schema[PREFIX]} if PREFIX in schema else {}
    if {"type": "null"} in schema.get("anyOf", ()) or "null" in (kind or ()):
        return schema
    made: Schema = {
        "anyOf": [{name: part for name, part in schema.items() if name != PREFIX}, {"type": "null"}],
        **notes,
    }
    if kind is not None and kind not in ("object", "array"):
        choices = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
        made = {**schema, **choices, "type": [*(kind if isinstance(kind, list) else [kind]), "null"]}
    return described(made, text) if text else made


def record(properties: Mapping[str, Schema], *, prefix: str | None = None) -> Schema:
    """Return an object with exactly these fields."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
        **({} if prefix is None else {PREFIX: prefix}),
    }


def rows(item: Schema) -> Schema:
    """Return a list of such items."""
    return {"type": "array", "items": item}


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


def of_record(kind: Any) -> dict[str, Schema]:
    """Return the fields of a record (a dataclass or named tuple) as `document_of` shows them."""
    return _grouped(nested((names, (of_type(_hint(kind, path)),)) for names, path in document_fields(kind)))


def _grouped(found: Mapping[str, Any]) -> dict[str, Schema]:
    return {name: record(_grouped(each)) if isinstance(each, dict) else each[0] for name, each in found.items()}


def of_type(hint: Any) -> Schema:
    """Return the schema of a type of a record's field."""
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        about = next((each for each in reversed(notes) if isinstance(each, Described)), Described())
    else:
        about = Described()
    made = _of_bare_type(hint, about)
    return described(made, about.text) if about.text else made


def _of_bare_type(hint: Any, about: Described) -> Schema:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return of_type(hint)
    if origin in (Union, types.UnionType):
        inner = [_of_bare_type(each, about) for each in arguments if each is not type(None)]
        whole = inner[0] if len(inner) == 1 else {"type": [each["type"] for each in inner]}
        return nullable(whole) if type(None) in arguments else whole
    if origin is not None:
        return _of_several(of_type(arguments[-1 if issubclass(origin, Mapping) else 0]), origin, about)
    if hint is Entity:
        return ENTITY if about.prefix is None else {**ENTITY, PREFIX: about.prefix}
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        return record(of_record(hint), prefix=about.prefix)
    choices = [str(each.value) for each in hint] if issubclass(hint, Enum) else about.choices
    return choice(*choices) if choices else _SCALARS[hint]


def _of_several(item: Schema, origin: Any, about: Described) -> Schema:
    if issubclass(origin, Mapping):
        return by_name(item, *(about.columns or ("name", "value")))
    if item == TEXT:
        return SENTENCES if about.prose else WORDS
    return rows(item)


def _hint(kind: Any, path: Sequence[str]) -> Any:
    """Return the type of what a path of attributes leads to, with None where one of them may be."""
    name, *rest = path
    found = inspect.getattr_static(kind, name, None)
    hint = _hints(found.fget)["return"] if isinstance(found, property) else _hints(kind)[name]
    if not rest:
        return hint
    bare, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if type(None) not in get_args(bare):
        return _hint(bare, rest)
    (inner,) = (each for each in get_args(bare) if each is not type(None))
    end = _hint(inner, rest) | None
    return Annotated[end, *notes] if notes else end


@cache
def _hints(owner: Any) -> dict[str, Any]:
    late: dict[str, Any] = {}
    while True:
        try:
            return get_type_hints(owner, localns=late, include_extras=True)
        except NameError as error:  # a type that the record names for type checkers alone, because few runs need it
            name = str(error.name)
            late[name] = getattr(import_module(_LATE[name]), name) if name in _LATE else object
