"""One YAML document, read event by event, with the line of everything that is refused.

A safe loader builds whatever a file says before anybody looks at it. Here every event is looked at first, so that a
hostile file ends at its first odd line: aliases, tags and several documents are refused, and a name occurs once in a
mapping. What a value means, and how much a file may hold, is the matter of a format's own reader.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import yaml

from kafka_quotas.core.quota_files.document import Diagnostic, QuotaFileError, SourceLocation


class YamlReader:
    """The values of a document: texts, lists and dicts, until a format's reader makes more of them."""

    anchor_hint: ClassVar[str] = "write it out"

    def __init__(self, text: str, source: str, *, loader: Any = yaml.SafeLoader) -> None:
        self._parser = loader(text)
        self._next: Callable[[], Any] = self._parser.get_event  # called a million times in a large file
        self._source = source

    def read(self) -> Any:
        """Return the value of the only document, None for a file without one.

        Raises:
            QuotaFileError: The text is not YAML, or holds what the format refuses.
        """
        try:
            return self._document()
        except RecursionError as error:
            location = SourceLocation(source=self._source)
            raise QuotaFileError(Diagnostic(location=location, message="nested too deep")) from error
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            location = SourceLocation(source=self._source, line=None if mark is None else mark.line + 1)
            reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "it can't be read"
            raise QuotaFileError(Diagnostic(location=location, message=f"not YAML: {reason}")) from error
        finally:
            self._parser.dispose()

    def scalar(self, event: Any, depth: int) -> Any:  # noqa: ARG002 - the depth is for formats
        """Return the value of a word or a quoted text."""
        return event.value

    def check_item(self, event: Any, count: int, *, entries: bool) -> None:
        """Refuse the item that begins after `count` others in a list, of entries or of anything else."""

    def check_part(self, start: Any, event: Any, count: int, depth: int) -> None:
        """Refuse the name that comes after `count` others in the mapping that began with `start`."""

    def name(self, event: Any) -> str:
        """Return the name in front of a colon."""
        if not isinstance(event, yaml.ScalarEvent) or event.anchor is not None:
            raise self.problem(event, "a name is not a plain text")
        return str(event.value)

    def value(self, event: Any, depth: int, name: str = "") -> Any:
        """Return the value that begins with an event, `depth` collections deep and under a name if any."""
        if event.anchor is not None:  # an alias has one too
            raise self.problem(event, "anchors and aliases are not taken", self.anchor_hint)
        if event.tag is not None and event.tag != "!":
            raise self.problem(event, f"tags are not taken: {str(event.tag)[:40]}", "leave it out")
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(depth, entries=depth == 0 or (depth == 1 and name == "entries"))
        return self._mapping(event, depth)

    def problem(self, event: Any, message: str, hint: str | None = None) -> QuotaFileError:
        """Return the error for the line on which an event begins."""
        return QuotaFileError(Diagnostic(location=self.location(event), message=message, hint=hint))

    def location(self, event: Any) -> SourceLocation:
        """Return the line on which an event begins, counted from 1."""
        return SourceLocation(source=self._source, line=event.start_mark.line + 1)

    def _document(self) -> Any:
        self._next()
        if isinstance(self._parser.peek_event(), yaml.StreamEndEvent):
            return None
        self._next()
        value = self.value(self._next(), 0)
        self._next()
        last = self._next()
        if not isinstance(last, yaml.StreamEndEvent):
            raise self.problem(last, "a second document begins", "put every document into a file of its own")
        return value

    def _list(self, depth: int, *, entries: bool) -> list[Any]:
        items: list[Any] = []
        event = self._next()
        while not isinstance(event, yaml.SequenceEndEvent):
            self.check_item(event, len(items), entries=entries)
            items.append(self.value(event, depth + 1))
            event = self._next()
        return items

    def _mapping(self, start: Any, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        event = self._next()
        while not isinstance(event, yaml.MappingEndEvent):
            name = self.name(event)
            if name in mapping:
                raise self.problem(event, f"{name[:40]!r} appears twice", "keep one of them")
            self.check_part(start, event, len(mapping), depth)
            mapping[name] = self.value(self._next(), depth + 1, name)
            event = self._next()
        return mapping
