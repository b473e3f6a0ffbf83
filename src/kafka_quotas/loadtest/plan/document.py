"""Records that are read from the nodes of a file, and the JSON schema of the same files.

Contract: `read` raises `DocumentError`, with everything that is wrong, for any value that `schema` does not allow.
Parser and published schema come from the same records, whose fields say by an `InFile` how a file has them, so that
neither can know a field that the other lacks.
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
from kafka_quotas.core.formats.nodes import Diagnostic, DocumentError, Node, Plain, shown_kind
from kafka_quotas.core.model.value_format import parse_bytes, parse_duration_ms

_WHOLE: Final = re.compile(r"\d{1,12}", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,12}(?:\.\d{1,9})?|\.\d{1,9}", re.ASCII)
_TRUTHS: Final = {"true": True, "false": False}
_NULLS: Final = ("null", "~")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of values, by how one is read from a node and by its JSON schema."""

    read: Callable[[Node], Any]
    schema: Mapping[str, Any]


def _scalar(node: Node) -> str | None:
    """Return a scalar as it is written, None for null and for anything else."""
    value = node.value
    return str(value) if isinstance(value, str) and not _is_null(node) else None


def _is_null(node: Node) -> bool:
    return node.value is None or (isinstance(node.value, Plain) and node.value in _NULLS)


def _fault(node: Node, message: str, hint: str | None = None) -> DocumentError:
    return DocumentError(node.problem(message, hint))


def text_of(pattern: str = r"[\s\S]+", *, example: str = "some text", nullable: bool = False) -> Kind:
    """Return the kind of a text that matches a pattern, or is null if that has a meaning."""

    def value(node: Node) -> str | None:
        if nullable and _is_null(node):
            return None
        text = _scalar(node)
        if text is None or not re.fullmatch(pattern, text, re.ASCII):
            raise _fault(node, f"not what is wanted here: {shown_kind(node)}", f"example: {example}")
        return text

    return Kind(value, {"type": ["string", "null"] if nullable else "string", "pattern": f"^(?:{pattern})$"})


def word_of(
    words: Sequence[str], build: Callable[[str], Any] = str, *, removed: Mapping[str, str] = MappingProxyType({})
) -> Kind:
    """Return the kind of one of a list of words, where `removed` answers earlier ones."""

    def value(node: Node) -> Any:
        word = _scalar(node) or ""
        if word not in words:
            hint = removed.get(word) or f"one of: {', '.join(words)}"
            raise _fault(node, f"{shown_kind(node)} is none of the words for this", hint)
        return build(word)

    return Kind(value, {"enum": [int(word) if word.isdigit() else word for word in words]})


def whole_of(lowest: int = 1, highest: int = 1_000_000_000) -> Kind:
    """Return the kind of a whole number between two bounds."""

    def value(node: Node) -> int:
        text = _scalar(node) or ""
        if not _WHOLE.fullmatch(text):
            raise _fault(node, f"{shown_kind(node)} is no whole number")
        if not lowest <= int(text) <= highest:
            raise _fault(node, f"{text} is out of range", f"{lowest} to {highest}")
        return int(text)

    return Kind(value, {"type": "integer", "minimum": lowest, "maximum": highest})


def _truth(node: Node) -> bool:
    truth = _TRUTHS.get(_scalar(node) or "")
    if truth is None:
        raise _fault(node, f"{shown_kind(node)} is neither true nor false")
    return truth


def _share(node: Node) -> float:
    text = _scalar(node) or ""
    if not _NUMBER.fullmatch(text) or not 0 < float(text) <= 1:
        raise _fault(node, f"{shown_kind(node)} is not a number above 0 and up to 1")
    return float(text)


def _size(node: Node) -> int:
    text = _scalar(node)
    size = 0 if text is None else parse_bytes(text)
    if size < 1 or size.denominator != 1:
        raise _fault(node, f"{shown_kind(node)} is not a size of 1 byte or more", "examples: 100, 1KiB, 64kB")
    return int(size)


