"""What a listing is made of: columns, rows, and the document that JSON and YAML show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_quotas.cli.output.json_text import Json

Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    title: str
    figures: bool = False
    """Whether it holds figures, which are aligned right."""
    whole: bool = False
    """Whether its cells are never folded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under columns."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One result in all its forms.

    `noun` and `version` name the schema of `data`, which JSON and YAML carry; `items` is the list in `data` that a
    limit shortens. `table` is for people (and Markdown); `records` is for CSV where machines want other columns than
    people, else `table` serves. The rows of both are about the same things in the same order, unless they are `apart`.
    """

    noun: str
    data: Mapping[str, Json]
    table: Table
    records: Table | None = None
    version: int = 1
    items: str | None = None
    apart: bool = False
