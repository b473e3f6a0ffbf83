"""Typed documents: a tree whose nodes know their lines, the kinds of values in it, and records that are read from it.

Contract: `read` raises `ScenarioError` with the line for any value that `schema` does not allow. Parser and published
schema come from the same records, whose fields say by a `Setting` how a file has them, so that neither can know a field
that the other lacks.
"""

import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Final, Protocol

from kafka_quotas.core.errors import UsageError, near_hint
from kafka_quotas.core.formats.nodes import SourceLocation
from kafka_quotas.core.model.units import parse_bytes, parse_duration_ms

_WHOLE: Final = re.compile(r"\d{1,12}", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,12}(?:\.\d{1,9})?|\.\d{1,9}", re.ASCII)
_TRUTHS: Final = {"true": True, "false": False}


class ScenarioError(UsageError):
    """An error in a scenario, with file and line at the start of the message."""

    line: int | None = None
    faults: "tuple[ScenarioError, ...]" = ()
    """All errors of the file by line, where there are several; this one is the first."""

    @classmethod
    def of_all(cls, faults: "Sequence[ScenarioError]") -> "ScenarioError":
        """Return one error for several, which names the first and counts the others."""
        every = sorted((each for fault in faults for each in fault.faults or (fault,)), key=lambda each: each.line or 0)
        if len(every) == 1:
            return every[0]
        error = cls(f"{every[0].message} (and {len(every) - 1} more, see load-test validate)", hint=every[0].hint)
        error.line, error.faults = every[0].line, tuple(every)
        return error


@dataclass(frozen=True, slots=True)
class YamlNode:
    """A part of a file."""

    location: SourceLocation
    value: "str | tuple[YamlNode, ...] | dict[str, YamlNode] | None"
    """A text (None: null), the nodes of a list, or those of a mapping by name."""

    def problem(self, message: str, hint: str | None = None) -> ScenarioError:
        """Return the error for this part, with its line."""
        error = ScenarioError(f"{self.location}: {message}", hint=hint)
        error.line = self.location.line
        return error

    @property
    def kind(self) -> str:
        """A noun for the value, or a text's own words."""
        if self.value is None:
            return "null"
        if isinstance(self.value, str):
            return repr(self.value[:40])
        return "a list" if isinstance(self.value, tuple) else "a mapping"


