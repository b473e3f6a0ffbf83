"""YAML as plain values, from the events of libyaml's parser (or PyYAML's own where that is missing).

A safe loader builds whatever a file says before anybody looks at it. Here every event is looked at first, so that a
hostile file ends at its first odd line: aliases, tags and several documents are refused, nesting is shallow, and what
should be a list of entries has to be one from its first item on.

Plain words are read as the YAML 1.2 core schema has them (`no` is a text), but a value that is left empty is refused:
it is an unset variable of a template more often than a null.
"""

import math
import re
from collections.abc import Callable
from typing import Any, Final

import yaml

from kafka_quotas.core.quota_files.document import SECTIONS, Diagnostic, QuotaFileError, SourceLocation

MAX_DEPTH: Final = 6
MAX_NAMES: Final = 10_000
"""Names in one mapping."""
MAX_ITEMS: Final = 1_000_000
"""Entries in one file."""
_ENTRY_HINT: Final = "an entry is {entity: {...}, quotas: {...}}"
_NULLS: Final = {"null", "Null", "NULL", "~"}
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_WHOLE: Final = re.compile(r"[-+]?[0-9]{1,400}")
_FRACTION: Final = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = {".nan": math.nan, ".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf}


def read_yaml(text: str, source: str) -> tuple[object, list[int]]:
    """Return the plain values in a text, and the lines on which its entries begin.

    Raises:
        QuotaFileError: The text is not YAML, or uses features that no file of quotas needs.
    """
    reader = _Reader(text, source)
    try:
        return reader.document(), reader.lines
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = SourceLocation(source=source, line=None if mark is None else mark.line + 1)
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "it can't be read"
        raise QuotaFileError(Diagnostic(place=place, message=f"not YAML: {reason}")) from error
    finally:
        reader.close()


class _Reader:
    """Pulls events and builds values of them."""

    def __init__(self, text: str, source: str) -> None:
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self._parser = loader(text)
        self._next: Callable[[], Any] = self._parser.get_event  # called a million times in a large file
        self._source = source
        self._bare_list = False
        self.lines: list[int] = []

    def document(self) -> object:
        """Return the value of the only document, an empty list for an empty file."""
        self._next()
        if isinstance(self._parser.peek_event(), yaml.StreamEndEvent):
            return []
        self._next()
        event = self._next()
        self._bare_list = isinstance(event, yaml.SequenceStartEvent)
        value = self._value(event, depth=0, entries=self._bare_list)
        if value is None:
            value = []
        self._next()
        last = self._next()
        if not isinstance(last, yaml.StreamEndEvent):
            raise self._problem(last, "a second document begins", "put every document into a file of its own")
        return value

    def close(self) -> None:
        """Release the parser."""
        self._parser.dispose()

    def _value(self, event: Any, *, depth: int, entries: bool = False) -> object:
        """Return the value that begins with an event.

        `entries` marks the list of entries.
        """
        if event.anchor is not None:  # an alias has one too
            raise self._problem(event, "anchors and aliases are not taken", "use `values:` and $name instead")
        if event.tag is not None and event.tag != "!":
            raise self._problem(event, f"tags are not taken: {str(event.tag)[:40]}", "leave it out")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, may_be_empty=depth == 0)
        if depth >= MAX_DEPTH:
            raise self._problem(event, "nested too deep", _ENTRY_HINT)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(depth=depth, entries=entries)
        return self._mapping(event, depth=depth)

    def _list(self, *, depth: int, entries: bool) -> list[object]:
        items: list[object] = []
        event = self._next()
        while not isinstance(event, yaml.SequenceEndEvent):
            if entries:
                if not isinstance(event, (yaml.MappingStartEvent, yaml.AliasEvent, yaml.ScalarEvent)):
                    raise self._problem(event, "an entry is not a mapping", _ENTRY_HINT)
                self.lines.append(_line(event))
            if len(items) >= (MAX_ITEMS if entries else MAX_NAMES):
                raise self._problem(event, "too many items", "split the file")
            items.append(self._value(event, depth=depth + 1))
            event = self._next()
        return items

    def _mapping(self, start: Any, *, depth: int) -> dict[str, object]:
        mapping: dict[str, object] = {}
        event = self._next()
        while not isinstance(event, yaml.MappingEndEvent):
            name = self._name(event)
            if name in mapping:
                raise self._problem(event, f"{name[:40]!r} stands twice", "keep one of them")
            if depth == 0 and name not in SECTIONS:
                raise self._problem(event, f"no part of a file: {name[:40]!r}", f"it has {', '.join(SECTIONS)}")
            if len(mapping) >= MAX_NAMES:
                raise self._problem(start, "too many names in one mapping")
            mapping[name] = self._value(self._next(), depth=depth + 1, entries=depth == 0 and name == "entries")
            event = self._next()
        return mapping

    def _name(self, event: Any) -> str:
        """Return the name in front of a colon, always as a text."""
        if not isinstance(event, yaml.ScalarEvent) or event.anchor is not None:
            raise self._problem(event, "a name is not a plain text")
        if event.value == "<<" and not event.style:
            raise self._problem(event, "merge keys (<<) are not taken", "use `defaults:` and `values:` instead")
        return str(event.value)

    def _scalar(self, event: Any, *, may_be_empty: bool) -> object:
        text: str = event.value
        if event.style or event.tag == "!":  # "" or None is a word without quotes
            return text
        if not text:
            if may_be_empty:
                return None
            raise self._problem(event, "a value is left empty", "write null if that is meant; is a variable unset?")
        return _plain_value(text)

    def _problem(self, event: Any, message: str, hint: str | None = None) -> QuotaFileError:
        place = SourceLocation(source=self._source, line=_line(event))
        return QuotaFileError(Diagnostic(place=place, message=message, hint=hint))


def _line(event: Any) -> int:
    """Return the line an event begins on, counted from 1."""
    line: int = event.start_mark.line
    return line + 1


def _plain_value(text: str) -> object:
    """Convert a word without quotes to its value."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _FRACTION.fullmatch(text):
        return float(text)
    return _NOT_FINITE.get(text.lower(), text)
