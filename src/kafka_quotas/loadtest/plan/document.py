"""The kinds of fields that scenario files have: how each is read, and what the JSON schema says of it.

Each function returns the metadata of a record's field, from its description, for `core.formats.typed_document`. Names
of a file have dashes.
"""

import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias

from kafka_quotas.core.errors import UsageError, near_hint
from kafka_quotas.core.formats.typed_document import FieldSpec, schema_of
from kafka_quotas.core.model.value_format import parse_bytes, parse_duration_ms

NOT_IN_FILE: Final = FieldSpec(name="")
Word: TypeAlias = str | float | bool
"""The type in a file of a text that may look like a number or a truth."""
_DURATION: Final = r"^(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})\s*(?:us|ms|s|min|h)$"
_SIZE: Final = "^[0-9.]+ ?[kKMG]?i?B?$"


class InScenario:
    """The base of records that are sections of a scenario file."""

    __slots__ = ()
    dashed_names: ClassVar = True


def text(about: str, pattern: str, example: str, **more: Any) -> FieldSpec:
    """Return the kind of a text that matches a pattern."""

    def read(value: str) -> str:
        if not re.fullmatch(pattern, value, re.ASCII):
            raise UsageError(f"{value[:60]!r} is not what belongs here")
        return value

    return FieldSpec(read, example=example, about=about, schema={"pattern": f"^(?:{pattern})$"}, **more)


def word(
    about: str,
    *words: str,
    build: Callable[[str], Any] = str,
    removed: Mapping[str, str] = MappingProxyType({}),
    **more: Any,
) -> FieldSpec:
    """Return the kind of one of a list of words, of which `removed` answers earlier ones."""

    def read(value: object) -> Any:
        if str(value) not in words:
            hint = removed.get(str(value))
            raise UsageError(f"{value!r} is not one of {', '.join(words)}", hint=hint)
        return build(str(value))

    listed = [int(each) if each.isdigit() else each for each in words]
    return FieldSpec(read, takes=str | int, about=about, schema={"enum": listed}, **more)


def whole(about: str, *, least: int = 1, most: int = 1_000_000_000, **more: Any) -> FieldSpec:
    """Return the kind of a whole number between two bounds."""

    def read(value: int) -> int:
        if not least <= value <= most:
            raise UsageError(f"{value} is out of range", hint=f"{least} to {most}")
        return value

    return FieldSpec(read, takes=int, about=about, schema={"minimum": least, "maximum": most}, **more)


def share(about: str) -> FieldSpec:
    """Return the kind of a number above 0 and up to 1."""

    def read(value: float) -> float:
        if not 0 < value <= 1:
            raise UsageError(f"{value:g} is not a number above 0 and up to 1")
        return value

    return FieldSpec(read, about=about, schema={"exclusiveMinimum": 0, "maximum": 1})


def _bytes(value: object) -> int:
    size = parse_bytes(str(value))
    if size < 1 or size.denominator != 1:
        raise UsageError(f"{value} is not a size of 1 byte or more")
    return int(size)


size: Final = partial(
    FieldSpec, _bytes, takes=str | int, example="100, 1KiB, 64kB", schema={"pattern": _SIZE, "minimum": 1}
)
"""Returns the kind of a size in bytes, from its unit or without one."""


def duration(about: str, *, in_ms: bool = False, zero: bool = True, **more: Any) -> FieldSpec:
    """Return the kind of a duration with its unit, which becomes seconds or milliseconds."""

    def read(value: str) -> float:
        length_ms = parse_duration_ms(value)
        if not zero and length_ms <= 0:
            raise UsageError("this must be above 0 s")
        return int(length_ms) if in_ms else float(length_ms / 1000)

    example = "500ms, 10s, 2min"
    return FieldSpec(read, takes=str, example=example, about=about, schema={"pattern": _DURATION}, **more)


def parsed(about: str, parse: Callable[[str], Any], **more: Any) -> FieldSpec:
    """Return the kind of a word for another parser, whose errors get the line."""
    return FieldSpec(lambda value: parse(str(value)), takes=Word, about=about, **more)


def some(about: str, read: Callable[[Any], Any] = tuple, **more: Any) -> FieldSpec:
    """Return the kind of a list with one item or more."""

    def checked(items: tuple[Any, ...]) -> Any:
        if not items:
            raise UsageError("this is not a list of 1 or more", hint="write each with a dash in front")
        return read(items)

    return FieldSpec(checked, about=about, schema={"minItems": 1}, **more)


def named(
    about: str,
    names: tuple[str, ...] = (),
    *,
    item: Any = Word,
    read: Callable[[tuple[tuple[str, Any], ...]], Any] = tuple,
    **more: Any,
) -> FieldSpec:
    """Return the kind of a mapping from these names, or any, to words, which is read as pairs in order."""

    def pairs(values: Mapping[str, Any]) -> Any:
        if not values:
            raise UsageError("this is not a mapping of names to values")
        for name in values if names else ():
            if name not in names:
                hint = near_hint(name, names, otherwise=f"it has {', '.join(names)}")
                raise UsageError(f"no such name: {name[:40]!r}", hint=hint)
        return read(tuple((name, value if value is None else str(value)) for name, value in values.items()))

    schema: dict[str, Any] = {"minProperties": 1}
    if names:
        schema |= {"properties": dict.fromkeys(names, schema_of(item)), "additionalProperties": False}
    return FieldSpec(pairs, takes=Mapping[str, item], about=about, schema=schema, **more)


def setting_of(record: type[Any], name: str) -> tuple[str, Any]:
    """Return the description and the default of a field."""
    hint = typing.get_type_hints(record, include_extras=True)[name]
    about = next(note.about for note in typing.get_args(hint) if isinstance(note, FieldSpec))
    return about, next(each.default for each in fields(record) if each.name == name)
