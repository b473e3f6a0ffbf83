"""Typed documents: a tree whose nodes know their lines, the kinds of values in it, and records that are read from it.

Contract: `read` raises `ScenarioError` with the line for any value that `schema` does not allow. Parser and published
schema come from the same records, whose fields say by a `Setting` how a file has them, so that neither can know a field
that the other lacks.
"""

import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, fields
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Final

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


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of values, by how one is read from a node and by its JSON schema."""

    read: Callable[[YamlNode], Any]
    schema: Mapping[str, Any]


def text_of(pattern: str = r"[\s\S]+", *, example: str = "some text", nullable: bool = False) -> Kind:
    """Return the kind of a text that matches a pattern, or is null if that has a meaning."""

    def value(node: YamlNode) -> str | None:
        if node.value is None and nullable:
            return None
        if not isinstance(node.value, str) or not re.fullmatch(pattern, node.value, re.ASCII):
            raise node.problem(f"not what is wanted here: {node.kind}", f"example: {example}")
        return node.value

    return Kind(value, {"type": ["string", "null"] if nullable else "string", "pattern": f"^(?:{pattern})$"})


def word_of(
    words: Sequence[str], build: Callable[[str], Any] = str, *, removed: Mapping[str, str] = MappingProxyType({})
) -> Kind:
    """Return the kind of one of a list of words, where `removed` answers earlier ones."""

    def value(node: YamlNode) -> Any:
        if not isinstance(node.value, str) or node.value not in words:
            hint = removed.get(str(node.value)) or f"one of: {', '.join(words)}"
            raise node.problem(f"{node.kind} is none of the words for this", hint)
        return build(node.value)

    return Kind(value, {"enum": [int(word) if word.isdigit() else word for word in words]})


def whole_of(lowest: int = 1, highest: int = 1_000_000_000) -> Kind:
    """Return the kind of a whole number between two bounds."""

    def value(node: YamlNode) -> int:
        text = node.value
        if not isinstance(text, str) or not _WHOLE.fullmatch(text):
            raise node.problem(f"{node.kind} is no whole number")
        if not lowest <= int(text) <= highest:
            raise node.problem(f"{text} is out of range", f"{lowest} to {highest}")
        return int(text)

    return Kind(value, {"type": "integer", "minimum": lowest, "maximum": highest})


def _truth(node: YamlNode) -> bool:
    if not isinstance(node.value, str) or node.value not in _TRUTHS:
        raise node.problem(f"{node.kind} is neither true nor false")
    return _TRUTHS[node.value]


def _share(node: YamlNode) -> float:
    text = node.value
    if not isinstance(text, str) or not _NUMBER.fullmatch(text) or not 0 < float(text) <= 1:
        raise node.problem(f"{node.kind} is not a number above 0 and up to 1")
    return float(text)


def _size(node: YamlNode) -> int:
    size = parse_bytes(node.value) if isinstance(node.value, str) else 0
    if size < 1 or size.denominator != 1:
        raise node.problem(f"{node.kind} is not a size of 1 byte or more", "examples: 100, 1KiB, 64kB")
    return int(size)


TRUTH: Final = Kind(_truth, {"type": "boolean"})
SHARE: Final = Kind(_share, {"type": "number", "exclusiveMinimum": 0, "maximum": 1})
SIZE: Final = Kind(
    _size, {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[0-9.]+ ?[kKMG]?i?B?$"}]}
)


def duration_of(*, in_ms: bool = False, zero: bool = True) -> Kind:
    """Return the kind of a duration with its unit, which becomes seconds or milliseconds."""

    def value(node: YamlNode) -> float | int:
        if not isinstance(node.value, str):
            raise node.problem(f"{node.kind} is no length of time", "examples: 500ms, 10s, 2min")
        length_ms = parse_duration_ms(node.value)
        if not zero and length_ms <= 0:
            raise node.problem("this must be above 0 s", "examples: 500ms, 10s, 2min")
        return int(length_ms) if in_ms else float(length_ms / 1000)

    pattern = r"^(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})\s*(?:us|ms|s|min|h)$"
    return Kind(value, {"type": "string", "pattern": pattern})


def parsed_by(parse: Callable[[str], Any], *, also_number: bool = False) -> Kind:
    """Return the kind of a text for another parser of the program, whose errors get the line."""

    def value(node: YamlNode) -> Any:
        if not isinstance(node.value, str):
            raise node.problem(f"{node.kind} is not a value")
        return parse(node.value)

    return Kind(value, {"type": ["string", "number", "boolean"] if also_number else "string"})


def list_of(item: Kind) -> Kind:
    """Return the kind of a list of values of one kind, at least one of them."""

    def value(node: YamlNode) -> tuple[Any, ...]:
        if not isinstance(node.value, tuple) or not node.value:
            raise node.problem(f"{node.kind} is not a list of 1 or more", "write each with a dash in front")
        return tuple(_gathered(partial(read, item, each) for each in node.value))

    return Kind(value, {"type": "array", "items": item.schema, "minItems": 1})


def named_by(item: Kind, names: Sequence[str] | None = None) -> Kind:
    """Return the kind of a mapping from these names, or any, to values of one kind, as pairs in order."""

    def named(name: str, node: YamlNode) -> Any:
        if names is not None and name not in names:
            raise node.problem(f"no such name: {name[:40]!r}", _meant(name, names))
        return read(item, node)

    def value(node: YamlNode) -> tuple[tuple[str, Any], ...]:
        if not isinstance(node.value, Mapping) or not node.value:
            raise node.problem(f"{node.kind} is no mapping of names to values")
        values = _gathered(partial(named, name, each) for name, each in node.value.items())
        return tuple(zip(node.value, values, strict=True))

    schema: dict[str, Any] = {"type": "object", "additionalProperties": item.schema, "minProperties": 1}
    if names is not None:
        schema |= {"properties": dict.fromkeys(names, item.schema), "additionalProperties": False}
    return Kind(value, schema)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a section."""

    name: str
    kind: Kind
    about: str
    """A description on one line."""
    _: KW_ONLY
    required: bool = False
    target: str | None = None
    """The name of the argument that it becomes, None for that in the file with underscores."""


