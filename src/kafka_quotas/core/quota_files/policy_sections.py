"""The `[[group]]` sections of a policy file, replaced in place.

Contract: everything else in the file stays byte for byte, comments and line ends included. So does the section of a
group that does not change. Comments right before a section belong to it, except for the first of several sections in a
row. All sections end up where the first one was, or at the end of a file without one. The new text is read back: one
that says anything else than what is asked for, because the file is written in an unforeseen way, is refused.
"""

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import load_toml
from kafka_quotas.core.groups.group import Group
from kafka_quotas.core.groups.group_changes import groups_from
from kafka_quotas.core.quota_files.writer import group_section

_GROUP: Final = "group"
_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\[\]#\"']+?)\s*\]\]?\s*(?:#.*)?$")
_BETWEEN: Final = re.compile(r"\s*(?:#.*)?$")


def with_groups(text: str, groups: Sequence[Group], table: str = "") -> str:
    """Return the text of a TOML file, or of one with a table, with these groups in place of its own.

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
