"""The published contract of what commands print: documents checked by their schemas, and the CSV that follows."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from kafka_quotas.cli.output.render import cell_text
from kafka_quotas.cli.output.schemas.catalogue import find_schema, flat_rows, headers, json_schema

ROWS_SUFFIX = ".rows"
"""Ends the noun of a document with --columns."""


def check_document(document: dict[str, Any]) -> None:
    """Check a document by the schema that its first field names."""
    _validator(_noun(document)).validate(document)


def check_output(arguments: Sequence[str], text: str) -> None:
    """Check what a command printed if it was to print JSON: nothing, one document, or one per line."""
    if not (("json" in arguments and {"-o", "--output"} & set(arguments)) or "--output=json" in arguments):
        return
    lines = text.splitlines()
    one_per_line = len(lines) > 1 and lines[0].endswith("}")
    for each in lines if one_per_line else [text] * bool(lines):
        check_document(json.loads(each))


def expected_csv(documents: list[dict[str, Any]]) -> list[list[str]]:
    """The lines of CSV that have the values of these documents of one kind."""
    noun = _noun(documents[0])
    if noun.endswith(ROWS_SUFFIX):
        rows = [row for document in documents for row in document["rows"]]
        return [list(rows[0]), *([cell_text(cell) for cell in row.values()] for row in rows)]
    schema = find_schema(noun)
    rows = [row for document in documents for row in flat_rows(schema, document)]
    return [list(headers(schema)), *([cell_text(cell) for cell in row] for row in rows)]


def _noun(document: dict[str, Any]) -> str:
    return str(document["schema"]).removeprefix("kafka-quotas.").partition("/")[0]


@cache
def _validator(noun: str) -> Draft202012Validator:
    name = noun.removesuffix(ROWS_SUFFIX)
    if not noun.endswith(ROWS_SUFFIX):
        return Draft202012Validator(json_schema(name))
    row = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}}
    fields = {"schema": {"const": f"kafka-quotas.{noun}/1"}, "rows": {"type": "array", "items": row}}
    return Draft202012Validator(
        {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    )
