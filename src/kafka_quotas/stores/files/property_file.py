"""Property files on disk, such as those of `--command-config` and of static quotas."""

from pathlib import Path

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import read_document
from kafka_quotas.core.java.properties import parse_properties, property_pairs


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
