"""What documents and their schemas say of a record's fields, beside their types: metadata of `Annotated` types.

A record is the one place where a result is described. Its documents have all of its fields, or those that `DOCUMENT`
of its class lists, in that order: `"limit"` is a field or property, `"store=store_url"` one under another name, and
`"reason=error.message"` one of an inner value, null if that is None. `"to.store=target_url"` is one of an object `to`.
"""

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """Metadata of a field or property: `Annotated[float | None, Described(text="null for no limit")]`."""

    text: str = ""
    """What the field's name and type don't say."""
    choices: tuple[str, ...] = ()
    """The only values of a text, none for any text."""
    prose: bool = False
    """Whether a list holds sentences, which CSV leaves out, and not names."""
    prefix: str | None = None
    """What the CSV columns of an inner record begin with, None for the field's name."""
    columns: tuple[str, str] | None = None
    """The CSV columns of a mapping's keys and values, None for a mapping that is not the rows of CSV."""


StoreAddress = Annotated[str, Described(text="the address of the store")]
Instant = Annotated[str, Described(text="UTC, as in ISO 8601")]
Limit = Annotated[float | None, Described(text="in the unit of the key; null for no limit")]
QuotaValue = Annotated[float | None, Described(text="in the unit of the key; null where it is not set")]
Sentences = Annotated[tuple[str, ...], Described(prose=True)]
