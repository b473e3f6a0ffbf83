"""The forms in which a listing can be printed, and what of it. The top-level help loads this module."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


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
    """The columns in their order, empty for those of the form."""
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


TABLE_VIEW = View()
"""All of a listing as a table, which is what a command without such options prints."""
