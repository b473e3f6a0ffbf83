"""The reference page and the JSON schema of what commands print for machines, made from the schemas of documents."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kafka_quotas.cli.output.schemas.catalogue import SCHEMAS, OutputSchema, every_json_schema, headers
from kafka_quotas.cli.output.schemas.forms import DEFINITIONS, ENTITY, Schema

PAGE: Final = Path("docs/reference/output.md")
SCHEMA: Final = Path("examples/output.schema.json")
_HEAD: Final = """\
# Output for programs

`--output json`, `yaml` and `csv` have the same content. JSON and YAML are one document, whose first field, `schema`,
names its kind and version: `kafka-quotas.NOUN/VERSION`. A document has exactly the fields below. A later program may
add fields to a version; a field that goes, or means something else, makes a new one.
[`output.schema.json`](../../examples/output.schema.json) is the JSON schema of every kind, and `kafka-quotas help
schemas NOUN` prints that of one. Data goes to standard output, notes and errors go to standard error.

- **Names** are in snake_case, with units: `throttle_ms`, `window_s`. Figures are plain numbers in Kafka's own units.
- **CSV** has a row for each item of the list that is named below, and always the same header, whatever is stored: a
  field of a nested object has the object's name in front (`last_minute_times`), null is an empty cell, a switch is
  `true` or `false`, and a list of names is one cell with blanks between them. Fields of the document itself,
  sentences and longer lists are in JSON and YAML alone.
- **For programs, not for spreadsheets**: cells hold names as they are, control characters and a leading `=`, `+`, `-`
  or `@` included, which a spreadsheet takes for a formula. Import such a file as text; tables and Markdown are safe.
- **An entity** is an object from Kafka's entity types to names, as in files of quotas: `{"user": "alice",
  "client-id": null}`. null is the default of a type; a type that is left out is no part of the entity. In CSV each
  type has a column, `user`, `client_id`, `ip`, `topic` and `broker`, and the column `defaults` names those that are
  the default: `alice,,,,,client_id`. An entity beside the one that a row is about has its field's name in front:
  `entity_user`, `shadowed_by_user`.
- `--columns` takes the columns of CSV, in any form. The document is then
  `kafka-quotas.NOUN.rows/1`, whose `rows` have the columns asked for.
- With `watch` JSON is one document per line. `export` writes [files of quotas](../how-to/declarative.md), not
  documents.

| document | command | rows of CSV |
|---|---|---|
"""


def output_documents() -> dict[Path, str]:
    """Return the page and the schema by their paths below the root of the repository."""
    listed = sorted(SCHEMAS.items(), key=lambda each: each[0])
    index = [f"| [`{noun}`](#{noun}) | {_commands(each)} | {_place(each)} |" for noun, each in listed]
    sections = [line for noun, each in listed for line in _section(noun, each)]
    return {PAGE: _HEAD + "\n".join([*index, "", *sections]), SCHEMA: every_json_schema()}


def _commands(schema: OutputSchema) -> str:
    return ", ".join(f"`{command}`" for command in schema.commands)


def _place(schema: OutputSchema) -> str:
    return f"`{'.'.join(schema.rows)}`" if schema.rows else "the document"


def _section(noun: str, schema: OutputSchema) -> Iterator[str]:
    yield from (f"## {noun}", "")
    if schema.definitions is not DEFINITIONS:
        yield from (
            f"`kafka-quotas.{noun}/{schema.version}`, which a folder of `--out` has as `run.json`, has",
            "[a schema of its own](../../examples/load-test-run.schema.json).",
            "",
        )
    else:
        yield from (f"`kafka-quotas.{noun}/{schema.version}`", "", "| field | type | meaning |", "|---|---|---|")
        yield from _fields(schema.fields, "")
        yield ""
    yield from (f"CSV: `{','.join(headers(schema))}`", "")


def _fields(properties: Mapping[str, Schema], prefix: str) -> Iterator[str]:
    for name, each in properties.items():
        path = f"{prefix}{name}"
        yield f"| `{path}` | {_kind(each)} | {_meaning(each)} |"
        inner = _bare(each)
        if inner.get("type") == "array":
            path, inner = f"{path}[]", _bare(inner.get("items", {}))
        yield from _fields(inner.get("properties", {}), f"{path}.")


def _bare(schema: Schema) -> Schema:
    """Return the schema without null."""
    inner = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return _bare(inner[0]) if inner else schema


def _kind(schema: Schema) -> str:
    inner = _bare(schema)
    null = " or null" if inner is not schema or "null" in _types(schema) else ""
    if inner.get("$ref") == ENTITY["$ref"]:
        return f"entity{null}"
    if "enum" in inner:
        return ", ".join(f"`{each}`" for each in inner["enum"]) + null
    if inner.get("type") == "array":
        return f"list{null}" if "properties" in _bare(inner["items"]) else f"list of {_kind(inner['items'])}{null}"
    kinds = [_KINDS[each] for each in _types(inner) if each != "null"]
    return (" or ".join(kinds) or "any") + null


_KINDS: Final = {
    "string": "text",
    "number": "number",
    "integer": "whole number",
    "boolean": "true or false",
    "object": "object",
    "array": "list",
}


def _types(schema: Schema) -> list[Any]:
    kind = schema.get("type", [])
    return [kind] if isinstance(kind, str) else list(kind)


def _meaning(schema: Schema) -> str:
    return str(schema.get("description") or _bare(schema).get("description", "")).replace("|", "\\|")
