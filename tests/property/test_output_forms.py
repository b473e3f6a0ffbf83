"""CSV, YAML and JSON of any document hold the same values, and an entity can be read back from its columns."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.processes.output_contract import check_document

from kafka_quotas.cli.output.listing import Listing, Table, json_text
from kafka_quotas.cli.output.render import cell_text, csv_text, envelope, records_of, yaml_text
from kafka_quotas.cli.output.schemas.catalogue import SCHEMAS, OutputSchema
from kafka_quotas.cli.output.schemas.forms import DEFINITIONS, Schema
from kafka_quotas.core.model.entity import Entity

KINDS = {noun: schema for noun, schema in SCHEMAS.items() if not schema.columns}
LISTS_IN_A_CELL = {"any_other", "topics", "folders", "commands", "documents", "files", "models"}
"""Columns whose cells join the items of a list."""
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0) | st.integers(-9, 2**63)


def values(schema: Schema, path: tuple[str, ...] = ()) -> st.SearchStrategy[Any]:
    """Values that a schema takes, whose lists are empty but those that hold the rows of CSV."""
    if "$ref" in schema:
        return values(DEFINITIONS["quota_entity"])
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return st.one_of([values(each, path) for each in branches])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if isinstance(schema.get("type"), list):
        return st.one_of([values({**schema, "type": kind}) for kind in schema["type"]])
    if schema.get("type") == "object":
        return _objects(schema, path)
    if schema.get("type") == "array":
        return st.lists(values(schema["items"], path), max_size=2) if path else st.just([])
    plain: Mapping[Any, st.SearchStrategy[Any]] = {
        "string": TEXTS,
        "number": NUMBERS,
        "integer": st.integers(-9, 2**63),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return plain.get(schema.get("type"), st.none() | TEXTS | st.booleans())


def _objects(schema: Schema, path: tuple[str, ...]) -> st.SearchStrategy[Any]:
    if "properties" not in schema:
        return st.dictionaries(TEXTS, values(schema["additionalProperties"]), max_size=2)
    rows_at, *below = (*path, "")
    fields = {
        name: values(each, (*below[:-1], "") if name == rows_at else ()) for name, each in schema["properties"].items()
    }
    if "required" in schema:
        return st.fixed_dictionaries(fields)
    return st.fixed_dictionaries({}, optional=fields).filter(bool)


MADE = {noun: values(schema.document, schema.rows) for noun, schema in sorted(KINDS.items())}
"""Strategies of the fields of each kind of document."""


@settings(max_examples=40)
@given(data=st.data())
def test_the_three_forms_have_the_same_values(data: st.DataObject) -> None:
    noun = data.draw(st.sampled_from(sorted(MADE)))
    fields = data.draw(MADE[noun])
    listing = Listing(noun=noun, data=fields, table=Table(columns=(), rows=()))
    document = json.loads(json_text(envelope(listing)))
    check_document(document)
    assert yaml.safe_load(yaml_text(envelope(listing))) == document
    header, *lines = csv.reader(io.StringIO(csv_text(records_of(listing)), newline=""))
    assert len(set(header)) == len(header)
    assert all(name.replace("_", "").isalnum() and name == name.lower() for name in header)
    expected = [sorted(filter(None, row)) for row in rows(KINDS[noun], document)]
    shown = [
        sorted(
            cell
            for name, cell in zip(header, line, strict=True)
            if cell and name not in LISTS_IN_A_CELL and not name.endswith("defaults")
        )
        for line in lines
    ]
    assert shown == expected


def rows(schema: OutputSchema, document: Mapping[str, Any]) -> list[list[str]]:
    """The texts of all figures and names in each row of a document, read from the document alone."""
    if not schema.rows:
        return [list(_texts(document, without="schema"))]
    return list(_below(document, schema.rows, []))


def _below(
    value: Mapping[str, Any], path: tuple[str, ...], above: list[str], *, top: bool = True
) -> Iterator[list[str]]:
    name, *rest = path
    found = value[name]
    items = [{"name": key, "value of it": each} for key, each in found.items()] if isinstance(found, Mapping) else found
    if not items and not top:
        yield above
    for item in items or ():
        own = [*above, *_texts(item, without=rest[0] if rest else "")]
        yield from _below(item, tuple(rest), own, top=False) if rest else [own]


def _texts(value: Any, *, without: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name not in {without, "evidence", *LISTS_IN_A_CELL}:
                yield from _texts(each)
    elif value is not None and not isinstance(value, list):
        yield cell_text(value)


names = st.none() | TEXTS


@given(user=names, client_id=names, ip=names, shape=st.sampled_from(["user", "client-id", "user client-id", "ip"]))
def test_an_entity_can_be_read_back_from_its_columns(
    user: str | None, client_id: str | None, ip: str | None, shape: str
) -> None:
    given_names = {"user": user, "client-id": client_id, "ip": ip}
    entity = Entity.from_mapping({kind: given_names[kind] for kind in shape.split()})
    change = {"time": "", "store": "", "entity": entity.to_mapping(), "key": "k", "old": None, "new": 1.0}
    text = csv_text(records_of(Listing(noun="change", data=change, table=Table(columns=(), rows=()))))
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    defaults = row["defaults"].split()
    for kind, name in entity.parts:
        column = kind.replace("-", "_")
        assert (column in defaults, row[column]) == (name is None, name or "")
