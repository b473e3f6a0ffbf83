"""Quota files in YAML as plain values, from the events of libyaml's parser (or PyYAML's own where that is missing).

Nesting is shallow, and what should be a list of entries has to be one from its first item on. Plain words are read as
the YAML 1.2 core schema has them (`no` is a text), but a value that is left empty is refused: it is an unset variable
of a template more often than a null.
"""

import math
import re
from typing import Any, Final

import yaml

from kafka_quotas.core.quota_files.document import SECTIONS
from kafka_quotas.stores.files.yaml_reader import YamlReader

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
    """Return the plain values in a text, and the lines on which its entries begin."""
    reader = _QuotaReader(text, source, loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    value = reader.read()
    return [] if value is None else value, reader.lines


class _QuotaReader(YamlReader):
    """Builds the values of a quota file, within its limits."""

    anchor_hint = "use `values:` and $name instead"

    def __init__(self, text: str, source: str, *, loader: Any) -> None:
        super().__init__(text, source, loader=loader)
        self.lines: list[int] = []

    def value(self, event: Any, depth: int, name: str = "") -> object:
        nested = isinstance(event, yaml.CollectionStartEvent) and not event.anchor and event.tag in (None, "!")
        if nested and depth >= MAX_DEPTH:
            raise self.problem(event, "nested too deep", _ENTRY_HINT)
        return super().value(event, depth, name)

    def scalar(self, event: Any, depth: int) -> object:
        text: str = event.value
        if event.style or event.tag == "!":  # "" or None is a word without quotes
            return text
        if text:
            return _plain_value(text)
        if depth == 0:
            return None
        raise self.problem(event, "a value is left empty", "write null if that is intended; is a variable unset?")

    def name(self, event: Any) -> str:
        name = super().name(event)
        if name == "<<" and not event.style:
            raise self.problem(event, "merge keys (<<) are not taken", "use `defaults:` and `values:` instead")
        return name

    def check_item(self, event: Any, count: int, *, entries: bool) -> None:
        if entries:
            self.lines.append(event.start_mark.line + 1)
            if not isinstance(event, (yaml.MappingStartEvent, yaml.AliasEvent, yaml.ScalarEvent)):
                raise self.problem(event, "an entry is not a mapping", _ENTRY_HINT)
        if count >= (MAX_ITEMS if entries else MAX_NAMES):
            raise self.problem(event, "too many items", "split the file")

    def check_part(self, start: Any, event: Any, count: int, depth: int) -> None:
        if depth == 0 and event.value not in SECTIONS:
            raise self.problem(
                event, f"unknown section: {event.value[:40]!r}", f"the sections are {', '.join(SECTIONS)}"
            )
        if count >= MAX_NAMES:
            raise self.problem(start, "too many names in one mapping")


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
