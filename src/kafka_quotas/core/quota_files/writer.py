"""A writer of stored quotas as YAML, JSON or TOML that reads back to exactly the same quotas.

Contract: one entry per line, sorted by the caller, so that files compare well line by line. The largest value of a key
is `unlimited`, other figures are plain numbers that read back as the same double. Entries with values that this program
refuses carry `invalid: true`. Names are quoted unless every reader takes them for plain words. Groups come last, in
their order, and in TOML as the sections that the daemon's policy file takes as well.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import takewhile
from typing import Any, Final, NamedTuple

from kafka_quotas.core.changes.plan import key_rank
from kafka_quotas.core.changes.validation import our_refusals
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import load_toml
from kafka_quotas.core.groups.group import Group
from kafka_quotas.core.groups.group_changes import group_document, groups_from
from kafka_quotas.core.java import double_text
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import STORED_KEYS
from kafka_quotas.core.model.value_format import UNLIMITED, format_number
from kafka_quotas.core.quota_files.declarations import DEFAULT_SUFFIX, QUOTAS_SCHEMA

Quotas = Mapping[str, float]
DeclaredQuotas = Mapping[str, float | None]
"""Quotas of which some are declared as not set."""

_PLAIN_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_TAKEN_WORDS: Final = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
"""Words that some YAML reader takes for a value."""


class FileFormat(StrEnum):
    """The formats of quota files."""

    YAML = "yaml"
    JSON = "json"
    TOML = "toml"


def file_text(
    entries: Iterable[tuple[Entity, DeclaredQuotas]], form: FileFormat, groups: Sequence[Group] = ()
) -> Iterator[str]:
    """Yield the text of a file with these entries and groups, piece by piece."""
    documents = map(group_document, groups)
    match form:
        case FileFormat.YAML:
            yield f"schema: {QUOTAS_SCHEMA}\nentries:"
            yield from _items((_entry(*each, _YAML) for each in entries), "\n  - ", empty=" []")
            yield "\n" + "group:\n" * bool(groups)
            yield from (f"  - {_inline('', each, _YAML)}\n" for each in documents)
        case FileFormat.JSON:
            yield f'{{\n  "schema": {json.dumps(QUOTAS_SCHEMA)},\n  "entries": ['
            yield from _items((_entry(*each, _JSON) for each in entries), "\n    ", between=",", end="\n  ")
            yield "]" + ',\n  "group": [' * bool(groups)
            yield from _items((_inline("", each, _JSON) for each in documents), "\n    ", between=",", end="\n  ]")
            yield "\n}\n"
        case FileFormat.TOML:
            yield f'schema = "{QUOTAS_SCHEMA}"\nentries = ['
            yield from (f"\n  {_entry(*each, _TOML_ENTRY)}," for each in entries)
            yield "\n]\n"
            yield from (f"\n{group_section(group)}" for group in groups)


def _items(items: Iterable[str], before: str, *, between: str = "", end: str = "", empty: str = "") -> Iterator[str]:
    separator = ""
    for item in items:
        yield f"{separator}{before}{item}"
        separator, empty = between, end
    yield empty


def _entry(entity: Entity, quotas: DeclaredQuotas, style: "_Style") -> str:
    names: dict[str, object] = {}
    for kind, name in entity.parts:
        is_named = name is not None or style is not _TOML_ENTRY
        names[kind if is_named else f"{kind}{DEFAULT_SUFFIX}"] = name if is_named else True
    values = {key: quotas[key] for key in sorted(quotas, key=key_rank)}
    mark = {"invalid": True} if is_refused(entity, quotas) else {}
    return _inline("", {"entity": names, "quotas": values, **mark}, style)


def group_section(group: Group, name: str = "group") -> str:
    """Return the text of a group's section in TOML, whose header has a name."""
    document = group_document(group)
    members = document.pop("members", ())
    lines = [f"{key} = {_inline(key, value, _TOML)}" for key, value in document.items()]
    if len(members) == 1:
        lines.insert(1, f"members = {_inline('', members, _TOML)}")
    elif members:
        lines.insert(1, "\n".join(["members = [", *(f"    {_inline('', each, _TOML)}," for each in members), "]"]))
    return "\n".join([f"[[{name}]]", *lines, ""])


def is_refused(entity: Entity, quotas: DeclaredQuotas) -> bool:
    """Return whether this program would refuse to send these quotas to a store."""
    return our_refusals(entity, quotas) is not None


def plain_figure(key: str, value: float) -> str:
    """Return a value as a number, the largest one of its key in all digits."""
    text = _value(key, value)
    return str(STORED_KEYS[key].unlimited) if text == UNLIMITED else text


def _value(key: str, value: float | None) -> str:
    if value is None:
        return "null"
    known = STORED_KEYS.get(key)
    if known is not None and value == float(known.unlimited):
        return UNLIMITED
    if not math.isfinite(value):
        return double_text(value)
    text = format_number(value)
    # -0.0 and long fractions: repr keeps the sign and stays short.
    return repr(value) if "." in text or (value == 0 and math.copysign(1, value) < 0) else text


def _yaml_value(key: str, value: float | None) -> str:
    text = _value(key, value)
    return text if value is None or math.isfinite(value) else escaped(text)


def _json_value(key: str, value: float | None) -> str:
    text = _value(key, value)
    return json.dumps(text) if text == UNLIMITED or not (value is None or math.isfinite(value)) else text


def _toml_value(key: str, value: float | None) -> str:
    """Return a figure, quoted if it is whole and beyond 64 bits, which TOML can't hold."""
    text = _value(key, value)
    if value is None:
        raise UsageError(f"TOML has no null, which {key} would need", hint="write it as YAML or JSON")
    fits = text != UNLIMITED and math.isfinite(value) and (abs(value) < 2**63 or "." in text or "e" in text)
    return text if fits else f'"{text}"'


