"""Records as documents: the fields of JSON and YAML, by what `core.described` says of them.

Invariants: the same record gives the same document; numbers stay as they are, except for the double that stands for
Kafka's largest LONG, which is one too large.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from functools import cache, reduce
from pathlib import Path, PosixPath
from typing import Any, Final, TypeVar

from kafka_quotas.cli.output.json_text import Json
from kafka_quotas.cli.output.listing import Cell, Column, Listing, Table
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import LONG_MAX

T = TypeVar("T")
_LONG_MAX_AS_DOUBLE: Final = float(LONG_MAX)


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


def document_of(record: Any) -> dict[str, Json]:
    """Return the fields of a record (a dataclass or named tuple) as JSON and YAML have them."""
    kind: Any = type(record)
    return nested((names, _plain(reduce(_part, path, record))) for names, path in document_fields(kind))


def listed(
    noun: str, record: Any, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, items: str | None = None
) -> Listing:
    """Return the listing of a record: its document, and its rows for people."""
    return Listing(noun=noun, items=items, data=document_of(record), table=Table(columns=columns, rows=rows))


def documents_of(records: Sequence[Any]) -> list[Json]:
    """Return the documents of several records."""
    return [document_of(each) for each in records]


def _part(value: Any, attribute: str) -> Any:
    return None if value is None else getattr(value, attribute)


def _plain(value: Any) -> Json:
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, float):
        return LONG_MAX if value == _LONG_MAX_AS_DOUBLE else value
    if value is None or isinstance(value, bool | int | str):
        return str(value) if isinstance(value, str) else value  # a name that was read from a file knows its line
    if isinstance(value, Mapping):
        return {str(_plain(name)): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [_plain(each) for each in value]
    return _SHOWN.get(type(value), document_of)(value)


_SHOWN: Final[Mapping[type[Any], Callable[[Any], Json]]] = {
    Entity: Entity.to_mapping,
    **dict.fromkeys((PosixPath, Path), str),
}