class FieldKind(Protocol):
    """A kind of value."""

    def read(self, node: YamlNode) -> Any:
        """Return the value of a node."""

    def schema(self) -> dict[str, Any]:
        """Return its JSON schema."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text of one line or more, which may have to match a pattern."""

    pattern: str = r"[\s\S]+"
    example: str = "some text"
    nullable: bool = False
    """Whether `null` is allowed, where it has a meaning."""

    def read(self, node: YamlNode) -> str | None:
        if node.value is None and self.nullable:
            return None
        if not isinstance(node.value, str) or not re.fullmatch(self.pattern, node.value, re.ASCII):
            raise node.problem(f"not what is wanted here: {node.kind}", f"example: {self.example}")
        return node.value

    def schema(self) -> dict[str, Any]:
        kinds = ["string", "null"] if self.nullable else ["string"]
        return {"type": kinds if self.nullable else "string", "pattern": f"^(?:{self.pattern})$"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One of a list of words."""

    words: Sequence[str]
    build: Callable[[str], Any] = str
    """Converts the word to what the program uses."""
    removed: Mapping[str, str] = field(default_factory=dict)
    """Words that there were, each with what to use instead."""

    def read(self, node: YamlNode) -> Any:
        if not isinstance(node.value, str) or node.value not in self.words:
            instead = self.removed.get(str(node.value))
            raise node.problem(
                f"{node.kind} is none of the words for this", instead or f"one of: {', '.join(self.words)}"
            )
        return self.build(node.value)

    def schema(self) -> dict[str, Any]:
        return {"enum": [int(word) if word.isdigit() else word for word in self.words]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """True or false."""

    def read(self, node: YamlNode) -> bool:
        if not isinstance(node.value, str) or node.value not in _TRUTHS:
            raise node.problem(f"{node.kind} is neither true nor false")
        return _TRUTHS[node.value]

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A whole number from `lowest` to `highest`."""

    lowest: int = 1
    highest: int = 1_000_000_000

    def read(self, node: YamlNode) -> int:
        text = node.value
        if not isinstance(text, str) or not _WHOLE.fullmatch(text):
            raise node.problem(f"{node.kind} is no whole number")
        if not self.lowest <= int(text) <= self.highest:
            raise node.problem(f"{text} is out of range", f"{self.lowest} to {self.highest}")
        return int(text)

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.lowest, "maximum": self.highest}


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A number above 0 and at most 1."""

    def read(self, node: YamlNode) -> float:
        text = node.value
        if not isinstance(text, str) or not _NUMBER.fullmatch(text) or not 0 < float(text) <= 1:
            raise node.problem(f"{node.kind} is not a number above 0 and up to 1")
        return float(text)

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "exclusiveMinimum": 0, "maximum": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A whole number of bytes, with an optional unit."""

    def read(self, node: YamlNode) -> int:
        size = parse_bytes(_text_of(node)) if isinstance(node.value, str) else 0
        if size < 1 or size.denominator != 1:
            raise node.problem(f"{node.kind} is not a size of 1 byte or more", "examples: 100, 1KiB, 64kB")
        return int(size)

    def schema(self) -> dict[str, Any]:
        return {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[0-9.]+ ?[kKMG]?i?B?$"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """A duration with its unit, in seconds or milliseconds."""

    in_ms: bool = False
    zero: bool = True

    def read(self, node: YamlNode) -> float | int:
        if not isinstance(node.value, str):
            raise node.problem(f"{node.kind} is no length of time", "examples: 500ms, 10s, 2min")
        length_ms = parse_duration_ms(node.value)
        if not self.zero and length_ms <= 0:
            raise node.problem("this must be above 0 s", "examples: 500ms, 10s, 2min")
        return int(length_ms) if self.in_ms else float(length_ms / 1000)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})\s*(?:us|ms|s|min|h)$"}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text for another parser of the program, whose exceptions get the line."""

    parse: Callable[[str], Any]
    _: KW_ONLY
    also_number: bool = False
    """Whether the schema also allows a number or a boolean."""

    def read(self, node: YamlNode) -> Any:
        return self.parse(_text_of(node))

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "number", "boolean"] if self.also_number else "string"}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of values of one kind, at least one of them."""

    item: FieldKind

    def read(self, node: YamlNode) -> tuple[Any, ...]:
        if not isinstance(node.value, tuple) or not node.value:
            raise node.problem(f"{node.kind} is not a list of 1 or more", "write each with a dash in front")
        return tuple(_gathered(partial(read, self.item, item) for item in node.value))

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.item.schema(), "minItems": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A mapping from names to values of one kind, read into pairs in order."""

    item: FieldKind
    names: Sequence[str] | None = None
    """The allowed names, None for any."""

    def read(self, node: YamlNode) -> tuple[tuple[str, Any], ...]:
        if not isinstance(node.value, Mapping) or not node.value:
            raise node.problem(f"{node.kind} is no mapping of names to values")
        values = _gathered(partial(self._value, name, value) for name, value in node.value.items())
        return tuple(zip(node.value, values, strict=True))

    def _value(self, name: str, value: YamlNode) -> Any:
        if self.names is not None and name not in self.names:
            raise value.problem(f"no such name: {name[:40]!r}", _meant(name, self.names))
        return read(self.item, value)

    def schema(self) -> dict[str, Any]:
        if self.names is None:
            return {"type": "object", "additionalProperties": self.item.schema(), "minProperties": 1}
        properties = {name: self.item.schema() for name in self.names}
        return {"type": "object", "properties": properties, "additionalProperties": False, "minProperties": 1}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a section."""

    name: str
    """The name in the file."""
    kind: FieldKind
    about: str
    _: KW_ONLY
    required: bool = False
    attribute: str | None = None
    """The name of the argument that it becomes, None for that in the file with underscores."""

    @property
    def target(self) -> str:
        """The name of the argument that it becomes."""
        return self.attribute or self.name.replace("-", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A mapping with fixed fields."""

    what: str
    """A noun for messages."""
    fields: tuple[Field, ...]
    build: Callable[..., Any]
    """Builds a value from the fields that are present."""

    def read(self, node: YamlNode) -> Any:
        if not isinstance(node.value, Mapping):
            raise node.problem(f"{self.what} is {node.kind}, not a mapping", f"it has {self._names()}")
        known = {each.name: each for each in self.fields}
        missing = [each for each in self.fields if each.required and each.name not in node.value]
        lacks = [node.problem(f"{self.what} lacks {each.name!r}", f"{each.name}: {each.about}") for each in missing]
        values = _gathered((partial(self._part, known, *each) for each in node.value.items()), faults=lacks)
        try:
            return self.build(**{known[name].target: value for name, value in zip(node.value, values, strict=True)})
        except UsageError as error:
            raise node.problem(error.message, error.hint) from error

    def _part(self, known: Mapping[str, Field], name: str, part: YamlNode) -> Any:
        if name not in known:
            raise part.problem(f"{self.what} has no {name[:40]!r}", _meant(name, list(known)))
        return read(known[name].kind, part)

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {each.name: {**each.kind.schema(), "description": each.about} for each in self.fields},
            "required": [each.name for each in self.fields if each.required],
            "additionalProperties": False,
        }

    def _names(self) -> str:
        return ", ".join(each.name for each in self.fields)


