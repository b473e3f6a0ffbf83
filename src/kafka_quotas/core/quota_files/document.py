"""The structure of a quota file in any format: its parts and their locations.

    schema: kafka-quotas.quotas/1         # optional
    values: {web: 10MiB}                  # the value of `$web`; --values overrides it
    defaults: {request_percentage: 200}   # the quotas of entries that don't set them
    entries:
      - {entity: {user: alice, client-id: null}, quotas: {producer_byte_rate: $web}}

A file may also be the list of entries alone. This module reads no files: a reader of YAML, JSON or TOML passes plain
lists, mappings, texts and numbers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka_quotas.core.errors import UsageError

QUOTAS_SCHEMA: Final = "kafka-quotas.quotas/1"
SECTIONS: Final = ("schema", "values", "defaults", "entries")
ENTRY_PARTS: Final = ("entity", "quotas", "invalid")
MOST_PROBLEMS: Final = 1000
"""The number of invalid entries after which the rest of a file is ignored."""
_SHAPE_HINT: Final = "an entry is {entity: {user: alice}, quotas: {producer_byte_rate: 10MiB}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLocation:
    """A location: the file, and the line or else the number of the entry, both counted from 1."""

    source: str
    line: int | None = None
    entry: int | None = None

    def __str__(self) -> str:
        if self.line is not None:
            return f"{self.source}, line {self.line}"
        return self.source if self.entry is None else f"{self.source}, entry {self.entry}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """A problem at a location of a file, and the advice on it."""

    location: SourceLocation
    message: str
    hint: str | None = None

    def as_error(self) -> UsageError:
        """Return the problem as the error that ends a command."""
        return UsageError(f"{self.location}: {self.message}", hint=self.hint)


class QuotaFileError(UsageError):
    """A file that can't be read at all, with the location and reason in `problem`."""

    def __init__(self, problem: Diagnostic) -> None:
        super().__init__(f"{problem.location}: {problem.message}", hint=problem.hint)
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class RawEntry:
    """An entry as written: `entity`, `quotas` and perhaps `invalid`, unchecked except for their types."""

    location: SourceLocation
    entity: Mapping[str, object]
    quotas: Mapping[str, object]
    invalid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaDocument:
    """One file: its entries in order, its `values` for `$name`, and the default quotas of every entry."""

    location: SourceLocation
    values: Mapping[str, object]
    defaults: Mapping[str, object]
    entries: tuple[RawEntry, ...]
    problems: tuple[Diagnostic, ...] = ()
    """The problems of items that are no entry."""


def document_of(tree: object, source: str, *, lines: Sequence[int] = ()) -> QuotaDocument:
    """Return the document of the plain values in a file, whose entries begin on these lines if known.

    Raises:
        QuotaFileError: The file as a whole has another shape.
    """
    location = SourceLocation(source=source)
    sections: Mapping[str, Any] = {"entries": tree} if isinstance(tree, list) else _sections(tree, location)
    entries = sections.get("entries") or []
    if not isinstance(entries, list):
        raise _misshapen(location, "entries is not a list")
    places = (
        SourceLocation(source=source, line=lines[index] if index < len(lines) else None, entry=index + 1)
        for index in range(len(entries))
    )
    found: list[RawEntry] = []
    problems: list[Diagnostic] = []
    for entry, where in zip(entries, places, strict=True):
        try:
            found.append(raw_entry(entry, where))
        except QuotaFileError as error:
            problems.append(error.problem)
            if len(problems) == MOST_PROBLEMS:
                break  # probably another kind of file
    return QuotaDocument(
        location=location,
        values=_mapping(sections.get("values") or {}, location, "values"),
        defaults=_mapping(sections.get("defaults") or {}, location, "defaults"),
        entries=tuple(found),
        problems=tuple(problems),
    )


def raw_entry(tree: object, location: SourceLocation) -> RawEntry:
    """Return the parts of one entry, or raise a `QuotaFileError`."""
    parts = _mapping(tree, location, "an entry")
    _refuse_others(parts, ENTRY_PARTS, location, "an entry")
    missing = [name for name in ("entity", "quotas") if name not in parts]
    if missing:
        raise _misshapen(location, f"an entry without {missing[0]}")
    invalid = parts.get("invalid", False)
    if not isinstance(invalid, bool):
        raise _misshapen(location, f"invalid is true or false, not {shown(invalid)}")
    return RawEntry(
        location=location,
        entity=_mapping(parts["entity"], location, "entity"),
        quotas=_mapping(parts["quotas"], location, "quotas"),
        invalid=invalid,
    )


def without_duplicates(pairs: Iterable[tuple[str, object]], location: SourceLocation) -> dict[str, object]:
    """Return the mapping of some pairs, or raise a `QuotaFileError` for a repeated name."""
    mapping: dict[str, object] = {}
    for name, value in pairs:
        if name in mapping:
            raise QuotaFileError(
                Diagnostic(location=location, message=f"{shown(name)} appears twice", hint="keep one of them")
            )
        mapping[name] = value
    return mapping


def shown(value: object) -> str:
    """Return a value as short text on one line for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def kind_of(value: object) -> str:
    """Return the type of a value as text for people."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "a text" if isinstance(value, str) else "a number" if isinstance(value, int | float) else "a date or time"


def _sections(tree: object, location: SourceLocation) -> Mapping[str, Any]:
    sections = _mapping(tree, location, "the file")
    _refuse_others(sections, SECTIONS, location, "a file")
    schema = sections.get("schema", QUOTAS_SCHEMA)
    if schema != QUOTAS_SCHEMA:
        raise QuotaFileError(
            Diagnostic(
                location=location, message=f"this is {shown(schema)}, not {QUOTAS_SCHEMA}", hint="is it the right file?"
            )
        )
    return sections


def _mapping(tree: object, location: SourceLocation, what: str) -> Mapping[str, Any]:
    if not isinstance(tree, Mapping):
        raise _misshapen(location, f"{what} is {kind_of(tree)}, not a mapping")
    return tree


def _refuse_others(parts: Mapping[str, object], known: Sequence[str], location: SourceLocation, what: str) -> None:
    for name in parts:
        if name not in known:
            raise QuotaFileError(
                Diagnostic(
                    location=location, message=f"not a part of {what}: {shown(name)}", hint=f"it has {', '.join(known)}"
                )
            )


def _misshapen(location: SourceLocation, message: str) -> QuotaFileError:
    return QuotaFileError(Diagnostic(location=location, message=message, hint=_SHAPE_HINT))
