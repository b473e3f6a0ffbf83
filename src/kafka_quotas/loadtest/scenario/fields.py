"""The kinds of value a scenario file may hold: how each is read, and how a JSON schema describes it.

Contract: `read` raises `ScenarioError` with the line for anything else; `schema` allows what `read` takes. Parser and
published schema come from the same tables, so that neither can know a field that the other lacks.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Protocol

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.time_format import parse_duration_ms
from kafka_quotas.core.model.units import parse_bytes
from kafka_quotas.loadtest.scenario.yaml_tree import ScenarioError, YamlNode

_WHOLE: Final = re.compile(r"\d{1,12}", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,12}(?:\.\d{1,9})?|\.\d{1,9}", re.ASCII)
_TRUTHS: Final = {"true": True, "false": False}


class FieldKind(Protocol):
    """A kind of value."""

    def read(self, node: YamlNode) -> Any:
        """The value that stands there."""
        ...

    def schema(self) -> dict[str, Any]:
        """What a JSON schema says of it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text of one line or more, by a pattern if there is one; `null` is taken where it means something."""

    pattern: str = r"[\s\S]+"
    example: str = "some text"
    nullable: bool = False

    def read(self, node: YamlNode) -> str | None:
        """The text."""
        if node.value is None and self.nullable:
            return None
        if not isinstance(node.value, str) or not re.fullmatch(self.pattern, node.value, re.ASCII):
            raise node.problem(f"not what is wanted here: {node.kind}", f"example: {self.example}")
        return node.value

    def schema(self) -> dict[str, Any]:
        """A string, or null."""
        kinds = ["string", "null"] if self.nullable else ["string"]
        return {"type": kinds if self.nullable else "string", "pattern": f"^(?:{self.pattern})$"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One of some words; `build` makes of it what the program uses."""

    words: Sequence[str]
    build: Callable[[str], Any] = str

    def read(self, node: YamlNode) -> Any:
        """The word."""
        if not isinstance(node.value, str) or node.value not in self.words:
            raise node.problem(f"{node.kind} is none of the words for this", f"one of: {', '.join(self.words)}")
        return self.build(node.value)

    def schema(self) -> dict[str, Any]:
        """An enumeration."""
        return {"enum": [int(word) if word.isdigit() else word for word in self.words]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """True or false."""

    def read(self, node: YamlNode) -> bool:
        """The truth."""
        if not isinstance(node.value, str) or node.value not in _TRUTHS:
            raise node.problem(f"{node.kind} is neither true nor false")
        return _TRUTHS[node.value]

    def schema(self) -> dict[str, Any]:
        """A boolean."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A whole number from `lowest` to `highest`."""

    lowest: int = 1
    highest: int = 1_000_000_000

    def read(self, node: YamlNode) -> int:
        """The number."""
        text = node.value
        if not isinstance(text, str) or not _WHOLE.fullmatch(text):
            raise node.problem(f"{node.kind} is no whole number")
        if not self.lowest <= int(text) <= self.highest:
            raise node.problem(f"{text} is out of range", f"{self.lowest} to {self.highest}")
        return int(text)

    def schema(self) -> dict[str, Any]:
        """An integer with bounds."""
        return {"type": "integer", "minimum": self.lowest, "maximum": self.highest}


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A number above 0 and at most 1."""

    def read(self, node: YamlNode) -> float:
        """The number."""
        text = node.value
        if not isinstance(text, str) or not _NUMBER.fullmatch(text) or not 0 < float(text) <= 1:
            raise node.problem(f"{node.kind} is no number above 0 and up to 1")
        return float(text)

    def schema(self) -> dict[str, Any]:
        """A number with bounds."""
        return {"type": "number", "exclusiveMinimum": 0, "maximum": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Bytes with a unit, whole."""

    def read(self, node: YamlNode) -> int:
        """The bytes."""
        size = parse_bytes(_text_of(node)) if isinstance(node.value, str) else 0
        if size < 1 or size.denominator != 1:
            raise node.problem(f"{node.kind} is no size of 1 byte or more", "examples: 100, 1KiB, 64kB")
        return int(size)

    def schema(self) -> dict[str, Any]:
        """A number, or a text with a unit."""
        return {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[0-9.]+ ?[kKMG]?i?B?$"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """A length of time with its unit, in seconds; `in_ms` in milliseconds."""

    in_ms: bool = False
    zero: bool = True

    def read(self, node: YamlNode) -> float | int:
        """The length of time."""
        if not isinstance(node.value, str):
            raise node.problem(f"{node.kind} is no length of time", "examples: 500ms, 10s, 2min")
        length_ms = parse_duration_ms(node.value)
        if not self.zero and length_ms <= 0:
            raise node.problem("this must be above 0 s", "examples: 500ms, 10s, 2min")
        return int(length_ms) if self.in_ms else float(length_ms / 1000)

    def schema(self) -> dict[str, Any]:
        """A text with a unit."""
        return {"type": "string", "pattern": r"^(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})\s*(?:us|ms|s|min|h)$"}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text that another part of the program reads; what it raises gets the line."""

    parse: Callable[[str], Any]
    _: KW_ONLY
    also_number: bool = False

    def read(self, node: YamlNode) -> Any:
        """What the text means."""
        return self.parse(_text_of(node))

    def schema(self) -> dict[str, Any]:
        """A text, or also a number or a truth."""
        return {"type": ["string", "number", "boolean"] if self.also_number else "string"}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of values of one kind, at least `least` of them."""

    item: FieldKind
    _: KW_ONLY
    least: int = 1

    def read(self, node: YamlNode) -> tuple[Any, ...]:
        """The values."""
        if not isinstance(node.value, tuple) or len(node.value) < self.least:
            raise node.problem(f"{node.kind} is no list of {self.least} or more", "write each with a dash in front")
        return tuple(read(self.item, item) for item in node.value)

    def schema(self) -> dict[str, Any]:
        """An array."""
        return {"type": "array", "items": self.item.schema(), "minItems": self.least}


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A mapping of names of one's own to values of one kind, read into pairs in order."""

    item: FieldKind
    names: Sequence[str] | None = None

    def read(self, node: YamlNode) -> tuple[tuple[str, Any], ...]:
        """The pairs."""
        if not isinstance(node.value, Mapping) or not node.value:
            raise node.problem(f"{node.kind} is no mapping of names to values")
        for name, value in node.value.items():
            if self.names is not None and name not in self.names:
                raise value.problem(f"no such name: {name[:40]!r}", _meant(name, self.names))
        return tuple((name, read(self.item, value)) for name, value in node.value.items())

    def schema(self) -> dict[str, Any]:
        """An object."""
        if self.names is None:
            return {"type": "object", "additionalProperties": self.item.schema(), "minProperties": 1}
        properties = {name: self.item.schema() for name in self.names}
        return {"type": "object", "properties": properties, "additionalProperties": False, "minProperties": 1}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a section: its name in the file, its kind, one line about it, and its name in the program."""

    name: str
    kind: FieldKind
    about: str
    _: KW_ONLY
    required: bool = False
    attribute: str | None = None

    @property
    def target(self) -> str:
        """The argument that it becomes."""
        return self.attribute or self.name.replace("-", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A mapping with fixed fields; `build` makes a value of those that stand there."""

    what: str
    fields: tuple[Field, ...]
    build: Callable[..., Any]

    def read(self, node: YamlNode) -> Any:
        """The value."""
        if not isinstance(node.value, Mapping):
            raise node.problem(f"{self.what} is {node.kind}, not a mapping", f"it has {self._names()}")
        known = {field.name: field for field in self.fields}
        for name, part in node.value.items():
            if name not in known:
                raise part.problem(f"{self.what} has no {name[:40]!r}", _meant(name, list(known)))
        for field in self.fields:
            if field.required and field.name not in node.value:
                raise node.problem(f"{self.what} lacks {field.name!r}", f"{field.name}: {field.about}")
        values = {known[name].target: read(known[name].kind, part) for name, part in node.value.items()}
        try:
            return self.build(**values)
        except UsageError as error:
            raise node.problem(error.message, error.hint) from error

    def schema(self) -> dict[str, Any]:
        """An object without other properties."""
        return {
            "type": "object",
            "properties": {field.name: {**field.kind.schema(), "description": field.about} for field in self.fields},
            "required": [field.name for field in self.fields if field.required],
            "additionalProperties": False,
        }

    def _names(self) -> str:
        return ", ".join(field.name for field in self.fields)


def read(kind: FieldKind, node: YamlNode) -> Any:
    """The value of a kind at a node; errors of the readers that know no lines get the node's."""
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


def _meant(name: str, known: Sequence[str]) -> str:
    """The hint about a name that is not known: the nearest that is, or all."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"is {near[0]} meant?" if near else f"it has {', '.join(known)}"