def section(what: str, parts: Sequence[Field], build: Callable[..., Any]) -> Kind:
    """Return the kind of a mapping with fixed fields, of which those that are present build a value.

    `what` is a noun for messages.
    """
    known = {each.name: each for each in parts}

    def part(name: str, node: YamlNode) -> Any:
        if name not in known:
            raise node.problem(f"{what} has no {name[:40]!r}", _meant(name, list(known)))
        return read(known[name].kind, node)

    def value(node: YamlNode) -> Any:
        if not isinstance(node.value, Mapping):
            raise node.problem(f"{what} is {node.kind}, not a mapping", f"it has {', '.join(known)}")
        missing = [each for each in parts if each.required and each.name not in node.value]
        lacks = [node.problem(f"{what} lacks {each.name!r}", f"{each.name}: {each.about}") for each in missing]
        values = _gathered((partial(part, *each) for each in node.value.items()), faults=lacks)
        targets = [known[name].target or name.replace("-", "_") for name in node.value]
        try:
            return build(**dict(zip(targets, values, strict=True)))
        except UsageError as error:
            raise node.problem(error.message, error.hint) from error

    schema = {
        "type": "object",
        "properties": {each.name: {**each.kind.schema, "description": each.about} for each in parts},
        "required": [each.name for each in parts if each.required],
        "additionalProperties": False,
    }
    return Kind(value, schema)


def _gathered(readers: Iterable[Callable[[], Any]], *, faults: Sequence[ScenarioError] = ()) -> list[Any]:
    """Return the value of every reader, or raise one error for all that some of them raise, and `faults`."""
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


def read(kind: Kind, node: YamlNode) -> Any:
    """Return the value of a node, and add its line to exceptions that have none."""
    try:
        return kind.read(node)
    except ScenarioError:
        raise
    except UsageError as error:
        raise node.problem(error.message, error.hint) from error


def _meant(name: str, known: Sequence[str]) -> str | None:
    return near_hint(name, known, otherwise=f"it has {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class Setting:
    """How a file has a field of a record, in the annotation of that field."""

    about: str
    kind: Kind | None = None
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
) -> Kind:
    """Return the kind of a record, by the settings in the annotations of its fields.

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
            found.append(Field(name, made, setting.about, required=required, target=each.name))
    return section(what, found, build or record)


def setting_of(record: type[Any], name: str) -> tuple[str, Any]:
    """Return the description and the default of a field that has a setting."""
    hint = typing.get_type_hints(record, include_extras=True)[name]
    about = next(note.about for note in typing.get_args(hint) if isinstance(note, Setting))
    return about, next(each.default for each in fields(record) if each.name == name)


def kind_of(hint: Any) -> Kind:
    """Return the kind of values that a type has: a word, a truth, a whole number, a list of these."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return kind_of(next(each for each in arguments if each is not types.NoneType))
    if origin is tuple:
        return list_of(kind_of(arguments[0]))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return word_of([each.value for each in hint], hint)
    return TRUTH if hint is bool else whole_of()
