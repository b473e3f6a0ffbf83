"""Parts of files that know their lines: nodes, their locations, and what is wrong with them.

JSON and TOML are read here. The parser of YAML is in `stores.files.yaml_reader`, as this room uses the standard library
only. JSON has no lines: its locations are paths such as `entries.2.quotas`.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Self

from kafka_quotas.core.described import Described
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.formats.documents import load_json, load_toml

_SHOWN_PROBLEMS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLocation:
    """A line of a file, and the path of a value such as `entries.2.quotas` (items count from 1)."""

    source: str
    line: int | None = None
    path: str = ""

    @property
    def place(self) -> str:
        """The file and the line."""
        return self.source if self.line is None else f"{self.source}:{self.line}"

    @property
    def entry(self) -> Annotated[int | None, Described(text="its number in the file, from 1")]:
        """The number of the entry in a file of quotas."""
        match = re.match(r"entries\.(\d+)", self.path)
        return int(match[1]) if match else None

    def __str__(self) -> str:
        return f"{self.place}: {self.path}" if self.path else self.place


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """A problem at a location of a file, and the advice on it."""

    DOCUMENT: ClassVar = "file=location.source location.line location.entry message hint"
    location: SourceLocation
    message: str
    hint: str | None = None

    def as_error(self) -> UsageError:
        """Return the problem as the error that ends a command."""
        return UsageError(f"{self.location}: {self.message}", hint=self.hint)


class DocumentError(UsageError):
    """A file that can't be used, with everything that is wrong with it in `problems`."""

    def __init__(self, *problems: Diagnostic) -> None:
        first, count = problems[0].as_error(), len(problems) - 1
        super().__init__(first.message + (f" (and {count} more)" if count else ""), hint=first.hint)
        self.problems = problems

    @classmethod
    def at(cls, source: str, message: str, *, line: int | None = None, hint: str | None = None) -> Self:
        """Return the error for one problem with a file, or with a line of it."""
        return cls(Diagnostic(location=SourceLocation(source=source, line=line), message=message, hint=hint))

    @property
    def parts(self) -> tuple[KafkaQuotasError, ...]:
        """The first problems as an error each, and a last one that counts the others."""
        shown = [problem.as_error() for problem in self.problems[:_SHOWN_PROBLEMS]]
        left = len(self.problems) - len(shown)
        return (*shown, UsageError(f"and {left} more problems")) if left else tuple(shown)


class Plain(str):
    """A word of YAML without quotes, whose meaning depends on the type that takes it."""

    __slots__ = ()


class LinedDict(dict[str, Any]):
    """A mapping of YAML with its line, and the lines of its scalars that begin on others."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str | int, int] | None = None


class LinedList(list[Any]):
    """A list of YAML with its line, and the lines of its scalars that begin on others."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str | int, int] | None = None


class Node:
    """A part of a file: a scalar, a mapping or a list, with its place among the others.

    Only parts that are looked at become nodes, as a file may have a million.
    """

    __slots__ = ("lines", "name", "parent", "source", "value")

    def __init__(
        self,
        value: Any,
        source: str,
        parent: "Node | None" = None,
        name: str | int = "",
        *,
        lines: Mapping[str, int] | None = None,
    ) -> None:
        """Make the node of a file, with the lines of its parts by their paths, or of a part of another node."""
        self.value = value
        self.name = name
        self.parent = parent
        self.source = source
        self.lines = lines

    @property
    def parts(self) -> "dict[str, Node]":
        """The parts of a mapping by name."""
        return {name: self.at(name) for name in self.value}

    @property
    def items(self) -> "Iterator[Node]":
        """The items of a list."""
        return map(self.at, range(len(self.value)))

    def at(self, name: str | int) -> "Node":
        """Return the part of this name, or the item at this index."""
        return Node(self.value[name], self.source, self, name, lines=self.lines)

    @property
    def location(self) -> SourceLocation:
        """The location of the value, whose line is that of the nearest part around it that has one."""
        path, line, node = "", None, self
        while True:
            if line is None and isinstance(node.value, LinedDict | LinedList):
                line = node.value.line
            if node.parent is None:
                break
            holder = node.parent.value
            if line is None and isinstance(holder, LinedDict | LinedList) and holder.lines is not None:
                line = holder.lines.get(node.name)
            name = node.name if isinstance(node.name, str) else str(node.name + 1)
            path = f"{name}.{path}" if path else name
            node = node.parent
        return SourceLocation(source=self.source, line=self._line_at(path) if line is None else line, path=path)

    def _line_at(self, path: str) -> int | None:
        lines = self.lines or {}
        while path and path not in lines:
            path = path.rpartition(".")[0]
        return lines.get(path)

    def problem(self, message: str, hint: str | None = None) -> Diagnostic:
        """Return a problem with this part."""
        return Diagnostic(location=self.location, message=message, hint=hint)

    def part(self, path: str) -> "Node | None":
        """Return the node at a path of names below this one, such as `listener.internal`, or None."""
        node: Node | None = self
        for name in path.split("."):
            node = node.parts.get(name) if node is not None and isinstance(node.value, dict) else None
        return node

    def plain(self) -> Any:
        """Return the value with everything below it as plain lists, mappings, texts, numbers and truths."""
        return _plain(self.value)