def _gathered(readers: Iterable[Callable[[], Any]], *, faults: Sequence[ScenarioError] = ()) -> list[Any]:
    """Return the value of every reader."""
    values, found = [], []
    for reader in readers:
        try:
            values.append(reader())
        except ScenarioError as error:
            found.append(error)
    found += faults
    if found:
        raise ScenarioError.of_all(found)
    return values


def read(kind: FieldKind, node: YamlNode) -> Any:
    """Return the value of a node, and add its line to exceptions that have none."""
    try:
        return kind.read(node)
    except ScenarioError:
        raise
    except UsageError as error:
        raise node.problem(error.message, error.hint) from error


def _text_of(node: YamlNode) -> str:
    if not isinstance(node.value, str):
        raise node.problem(f"{node.kind} is not a value")
    return node.value


def _meant(name: str, known: Sequence[str]) -> str | None:
    return near_hint(name, known, otherwise=f"it has {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class Setting:
    """How a file has a field of a record, in the annotation of that field."""

    about: str
    kind: FieldKind | None = None
    """The kind of its values, None for the one that its type has."""
    name: str | None = None
    """The name in the file, None for that of the field with dashes."""
    required: bool = False
    """Whether a file has to have it, although the record has a default."""


def section_of(
    record: type[Any],
    what: str,
    *,
    more: Sequence[Field] = (),
    build: Callable[..., Any] | None = None,
) -> Section:
    """Return the section of a record, by the settings in the annotations of its fields.

    Args:
        record: A dataclass. Fields without a setting are not in the file.
        what: A noun for messages.
        more: Fields that the record does not have under their own names.
        build: Builds the value from the fields that are present, None for the record itself.
    """
    hints = typing.get_type_hints(record, include_extras=True)
    found = list(more)
    for each in fields(record):
        kind, *notes = typing.get_args(hints[each.name]) if typing.get_origin(hints[each.name]) is Annotated else [None]
        for setting in (note for note in notes if isinstance(note, Setting)):
            name = setting.name or each.name.replace("_", "-")
            required = setting.required or (each.default is MISSING and each.default_factory is MISSING)
            made = setting.kind or kind_of(kind)
            found.append(Field(name, made, setting.about, required=required, attribute=each.name))
    return Section(what=what, fields=tuple(found), build=build or record)


def setting_of(record: type[Any], name: str) -> tuple[str, Any]:
    """Return the description and the default of a field that has a setting."""
    hint = typing.get_type_hints(record, include_extras=True)[name]
    about = next(note.about for note in typing.get_args(hint) if isinstance(note, Setting))
    return about, next(each.default for each in fields(record) if each.name == name)


def kind_of(hint: Any) -> FieldKind:
    """Return the kind of values that a type has: a word, a truth, a whole number, a list of these."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return kind_of(next(each for each in arguments if each is not types.NoneType))
    if origin is tuple:
        return ListOf(kind_of(arguments[0]))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return Word(words=tuple(each.value for each in hint), build=hint)
    return Truth() if hint is bool else Whole()
