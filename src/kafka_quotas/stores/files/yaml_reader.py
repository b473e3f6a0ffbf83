"""One YAML document as nodes, read event by event.

A safe loader builds whatever a file says before anybody looks at it. Here every event is looked at first, so that a
hostile file ends at its first odd line: aliases, tags and several documents are refused, nesting is shallow, and a name
occurs once in a mapping. In a file of quotas, whose sections are named, a list of entries has to be one from its first
item on, and a value that is left empty is refused: it is an unset variable of a template more often than a null.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import yaml

from kafka_quotas.core.formats.nodes import DocumentError, LinedDict, LinedList, Node, Plain

MAX_DEPTH: Final = 6
MAX_DEPTH_OF_OTHERS: Final = 32
"""The depth of files of other tools, such as Kubernetes manifests."""
MAX_NAMES: Final = 10_000
"""Names in one mapping, and items in a list of anything but entries."""
MAX_ITEMS: Final = 1_000_000
"""Entries in one file."""
_ENTRY_HINT: Final = "an entry is {entity: {...}, quotas: {...}}"
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def yaml_node(text: str, source: str, *, sections: Sequence[str] = ()) -> Node:
    """Return the node of the only document in a text, of value None for a text without one.

    A file of quotas may begin its parts with the names of `sections` alone.
    """
    return _nodes(text, source, lambda reader: [reader.document()], sections=sections)[0]


def yaml_documents(text: str, source: str) -> Sequence[Node]:
    """Return the nodes of all documents in a text of another tool, which may be nested deeper than ours."""
    return _nodes(text, source, lambda reader: reader.documents(), max_depth=MAX_DEPTH_OF_OTHERS)


def _nodes(
    text: str,
    source: str,
    read: "Callable[[_Reader], list[Any]]",
    *,
    sections: Sequence[str] = (),
    max_depth: int = MAX_DEPTH,
) -> list[Node]:
    reader = _Reader(text, source, sections, max_depth)
    try:
        return [Node(value, source) for value in read(reader)]
    except RecursionError as error:
        raise DocumentError.at(source, "nested too deep") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "it can't be read"
        raise DocumentError.at(source, f"not YAML: {reason}", line=line) from error
    finally:
        reader.dispose()


class _Reader:
    def __init__(self, text: str, source: str, sections: Sequence[str], max_depth: int) -> None:
        self._max_depth = max_depth
        self._parser: Any = _LOADER(text)
        self._next: Callable[[], Any] = self._parser.get_event  # called a million times in a large file
        self._source = source
        self._sections = sections
        self.dispose: Callable[[], None] = self._parser.dispose

    def document(self) -> Any:
        self._next()
        if isinstance(self._parser.peek_event(), yaml.StreamEndEvent):
            return None
        self._next()
        value = self._value(self._next(), "", 0)
        self._next()
        last = self._next()
        if not isinstance(last, yaml.StreamEndEvent):
            raise self._problem(last, "a second document begins", "put every document into a file of its own")
        return value

    def documents(self) -> list[Any]:
        found: list[Any] = []
        self._next()
        while not isinstance(start := self._next(), yaml.StreamEndEvent):
            if len(found) >= MAX_NAMES:
                raise self._problem(start, "too many documents", "split the file")
            found.append(self._value(self._next(), "", 0))
            self._next()
        return found

    def _value(self, event: Any, name: str, depth: int) -> Any:
        if event.anchor is not None:  # an alias has one too
            hint = "use `values:` and $name instead" if self._sections else "write it out"
            raise self._problem(event, "anchors and aliases are not taken", hint)
        tag = event.tag
        if tag is not None and tag != "!":
            raise self._problem(event, f"tags are not taken: {str(tag)[:40]}", "leave it out")
        if isinstance(event, yaml.ScalarEvent):
            text: str = event.value
            if event.style or tag:  # "" or None is a word without quotes
                return text
            if not text and self._sections and depth:
                hint = "write null if that is intended; is a variable unset?"
                raise self._problem(event, "a value is left empty", hint)
            return Plain(text) if text else None
        if depth >= self._max_depth:
            raise self._problem(event, "nested too deep", _ENTRY_HINT if self._sections else None)
        if isinstance(event, yaml.SequenceStartEvent):
            is_entries = bool(self._sections) and (depth == 0 or (depth == 1 and name == "entries"))
            return self._items(event, depth, is_entries=is_entries)
        return self._parts(event, depth)

    def _items(self, start: Any, depth: int, *, is_entries: bool) -> LinedList:
        items = LinedList(start.start_mark.line + 1)
        scalar, most = yaml.ScalarEvent, MAX_ITEMS if is_entries else MAX_NAMES
        line, lines = items.line, items.lines
        event = self._next()
        while not isinstance(event, yaml.SequenceEndEvent):
            if len(items) >= most:
                raise self._problem(event, "too many items", "split the file")
            if is_entries and isinstance(event, yaml.SequenceStartEvent):
                raise self._problem(event, "an entry is not a mapping", _ENTRY_HINT)
            is_scalar = isinstance(event, scalar)
            # A plain word needs none of the checks of `_value`, a call of which a million words would notice.
            if is_scalar and event.value and not (event.style or event.tag or event.anchor):
                value: Any = Plain(event.value)
            else:
                value = self._value(event, "", depth + 1)
            if is_scalar and event.start_mark.line + 1 != line:
                if lines is None:
                    lines = items.lines = {}
                lines[len(items)] = event.start_mark.line + 1
            items.append(value)
            event = self._next()
        return items

    def _parts(self, start: Any, depth: int) -> LinedDict:
        parts = LinedDict(start.start_mark.line + 1)
        event: Any = self._next()
        while not isinstance(event, yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.anchor is not None:
                raise self._problem(event, "a name is not a plain text")
            name: str = event.value
            if name == "<<" and not event.style:
                raise self._problem(event, "merge keys (<<) are not taken", "use `defaults:` and `values:` instead")
            if name in parts:
                raise self._problem(event, f"{name[:40]!r} appears twice", "keep one of them")
            if self._sections and depth == 0 and name not in self._sections:
                hint = f"the sections are {', '.join(self._sections)}"
                raise self._problem(event, f"unknown section: {name[:40]!r}", hint)
            if len(parts) >= MAX_NAMES:
                raise self._problem(start, "too many names in one mapping")
            event = self._next()
            value = self._value(event, name, depth + 1)
            if not isinstance(value, (list, dict)) and (line := event.start_mark.line + 1) != parts.line:
                if parts.lines is None:
                    parts.lines = {}
                parts.lines[name] = line
            parts[name] = value
            event = self._next()
        return parts

    def _problem(self, event: Any, message: str, hint: str | None = None) -> DocumentError:
        return DocumentError.at(self._source, message, line=event.start_mark.line + 1, hint=hint)
