"""The schemas of all documents by noun, as they are published."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from kafka_quotas.cli.output.schemas.forms import DEFINITIONS, DRAFT, Schema, nullable, record, rows
from kafka_quotas.cli.output.table import SCHEMA_PREFIX
from kafka_quotas.core.errors import UsageError, near_hint

ROWS_SUFFIX: Final = ".rows"
"""Ends the noun of a document with --columns."""
CONTEXTS_SUFFIX: Final = "-contexts"
"""Ends the noun of a document about several contexts."""
_ROOMS: Final = ("quotas", "insight", "throttle", "load_test", "pipeline", "daemon")
"""The modules of this package with schemas, those that load fastest first."""
_CELL: Final[Schema] = {"type": ["string", "number", "boolean", "null"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSchema:
    """A kind of document that commands print."""

    commands: tuple[str, ...]
    """The commands that print it, without the program's name."""
    fields: Schema
    """The schema of each field of the document by its name, in order."""
    rows: tuple[str, ...] = ()
    """The names of the lists whose items are the rows of CSV, each below the one before; empty: the document is."""
    version: int = 1
    columns: tuple[str, ...] = ()
    """The columns of CSV, empty for all."""
    definitions: Schema = field(default_factory=lambda: DEFINITIONS)
    """What references of the fields lead to."""

    @property
    def document(self) -> Schema:
        """The schema of the document without its first field, which names the schema."""
        return record(dict(self.fields))


def find_schema(noun: str) -> OutputSchema:
    """Return the schema of a kind of document.

    Raises:
        UsageError: There is none.
    """
    found = _found(noun)
    if found is None:
        known = [name for name, _ in every_schema()]
        raise UsageError(
            f"there is no schema {noun!r}",
            hint=near_hint(noun, known, otherwise="kafka-quotas help schemas lists them"),
        )
    return found


def documents_of(command: str) -> list[str]:
    """Return the names and versions of the documents that a command prints, without the program's name."""
    return [
        f"{SCHEMA_PREFIX}.{noun}/{each.version}"
        for noun, each in every_schema()
        if command and any(printed.partition(" --")[0].removesuffix(" NAME") == command for printed in each.commands)
    ]


def every_schema() -> Iterator[tuple[str, OutputSchema]]:
    """Yield every kind of document with its noun, room by room."""
    for room in _ROOMS:
        yield from _room(room).items()


def _room(room: str) -> dict[str, OutputSchema]:
    schemas: dict[str, OutputSchema] = import_module(f"kafka_quotas.cli.output.schemas.{room}").SCHEMAS
    return schemas


def _found(noun: str) -> OutputSchema | None:
    return next((schemas[noun] for schemas in map(_room, _ROOMS) if noun in schemas), None)


def of_contexts(schema: OutputSchema) -> OutputSchema:
    """Return the kind of document that has such a document for each of several contexts."""
    error = record({"message": {"type": "string"}, "hint": {"type": ["string", "null"]}})
    fields: dict[str, Schema] = {"context": {"type": "string"}, "error": nullable(error, "null where it succeeded")}
    fields |= {name: nullable(each, "null where the context failed") for name, each in schema.fields.items()}
    return OutputSchema(
        commands=schema.commands,
        fields={"contexts": rows(record(fields))},
        rows=("contexts", *schema.rows),
        definitions=schema.definitions,
    )


def json_schema(noun: str) -> dict[str, Any]:
    """Return the JSON schema of a kind of document, to be published.

    Raises:
        UsageError: There is no such kind.
    """
    return {"$schema": DRAFT, **_titled(noun, find_schema(noun)), **_definitions(find_schema(noun))}


def rows_schema(noun: str) -> dict[str, Any]:
    """Return the JSON schema of a kind of document with --columns, whose fields are the columns asked for."""
    row = {"type": "object", "additionalProperties": _CELL}
    name = {"const": f"{SCHEMA_PREFIX}.{noun}{ROWS_SUFFIX}/1"}
    return {"$schema": DRAFT, **record({"schema": name, "rows": rows(row)})}


def every_json_schema() -> str:
    """Return one JSON schema that takes every kind of document, as text."""
    listed = [(noun, each) for noun, each in every_schema() if each.definitions is DEFINITIONS]
    others = [noun for noun, each in every_schema() if each.definitions is not DEFINITIONS]
    document = {
        "$schema": DRAFT,
        "title": "What kafka-quotas prints with --output json and yaml",
        "description": f"By the field schema. Of {', '.join(others)} there is a schema of its own.",
        "oneOf": [{"$ref": f"#/$defs/{noun}"} for noun, _ in listed],
        "$defs": {**DEFINITIONS, **{noun: _titled(noun, each) for noun, each in listed}},
    }
    return json.dumps(document, indent=1) + "\n"


def _titled(noun: str, schema: OutputSchema) -> dict[str, Any]:
    name = f"{SCHEMA_PREFIX}.{noun}/{schema.version}"
    printed = ", ".join(schema.commands)
    return {"title": name, "description": f"Printed by: {printed}.", **_with_name(name, schema)}


def _with_name(name: str, schema: OutputSchema) -> Schema:
    return record({"schema": {"const": name}, **schema.fields})


def _definitions(schema: OutputSchema) -> dict[str, Any]:
    text = json.dumps(dict(schema.fields))
    used = {name: each for name, each in schema.definitions.items() if f'"#/$defs/{name}"' in text}
    return {"$defs": schema.definitions if schema.definitions is not DEFINITIONS else used} if used else {}