def _toml_key(key: str) -> str:
    return key if _PLAIN_WORD.fullmatch(key) and "." not in key else escaped(key)


def yaml_word(text: str) -> str:
    """Return a text as a value in YAML, quoted if some reader would take it for anything else."""
    if _PLAIN_WORD.fullmatch(text) and text.lower() not in _TAKEN_WORDS:
        return text
    return escaped(text)


def escaped(text: str) -> str:
    """Return a text between double quotes, with escapes that YAML, JSON, TOML and HCL share."""
    return '"' + "".join(map(_letter, text)) + '"'


def _letter(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if letter.isprintable() and letter != "\ufeff":
        return letter
    return f"\\u{ord(letter):04x}" if ord(letter) < 0x10000 else f"\\U{ord(letter):08x}"


class _Style(NamedTuple):
    """How a format spells a mapping on one line."""

    name: Callable[[str], str]
    text: Callable[[str], str]
    value: Callable[[str, float], str]
    assigns: str
    braces: tuple[str, str] = ("{", "}")


def _inline(key: str, value: Any, style: _Style) -> str:
    """Return a mapping, a list, a text, or the value of a key on one line."""
    if isinstance(value, dict):
        parts = (f"{style.name(name)}{style.assigns}{_inline(name, each, style)}" for name, each in value.items())
        return ", ".join(parts).join(style.braces)
    if isinstance(value, list):
        return f"[{', '.join(_inline('', each, style) for each in value)}]"
    return style.text(value) if isinstance(value, str) else "true" if value is True else style.value(key, value)


_json_text: Final = partial(json.dumps, ensure_ascii=False)
_YAML: Final = _Style(yaml_word, yaml_word, _yaml_value, ": ")
_JSON: Final = _Style(_json_text, _json_text, _json_value, ": ")
_TOML_ENTRY: Final = _Style(_toml_key, escaped, _toml_value, " = ")
_TOML: Final = _TOML_ENTRY._replace(braces=("{ ", " }"))


_GROUP: Final = "group"
_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\[\]#\"']+?)\s*\]\]?\s*(?:#.*)?$")
_BETWEEN: Final = re.compile(r"\s*(?:#.*)?$")


def with_groups(text: str, groups: Sequence[Group], table: str = "") -> str:
    """Return the text of a policy file, or of one with a table of it, with these groups for its own.

    Everything else stays byte for byte, comments and line ends included. So does the section of a group that does not
    change. Comments right before a section belong to it, except for the first of several sections in a row. All
    sections end up where the first one was, or at the end of a file without one. The new text is read back: one that
    says anything else than what is asked for, because the file is written in an unforeseen way, is refused.

    Raises:
        UsageError: It is written in a way in which they can't be replaced.
    """
    name = f"{table}.{_GROUP}" if table else _GROUP
    old = _taken(load_toml(text), table)
    sections = _sections(text, name)
    own = [lines for is_group, lines in sections if is_group]
    known = {group.name: (group, lines) for group, lines in zip(old, own, strict=False)}
    newline = "\r\n" if "\r\n" in text else "\n"
    made = [_made(group, *known.get(group.name, (None, [])), name=name, newline=newline) for group in groups]
    first = next((number for number, (is_group, _) in enumerate(sections) if is_group), len(sections))
    head = "".join(line for _, lines in sections[:first] for line in lines)
    tail = "".join(line for is_group, lines in sections[first:] if not is_group for line in lines)
    if head and made and not own:
        head += ("" if head.endswith("\n") else newline) + newline
    between = newline if made and tail.partition("\n")[0].strip() else ""
    new = f"{head}{newline.join(made)}{between}{tail}"
    _check(text, new, groups, table)
    return new


def _taken(tables: dict[str, Any], table: str) -> tuple[Group, ...]:
    """Return the groups in tables, which have none behind."""
    for name in table.split(".") if table else ():
        tables = tables.setdefault(name, {})
    return groups_from(tables.pop(_GROUP, []), "the file")


def _sections(text: str, name: str) -> list[tuple[bool, list[str]]]:
    """Return the lines of each section, and whether it is a group's, which has its sub-tables."""
    sections, between = [(False, list[str]())], list[str]()
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        if _BETWEEN.match(line):
            between.append(line)
            continue
        header, (follows_group, last) = _HEADER.match(line), sections[-1]
        path = re.sub(r"\s*\.\s*", ".", header[2]) if header else ""
        is_group = header is not None and path == name and header[1] == "[["
        if header is None or (follows_group and path.startswith(f"{name}.")):
            last += [*between, line]
        elif is_group and not follows_group:
            last += between
            sections.append((True, [line]))
        else:
            sections.append((is_group, [*between, line]))
        between = []
    return [*sections, (False, between)]


def _made(group: Group, old: Group | None, lines: Sequence[str], *, name: str, newline: str) -> str:
    before = [*takewhile(_BETWEEN.match, lines)]
    same = "".join(lines[len(before) :])
    text = group_section(group, name).replace("\n", newline) if old != group else same
    return "".join(line for line in before if line.strip()) + (text if text.endswith("\n") else text + newline)


def _check(old: str, new: str, groups: Sequence[Group], table: str) -> None:
    """Refuse a text without the groups asked for, or with any other difference from the old one."""
    try:
        before, after = load_toml(old), load_toml(new)
        _taken(before, table)
        if _taken(after, table) == tuple(groups) and before == after:
            return
    except ValueError:  # TOML that can't be read
        pass
    raise UsageError(
        "its groups can't be replaced without a change to anything else",
        hint="write each as a [[group]] section, or edit the file by hand",
    )
