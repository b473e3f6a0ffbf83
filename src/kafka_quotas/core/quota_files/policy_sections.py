"""The `[[group]]` sections of a policy file, replaced in place.

Contract: everything else in the file stays byte for byte, comments and line ends included. So does the section of a
group that does not change. Comments right before a section belong to it, except for the first of several sections in a
row. All sections end up where the first one was, or at the end of a file without one. The new text is read back: one
that says anything else than what is asked for, because the file is written in an unforeseen way, is refused.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import load_toml
from kafka_quotas.core.groups.group import Group
from kafka_quotas.core.groups.group_changes import groups_from
from kafka_quotas.core.quota_files.writer import group_section

_GROUP: Final = "group"
_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\[\]#\"']+?)\s*\]\]?\s*(?:#.*)?$")
_BETWEEN: Final = re.compile(r"\s*(?:#.*)?$")


@dataclass(slots=True)
class _Section:
    """The lines of one section, and the comments before it."""

    before: list[str]
    lines: list[str]
    groups: bool
    """Whether it is of a group."""
    after: list[str] = field(default_factory=list)
    """Comments and blank lines up to the next header."""


def with_groups(text: str, groups: Sequence[Group], table: str = "") -> str:
    """Return the text of a TOML file with these groups in place of its own.

    Args:
        text: The text of the file.
        groups: The groups to be in it.
        table: The table that has the groups, such as `policy`; empty: the file as a whole.

    Raises:
        UsageError: It is written in a way in which they can't be replaced.
    """
    name = f"{table}.{_GROUP}" if table else _GROUP
    old = _groups_in(load_toml(text), table)
    sections = _sections(text, name)
    own = [section for section in sections if section.groups]
    known = {group.name: (group, section) for group, section in zip(old, own, strict=False)}
    newline = "\r\n" if "\r\n" in text else "\n"
    made = [_made(group, *known.get(group.name, (None, None)), name=name, newline=newline) for group in groups]
    first = next((at for at, section in enumerate(sections) if section.groups), len(sections))
    kept = [section for section in sections[first:] if not section.groups]
    head = "".join(line for section in sections[:first] for line in (*section.before, *section.lines, *section.after))
    tail = "".join(line for section in kept for line in (*section.before, *section.lines, *section.after))
    if head and made and not own:
        head += ("" if head.endswith("\n") else newline) + newline
    between = newline if made and tail.partition("\n")[0].strip() else ""
    new = f"{head}{newline.join(made)}{between}{tail}"
    _check(text, new, groups, table)
    return new


def _groups_in(tables: Mapping[str, Any], table: str) -> tuple[Group, ...]:
    for name in table.split(".") if table else ():
        tables = tables.get(name, {})
    return groups_from(tables.get(_GROUP, []), "the file")


def _sections(text: str, name: str) -> list[_Section]:
    """Return the sections of a text, each of a group with its sub-tables."""
    sections = [_Section([], [], groups=False)]
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        header = _HEADER.match(line)
        path = re.sub(r"\s*\.\s*", ".", header[2]) if header else ""
        last = sections[-1]
        if header and last.groups and path.startswith(f"{name}."):
            last.lines += [*last.after, line]
            last.after = []
        elif header:
            is_group = path == name and header[1] == "[["
            before = last.after if is_group and last.groups else []
            if before:
                last.after = []
            sections.append(_Section(before, [line], groups=is_group))
        elif _BETWEEN.match(line):
            last.after.append(line)
        else:
            last.lines += [*last.after, line]
            last.after = []
    return _apart(sections)


def _apart(sections: Sequence[_Section]) -> list[_Section]:
    """Return the sections with what follows the last group of several in a row as one of its own."""
    found: list[_Section] = []
    for section in sections:
        found.append(section)
        if section.groups and section.after:
            found.append(_Section([], section.after, groups=False))
            section.after = []
    return found


def _made(group: Group, old: Group | None, section: _Section | None, *, name: str, newline: str) -> str:
    comments = [] if section is None else [line for line in section.before if line.strip()]
    if section is not None and old == group:
        lines = "".join(section.lines)
        text = lines if lines.endswith("\n") else lines + newline
    else:
        text = group_section(group, name).replace("\n", newline)
    return "".join(comments) + text


def _check(old: str, new: str, groups: Sequence[Group], table: str) -> None:
    """Refuse a text without the groups asked for, or with any other difference from the old one."""
    try:
        before, after = load_toml(old), load_toml(new)
        if _others(before, table) == _others(after, table) and _groups_in(after, table) == tuple(groups):
            return
    except ValueError:  # TOML that can't be read
        pass
    raise UsageError(
        "its groups can't be replaced without a change to anything else",
        hint="write each as a [[group]] section, or edit the file by hand",
    )


def _others(tables: Mapping[str, Any], table: str) -> Mapping[str, Any]:
    if not table:
        return {name: value for name, value in tables.items() if name != _GROUP}
    head, _, rest = table.partition(".")
    inner = tables.get(head, {})
    return {**tables, head: _others(inner, rest)} if isinstance(inner, Mapping) else tables
