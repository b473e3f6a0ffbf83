"""What a listing is made of: its document of JSON and YAML, columns and rows, and the forms in which it can be printed.

Invariant: JSON has plain numbers, which `json.dumps` has no option for (`1e-05`, `10485760.0`). The top-level help
loads this module.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kafka_quotas.core.described import document_of
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.setting import TextForm, setting
from kafka_quotas.core.model.value_format import format_number

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
"""What JSON can hold. Infinities and NaN, which it can't, are written as the texts Java uses."""


def json_text(value: Json, *, ascii_only: bool = False, indent: str = "\n") -> str:
    """Format the value as JSON, indented by two, keys in the order given.

    `ascii_only` escapes other letters. `indent` is a line end with the indentation of the value's line.
    """
    inner = f"{indent}  "
    if isinstance(value, float):
        text = format_number(value)
        return text if text[-1].isdigit() else json.dumps(text)
    if isinstance(value, Mapping):
        names = [f"{json.dumps(name, ensure_ascii=ascii_only)}: " for name in value]
        opening, items, closing = "{", list(value.values()), "}"
    elif isinstance(value, Sequence) and not isinstance(value, str):
        opening, names, items, closing = "[", [""] * len(value), list(value), "]"
    else:
        return json.dumps(value, ensure_ascii=ascii_only)
    texts = (json_text(each, ascii_only=ascii_only, indent=inner) for each in items)
    lines = f",{inner}".join(map(str.__add__, names, texts))
    return f"{opening}{inner}{lines}{indent}{closing}" if items else opening + closing


def json_line(value: Json, *, ascii_only: bool = False) -> str:
    """Format the value like `json_text`, but on one line."""
    return "".join(line.lstrip(" ") for line in json_text(value, ascii_only=ascii_only).split("\n"))


SCHEMA_PREFIX: Final = "kafka-quotas"
"""What the name of every schema begins with."""
Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    title: str
    figures: bool = False
    """Whether it holds figures, which are aligned right."""
    whole: bool = False
    """Whether its cells are never folded."""


def columns(marked: str) -> tuple[Column, ...]:
    """Return columns from titles between commas, with `>` for figures and `!` for cells never folded."""
    titles = (title.strip() for title in marked.split(","))
    return tuple(Column(title=each.rstrip(">!"), figures=">" in each, whole="!" in each) for each in titles)


def plain_columns(titles: Iterable[str]) -> tuple[Column, ...]:
    """Return columns of any text."""
    return tuple(Column(title=title) for title in titles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under columns."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str | None = None

    @classmethod
    def of(cls, marked: str | Sequence[Column], rows: Sequence[Sequence[Cell]], caption: str | None = None) -> "Table":
        """Return the table of columns, which may be text as `columns` takes it, and of rows."""
        return cls(columns=columns(marked) if isinstance(marked, str) else marked, rows=rows, caption=caption)


NO_TABLE: Final = Table(columns=(), rows=())
"""The table of a listing that people get otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One result in all its forms."""

    noun: str
    """Names the schema of `data`, together with `version`."""
    data: Mapping[str, Json]
    """The document of JSON and YAML."""
    table: Table
    """The rows for people."""
    records: Table | None = None
    """The rows for machines where the schema of `noun` doesn't say them: a part that was selected of a listing."""
    version: int = 1


class Output(StrEnum):
    """The forms of `--output`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    MARKDOWN = "markdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The form of a listing and the part of it to show, which a command takes as a group of options."""

    form: Output = setting("output", "-o, --output FORM", "table, json, yaml, csv or markdown.", default=Output.TABLE)
    columns: Sequence[str] = setting(
        "output",
        "--columns NAME,...",
        "Only these columns of CSV, in this order; an unknown name lists the valid ones.",
        TextForm(read=lambda text: tuple(name.strip() for name in text.split(",")), pattern="", write=",".join),
        default=(),
    )
    limit: int | None = setting("output", "--limit ROWS", "Show at most N rows; 0 for all.", default=None, least=0)
    """The greatest number of rows, 0 for all, None where it was not given."""

    def __post_init__(self) -> None:
        if not all(self.columns):
            raise UsageError("--columns has an empty name", hint="is the shell variable behind it set?")

    @property
    def is_table(self) -> bool:
        """Whether people read it, as a table drawn in text."""
        return self.form is Output.TABLE

    def limit_or(self, default: int) -> int:
        """Return the greatest number of rows, `default` where none was given, 0 for all."""
        return default if self.limit is None else self.limit


TABLE_VIEW = View()
"""All of a listing as a table, which is what a command without such options prints."""


def listed(
    noun: str,
    document: Any,
    marked: str | Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    *,
    caption: str | None = None,
) -> Listing:
    """Return the listing of a record or a whole document, with its columns and rows for people."""
    data = document if isinstance(document, dict) else document_of(document)
    return Listing(noun=noun, data=data, table=Table.of(marked, rows, caption))
