"""What documents and their schemas say of a record's fields, beside their types: metadata of `Annotated` types.

A record is the one place where a result is described. Its documents have all of its fields, or those that `DOCUMENT`
of its class lists, in that order: `"limit"` is a field or property, `"store=store_url"` one under another name, and
`"reason=error.message"` one of an inner value, null if that is None. `"to.store=target_url"` is one of an object `to`.

Invariant: the same record gives the same document. Numbers stay as they are, except for the double that stands for
Kafka's largest LONG, which is one too large.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache, reduce
from pathlib import PurePath
from typing import Annotated, Any, Final, TypeVar


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

T = TypeVar("T")
_LONG_MAX: Final = 2**63 - 1


@cache
def document_fields(kind: Any) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """Return the names of each field of a record's documents, and the attributes that lead to its value.

    There are several names for a field of an object in the document.
    """
    listed = getattr(kind, "DOCUMENT", "").split() or getattr(kind, "_fields", None) or [e.name for e in fields(kind)]
    named = [text.partition("=") if "=" in text else (text.rpartition(".")[2], "", text) for text in listed]
    return tuple((tuple(name.split(".")), tuple(path.split("."))) for name, _, path in named)


def nested(found: Iterable[tuple[tuple[str, ...], T]]) -> dict[str, Any]:
    """Return a mapping of the values by their names, with one mapping in the other for several names."""
    made: dict[str, Any] = {}
    for (*groups, name), value in found:
        reduce(lambda inner, group: inner.setdefault(group, {}), groups, made)[name] = value
    return made


def document_of(record: Any) -> dict[str, Any]:
    """Return the fields of a record (a dataclass or named tuple) as JSON and YAML have them."""
    kind: Any = type(record)
    return nested((names, _plain(reduce(_part, path, record))) for names, path in document_fields(kind))


def documents_of(records: Sequence[Any]) -> list[Any]:
    """Return the documents of several records."""
    return [document_of(each) for each in records]


def _part(value: Any, attribute: str) -> Any:
    return None if value is None else getattr(value, attribute)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, float):
        return _LONG_MAX if value == float(_LONG_MAX) else value
    if value is None or isinstance(value, bool | int | str | PurePath):
        # a name that was read from a file knows its line
        return str(value) if isinstance(value, str | PurePath) else value
    if isinstance(value, Mapping):
        return {str(_plain(name)): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [_plain(each) for each in value]
    own = getattr(value, "to_mapping", None)
    return document_of(value) if own is None else own()
