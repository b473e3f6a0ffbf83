"""The files that earlier ingests read, looked up before a file is read again.

The table `ingests` has them. A file that grows (a log) is recognised by its first bytes, under any name and
whether or not it was compressed since: rotation renames and compresses logs. A document is recognised by its whole
content and its name. Both are looked up within one broker of one cluster.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafka_quotas.pipeline.formats.task import InputFormat

if TYPE_CHECKING:
    import pyarrow as pa

PARSER_VERSION: Final = 2
"""Version of what the parsers make of a line, kept with each file: raise it where equal lines give other rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A file, and how far it was read."""

    path: str
    form: str
    cluster: str
    broker_id: int | None
    head_bytes: int
    """Length of the recognised head."""
    head_sha256: str
    """Digest of the head, which identifies the file."""
    size: int
    """Size of the file itself, compressed or not."""
    read_to: int
    """End offset, in the uncompressed file, of the last line processed."""
    zone: str | None = None
    """Time zone that its stamps were read in."""
    parser: int = PARSER_VERSION
    """Version of the parser that read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The scope within which files with the same head are the same."""

    form: str
    cluster: str
    broker_id: int | None
    name: str
    """Name of a document, empty for a log."""


class KnownFiles:
    """The files that earlier ingests read."""

    def __init__(self, files: Iterable[ReadFile]) -> None:
        self._files: dict[tuple[_Place, int, str], ReadFile] = {}
        self._lengths: dict[_Place, set[int]] = {}
        self._paths: dict[tuple[_Place, int, str], set[str]] = {}
        for file in files:
            self.add(file)

    def add(self, file: ReadFile) -> None:
        """Add a file, in place of what is known of it from before."""
        place = _place(file)
        key = (place, file.head_bytes, file.head_sha256)
        self._files[key] = file
        self._paths.setdefault(key, set()).add(file.path)
        self._lengths.setdefault(place, set()).add(file.head_bytes)

    def find(self, file: ReadFile, head: bytes) -> ReadFile | None:
        """Return the entry of an earlier read of the file with this head, None if it is new."""
        return max((self._files[key] for key in self._keys(file, head)), key=lambda each: each.read_to, default=None)

    def paths(self, file: ReadFile, head: bytes) -> set[str]:
        """Return the names under which the file with this head was read, its own among them."""
        return {file.path}.union(*(self._paths[key] for key in self._keys(file, head)))

    def _keys(self, file: ReadFile, head: bytes) -> list[tuple[_Place, int, str]]:
        place = _place(file)
        if not InputFormat(file.form).grows:
            keys = [(place, file.head_bytes, file.head_sha256)]
        else:
            lengths = (length for length in self._lengths.get(place, ()) if length <= len(head))
            keys = [(place, length, digest(head[:length])) for length in lengths]
        return [key for key in keys if key in self._files]


def known_files(changes: "pa.Table") -> KnownFiles:
    """Return the files of the table `ingests`, whose rows are by number of the change."""
    names = [each.name for each in fields(ReadFile)]
    return KnownFiles(ReadFile(**row) for row in changes.select(names).to_pylist())


def _place(file: ReadFile) -> _Place:
    name = "" if InputFormat(file.form).grows else Path(file.path).name
    return _Place(form=file.form, cluster=file.cluster, broker_id=file.broker_id, name=name)


def digest(content: bytes) -> str:
    """Return what identifies the bytes."""
    return sha256(content).hexdigest()