def _plain(value: Any) -> Any:
    if isinstance(value, Plain):
        return word_value(value)
    if isinstance(value, LinedDict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, LinedList) else value


_BEGINNINGS: Final = frozenset("nN~tTfF+-.0123456789")
_NULLS: Final = {"null", "Null", "NULL", "~"}
_TRUTHS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_WHOLE: Final = re.compile(r"[-+]?[0-9]{1,400}")
_FRACTION: Final = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = {".nan": math.nan, ".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf}


def word_value(word: str) -> object:
    """Return the value of a word without quotes by the core schema of YAML 1.2, in which `no` is a text."""
    if word[:1] not in _BEGINNINGS:
        return str(word)
    if word in _NULLS:
        return None
    if word in _TRUTHS:
        return _TRUTHS[word]
    if _WHOLE.fullmatch(word):
        return int(word)
    if _FRACTION.fullmatch(word):
        return float(word)
    return _NOT_FINITE.get(word.lower(), str(word))


def is_null(value: str) -> bool:
    """Return whether a text is a word without quotes that means null."""
    return isinstance(value, Plain) and value in _NULLS


def shown(value: object) -> str:
    """Return a value as short text on one line for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1] if isinstance(value, str) else ''}"


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


def shown_kind(node: Node) -> str:
    """Return a short scalar as it is written, or the type of anything else."""
    value = word_value(node.value) if isinstance(node.value, Plain) else node.value
    return shown(value) if isinstance(value, str | int | float) else kind_of(value)


def json_node(text: str, source: str) -> Node:
    """Return the node of a JSON text, in which a name occurs once in an object."""
    import json  # noqa: PLC0415 - one format of several

    try:
        return Node(load_json(text, object_pairs_hook=_once), source)
    except json.JSONDecodeError as error:
        raise DocumentError.at(source, f"not JSON: {error.msg}", line=error.lineno) from error
    except ValueError as error:
        text_of = str(error) if "twice" in str(error) or "deep" in str(error) else "a number has too many digits"
        raise DocumentError.at(source, text_of, hint="keep one of them" if "twice" in text_of else None) from error


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"{shown(twice)} appears twice")
    return found


def toml_node(text: str, source: str, *, hint: str | None = None) -> Node:
    """Return the node of a TOML text, with the lines of tables and entries in the usual layout."""
    try:
        tables = load_toml(text)
    except ValueError as error:
        place = re.search(r"\(at line (\d+)", str(error))
        raise DocumentError.at(
            source, f"not TOML: {error}", line=int(place[1]) if place else None, hint=hint
        ) from error
    return Node(tables, source, lines=_toml_lines(text))


_PART: Final = r"(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')"
_PATH: Final = rf"({_PART}(?:\s*\.\s*{_PART})*)"
_HEADER: Final = re.compile(rf"\s*(\[\[?)\s*{_PATH}\s*\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(rf"\s*{_PATH}\s*=")


def _toml_lines(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    counts: Counter[str] = Counter()
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            section = _plain_path(header[2])
            if header[1] == "[[":
                counts[section] += 1
                found.setdefault(section, number)
                section = f"{section}.{counts[section]}"
            else:  # a table in the last of an array of tables
                section = ".".join(_in_last(section.split("."), counts))
            found.setdefault(section.partition(".")[0], number)
            found.setdefault(section, number)
        elif key:
            found.setdefault(f"{section}.{_plain_path(key[1])}".removeprefix("."), number)
    return found


def _in_last(names: Sequence[str], counts: Mapping[str, int]) -> Iterator[str]:
    for at, name in enumerate(names):
        yield name
        count = counts.get(".".join(names[: at + 1]), 0)
        if count and at + 1 < len(names):
            yield str(count)


def _plain_path(text: str) -> str:
    return ".".join(part.strip("\"'") for part in re.findall(_PART, text))
