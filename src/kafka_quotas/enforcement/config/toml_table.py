"""Tables of a TOML file in place of files of their own, named as `daemon.toml#listener.internal`.

The daemon's configuration file may hold the policy and the listeners in its own tables. A reload reads them again by
these names, as it reads the files again that they stand for.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import read_text
from kafka_quotas.core.formats.nodes import Node, toml_node

_MARK: Final = ".toml#"


def table_path(file: Path, table: str) -> Path:
    """Return the path that names a table, such as `listener.internal`, in a file that ends in `.toml`."""
    return file.with_name(f"{file.name}#{table}")


def names_table(path: Path) -> bool:
    """Return whether a path names a table in a file."""
    return _MARK in path.name


def table_name(path: Path) -> str:
    """Return the last part of a table's name: `internal` for `daemon.toml#listener.internal`."""
    return path.name.rpartition(_MARK)[2].rpartition(".")[2]


def toml_part(path: Path, what: str) -> Node:
    """Return the node of a TOML file, or of one table in it, as `table_path` names it.

    `what` says what it holds, for the hint of an error.

    Raises:
        UsageError: The file can't be read, is not TOML, or has no such table.
    """
    if not path.name:
        raise UsageError("the name of a file is empty", hint=f"it holds {what}; is the shell variable behind it set?")
    head, _, table = path.name.rpartition("#") if names_table(path) else (path.name, "", "")
    file = path.with_name(head)
    try:
        text = read_text(file)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"cannot read {path}: {reason}", hint=f"it holds {what}") from error
    whole = toml_node(text, str(file), hint=f"it holds {what}")
    part = whole.part(table) if table else whole
    if part is None or not isinstance(part.value, dict):
        raise UsageError(f"{file} has no table {table}", hint=f"it holds {what}")
    return part


def flat(table: Node, prefix: str = "") -> Iterator[tuple[str, Node]]:
    """Yield the entries by their whole names: TOML reads a bare `port.range` as a table `port`."""
    for name, part in table.parts.items():
        if isinstance(part.value, dict):
            yield from flat(part, f"{prefix}{name}.")
        else:
            yield prefix + name, part


def property_text(name: str, part: Node) -> str:
    """Return an entry's value as the text of a property."""
    value = part.plain()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    raise UsageError(f"{name} is neither a text, a whole number, a flag nor a list of texts")
