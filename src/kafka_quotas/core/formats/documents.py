"""Documents within bounds: files of a size, and JSON and TOML of a depth, that every reader can take.

A file may be a device without an end, and a document nested so deep that its parser, or whatever walks through it, has
no stack left. Both are refused by the errors that readers of files and documents catch anyway.
"""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.java import parse_properties, property_pairs

MAX_BYTES: Final = 64 * 1024 * 1024
"""Longest document of people's, and of what is no file, whose length nobody knows before its end."""
MAX_DEPTH: Final = 100
_TOO_DEEP: Final = "nested too deep"


def read_document(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a file, a pipe or a device, up to a number of bytes.

    Raises:
        OSError: It can't be read, or is longer.
    """
    with path.open("rb") as file:
        if not S_ISREG(os.fstat(file.fileno()).st_mode):
            max_bytes = min(max_bytes, MAX_BYTES)
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it is longer than {max_bytes // 1024**2} MiB", str(path))
    return content


def read_text(path: Path, encoding: str = "utf-8", *, max_bytes: int = MAX_BYTES) -> str:
    """Return the text of a file, with line ends as in Python's text files.

    Raises:
        OSError: It can't be read, or is longer.
        UnicodeDecodeError: It is not in this encoding.
    """
    return read_document(path, max_bytes=max_bytes).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def load_json(text: str | bytes, *, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the value of a JSON text, whose objects `object_pairs_hook` builds if it is given.

    Raises:
        ValueError: It is not JSON, or nested deeper than `MAX_DEPTH`.
    """
    try:
        return _checked(json.loads(text, object_pairs_hook=object_pairs_hook))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def load_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises:
        ValueError: It is not TOML, nested deeper than `MAX_DEPTH`, or has a number of too many digits.
    """
    import tomllib  # noqa: PLC0415 - only who has such a file pays for it

    try:
        tables: dict[str, Any] = _checked(tomllib.loads(text))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    return tables


def _checked(value: Any) -> Any:
    # Parsers in C take more than Python's own functions do, down to showing such a value in a message.
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return value
    raise ValueError(_TOO_DEEP)


def read_properties(path: Path) -> dict[str, str]:
    """Return the properties in a file, by key.

    The text is UTF-8, or ISO-8859-1 (as in Java) where it is not valid UTF-8.

    Raises:
        UsageError: The file can't be read.
    """
    return parse_properties(_text(path))


def read_property_pairs(path: Path) -> list[tuple[str, str]]:
    """Return the properties in a file, as `read_properties` reads it, with a key as often as it occurs."""
    return property_pairs(_text(path))


def _text(path: Path) -> str:
    try:
        content = read_document(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", hint="check the name of the file") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("iso-8859-1")
