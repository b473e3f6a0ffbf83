"""Documents as rows: the columns of CSV and --columns, and the cells below them.

Invariants: the columns follow from the schema alone, never from what a document holds; null is None, and a row is
complete in itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kafka_quotas.cli.output.listing import Cell
from kafka_quotas.cli.output.schemas.catalogue import OutputSchema
from kafka_quotas.cli.output.schemas.forms import COLUMNS, ENTITY, PREFIX, SEPARATOR, Schema
from kafka_quotas.core.model.entity import ENTITY_TYPES, GROUP, THRESHOLD_TYPES

_Pair = tuple[str, Cell]
_TYPES: Final = (*ENTITY_TYPES, *THRESHOLD_TYPES, GROUP)
_BRANCHES: Final = ("anyOf", "oneOf")
DEFAULTS: Final = "defaults"
"""The column that names the entity types of which an entity is the default, a blank between them."""


def headers(schema: OutputSchema) -> tuple[str, ...]:
    """Return the titles of the columns, in order."""
    (first,) = _rows(_Fields(schema), schema.document, None, schema.rows, top=True)
    titles = tuple(title for title, _ in first)
    return schema.columns or titles


def flat_rows(schema: OutputSchema, document: Mapping[str, Any]) -> list[list[Cell]]:
    """Return the rows of a document below `headers`."""
    found = _rows(_Fields(schema), schema.document, document, schema.rows, top=True)
    if schema.columns:
        return [[dict(row)[title] for title in schema.columns] for row in found]
    return [[cell for _, cell in row] for row in found]


class _Fields:
    def __init__(self, schema: OutputSchema) -> None:
        self._definitions = schema.definitions

    def plain(self, schema: Schema) -> Schema:
        """Return the schema without null and references, with the notes of the outer one."""
        branches = [each for word in _BRANCHES for each in schema.get(word, ()) if each != {"type": "null"}]
        if len(branches) == 1:
            notes = {name: schema[name] for name in (PREFIX, SEPARATOR) if name in schema}
            return self.plain({**branches[0], **notes})
        if "$ref" in schema and schema["$ref"] != ENTITY["$ref"]:
            return self.plain(self._definitions[schema["$ref"].rpartition("/")[2]])
        return schema


def _rows(
    fields: _Fields, schema: Schema, value: Any, path: Sequence[str], *, top: bool = False
) -> Iterator[list[_Pair]]:
    schema = fields.plain(schema)
    if not path:
        yield list(_cells(fields, schema, value))
        return
    name, *rest = path
    own = [] if top else list(_cells(fields, schema, value, skip=name))
    inner = fields.plain(schema["properties"][name])
    if value is None:  # for the titles, or below an empty list
        children: list[Any] = [None]
    else:
        found = value.get(name)
        items = list(found.items()) if isinstance(found, Mapping) and COLUMNS in inner else found
        children = [items] if isinstance(items, Mapping) else list(items or ())
        if not children and not top:
            children = [None]
    for child in children:
        if COLUMNS in inner:
            below: Iterator[list[_Pair]] = iter([list(_named(fields, inner, child))])
        else:
            below = _rows(fields, inner.get("items", inner), child, rest)
        yield from ([*own, *row] for row in below)


def _named(fields: _Fields, schema: Schema, item: tuple[str, Any] | None) -> Iterator[_Pair]:
    """Yield the cells of one name of an object with free names."""
    key, title = schema[COLUMNS]
    name, value = (None, None) if item is None else item
    yield key, name
    inner = fields.plain(schema["additionalProperties"])
    yield from _cells(fields, inner, value) if "properties" in inner else [(title, value)]


def _cells(
    fields: _Fields, schema: Schema, value: Mapping[str, Any] | None, *, skip: str = "", prefix: str = ""
) -> Iterator[_Pair]:
    for name, each in schema["properties"].items():
        if name != skip:
            yield from _cell(fields, each, None if value is None else value.get(name), f"{prefix}{name}", prefix)


def _cell(fields: _Fields, schema: Schema, value: Any, title: str, prefix: str) -> Iterator[_Pair]:
    schema = fields.plain(schema)
    inner = f"{prefix}{schema[PREFIX]}" if PREFIX in schema else f"{title}_"
    if schema.get("$ref") == ENTITY["$ref"]:
        yield from _entity(value, inner)
    elif SEPARATOR in schema:
        yield title, schema[SEPARATOR].join(map(str, value)) if isinstance(value, list | tuple) else value
    elif "properties" in schema:
        yield from _cells(fields, schema, value, prefix=inner)
    elif schema.get("type") not in ("array", "object"):
        yield title, value


def _entity(value: Mapping[str, str | None] | None, prefix: str) -> Iterator[_Pair]:
    names = value or {}
    yield from ((f"{prefix}{_title(kind)}", names.get(kind)) for kind in _TYPES)
    defaults = [_title(kind) for kind in _TYPES if kind in names and names[kind] is None]
    yield f"{prefix}{DEFAULTS}", None if value is None else " ".join(defaults)


def _title(kind: str) -> str:
    return kind.replace("-", "_")