TRUTH: Final = Kind(_truth, {"type": "boolean"})
SHARE: Final = Kind(_share, {"type": "number", "exclusiveMinimum": 0, "maximum": 1})
SIZE: Final = Kind(
    _size, {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[0-9.]+ ?[kKMG]?i?B?$"}]}
)


def duration_of(*, in_ms: bool = False, zero: bool = True) -> Kind:
    """Return the kind of a duration with its unit, which becomes seconds or milliseconds."""

    def value(node: Node) -> float | int:
        text = _scalar(node)
        if text is None:
            raise _fault(node, f"{shown_kind(node)} is no length of time", "examples: 500ms, 10s, 2min")
        length_ms = parse_duration_ms(text)
        if not zero and length_ms <= 0:
            raise _fault(node, "this must be above 0 s", "examples: 500ms, 10s, 2min")
        return int(length_ms) if in_ms else float(length_ms / 1000)

    pattern = r"^(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})\s*(?:us|ms|s|min|h)$"
    return Kind(value, {"type": "string", "pattern": pattern})


def parsed_by(parse: Callable[[str], Any], *, also_number: bool = False) -> Kind:
    """Return the kind of a text for another parser of the program, whose errors get the line."""

    def value(node: Node) -> Any:
        text = _scalar(node)
        if text is None:
            raise _fault(node, f"{shown_kind(node)} is not a value")
        return parse(text)

    return Kind(value, {"type": ["string", "number", "boolean"] if also_number else "string"})


def list_of(item: Kind) -> Kind:
    """Return the kind of a list of values of one kind, at least one of them."""

    def value(node: Node) -> tuple[Any, ...]:
        if not isinstance(node.value, list) or not node.value:
            raise _fault(node, f"{shown_kind(node)} is not a list of 1 or more", "write each with a dash in front")
        return tuple(_gathered(partial(read, item, each) for each in node.items))

    return Kind(value, {"type": "array", "items": item.schema, "minItems": 1})


def named_by(item: Kind, names: Sequence[str] | None = None) -> Kind:
    """Return the kind of a mapping from these names, or any, to values of one kind, as pairs in order."""

    def named(name: str, node: Node) -> Any:
        if names is not None and name not in names:
            raise _fault(node, f"no such name: {name[:40]!r}", _meant(name, names))
        return read(item, node)

    def value(node: Node) -> tuple[tuple[str, Any], ...]:
        if not isinstance(node.value, dict) or not node.value:
            raise _fault(node, f"{shown_kind(node)} is no mapping of names to values")
        values = _gathered(partial(named, name, each) for name, each in node.parts.items())
        return tuple(zip(node.value, values, strict=True))

    schema: dict[str, Any] = {"type": "object", "additionalProperties": item.schema, "minProperties": 1}
    if names is not None:
        schema |= {"properties": dict.fromkeys(names, item.schema), "additionalProperties": False}
    return Kind(value, schema)


@dataclass(frozen=True, slots=True)
class SectionField:
    """One field of a section."""

    name: str
    kind: Kind
    about: str
    """A description on one line."""
    _: KW_ONLY
    required: bool = False
    target: str | None = None
    """The name of the argument that it becomes, None for that in the file with underscores."""


def section(what: str, parts: Sequence[SectionField], build: Callable[..., Any]) -> Kind:
    """Return the kind of a mapping with fixed fields, of which those that are present build a value.

    `what` is a noun for messages.
    """
    known = {each.name: each for each in parts}

    def part(name: str, node: Node) -> Any:
        if name not in known:
            raise _fault(node, f"{what} has no {name[:40]!r}", _meant(name, list(known)))
        return read(known[name].kind, node)

    def value(node: Node) -> Any:
        if not isinstance(node.value, dict):
            raise _fault(node, f"{what} is {shown_kind(node)}, not a mapping", f"it has {', '.join(known)}")
        missing = [each for each in parts if each.required and each.name not in node.value]
        lacks = [node.problem(f"{what} lacks {each.name!r}", f"{each.name}: {each.about}") for each in missing]
        values = _gathered((partial(part, *each) for each in node.parts.items()), faults=lacks)
        targets = [known[name].target or name.replace("-", "_") for name in node.value]
        try:
            return build(**dict(zip(targets, values, strict=True)))
        except UsageError as error:
            raise _fault(node, error.message, error.hint) from error

    schema = {
        "type": "object",
        "properties": {each.name: {**each.kind.schema, "description": each.about} for each in parts},
        "required": [each.name for each in parts if each.required],
        "additionalProperties": False,
    }
    return Kind(value, schema)


def _gathered(readers: Iterable[Callable[[], Any]], *, faults: Sequence[Diagnostic] = ()) -> list[Any]:
    """Return the value of every reader, or raise one error for all that some of them raise, and `faults`."""
    values: list[Any] = []
    found: list[Diagnostic] = []
    for reader in readers:
        try:
            values.append(reader())
        except DocumentError as error:
            found += error.problems
    found += faults
    if found:
        raise DocumentError(*sorted(found, key=lambda each: each.location.line or 0))
    return values


def read(kind: Kind, node: Node) -> Any:
    """Return the value of a node, and add its location to exceptions that have none."""
    try:
        return kind.read(node)
    except DocumentError:
        raise
    except UsageError as error:
        raise _fault(node, error.message, error.hint) from error


def _meant(name: str, known: Sequence[str]) -> str | None:
    return near_hint(name, known, otherwise=f"it has {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class InFile:
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
    more: Sequence[SectionField] = (),
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
        for setting in (note for note in notes if isinstance(note, InFile)):
            name = setting.name or each.name.replace("_", "-")
            required = setting.required or (each.default is MISSING and each.default_factory is MISSING)
            made = setting.kind or kind_of(kind)
            found.append(SectionField(name, made, setting.about, required=required, target=each.name))
    return section(what, found, build or record)


def setting_of(record: type[Any], name: str) -> tuple[str, Any]:
    """Return the description and the default of a field that has a setting."""
    hint = typing.get_type_hints(record, include_extras=True)[name]
    about = next(note.about for note in typing.get_args(hint) if isinstance(note, InFile))
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
