"""The forms in which a listing can be printed, and what of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Output(StrEnum):
    """What `--output` takes."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    MARKDOWN = "markdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What `--output`, `--columns` and `--limit` say together: form, columns in their order, at most so many rows.

    No columns: those that the form has by itself. `limit` is None where it was not given; 0 means all.
    """

    form: Output = Output.TABLE
    columns: Sequence[str] = ()
    limit: int | None = None

    def __str__(self) -> str:
        """The form, as it is spelled on the command line."""
        return str(self.form)

    @property
    def is_table(self) -> bool:
        """Whether people read it, as a table drawn in text."""
        return self.form is Output.TABLE

    @property
    def selects(self) -> bool:
        """Whether only a part was asked for."""
        return bool(self.columns or self.limit)

    def limit_or(self, default: int) -> int:
        """The greatest number of rows, `default` where none was given; 0 means all."""
        return default if self.limit is None else self.limit


TABLE_VIEW = View()
"""All of a listing as a table, which is what a command without such options prints."""
