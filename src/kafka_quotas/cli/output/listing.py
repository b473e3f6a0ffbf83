"""What a listing is made of (columns, rows, a document), and the forms in which it can be printed.

The top-level help loads this module.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafka_quotas.cli.output.json_text import Json

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
    items: str | None = None
    """The list in `data` that a limit shortens."""
    apart: bool = False
    """Whether people and machines have other rows, so that no row has columns of both."""
    rows: tuple[str, ...] | None = None
    """What in `data` the rows for machines are, in place of what the schema says."""


class Output(StrEnum):
    """The forms of `--output`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    MARKDOWN = "markdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The form of a listing and the part of it to show: `--output`, `--columns` and `--limit`."""

    form: Output = Output.TABLE
    columns: Sequence[str] = ()
    limit: int | None = None
    """The greatest number of rows, 0 for all, None where it was not given."""

    def __str__(self) -> str:
        """Return the form, as it is spelled on the command line."""
        return str(self.form)

    @property
    def is_table(self) -> bool:
        """Whether people read it, as a table drawn in text."""
        return self.form is Output.TABLE

    def limit_or(self, default: int) -> int:
        """Return the greatest number of rows, `default` where none was given, 0 for all."""
        return default if self.limit is None else self.limit


def parse_view(text: str | View) -> View:
    """Return the view in a form by its name."""
    if isinstance(text, View):
        return text
    if text.lower() not in tuple(Output):
        raise ValueError(f"{text!r} is not one of {', '.join(Output)}")
    return View(form=Output(text.lower()))


TABLE_VIEW = View()
"""All of a listing as a table, which is what a command without such options prints."""
