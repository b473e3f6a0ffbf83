"""Files to read: on this machine, and at URLs of object stores and HDFS.

Contract: functions take either kind. What is at a URL is read from its bytes where Spark has read them already, through
`RemoteFiles` where these are given, else through delta-rs, as the tables are. Every function raises `OSError` where a
file can't be read.
"""

import hashlib
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

BUFFER_BYTES: Final = 128 * 1024
"""Bytes read at a time, within the processor's cache: larger blocks are slower by a tenth to split into lines."""
_FETCHED_BYTES: Final = 4 * 1024 * 1024
"""Bytes asked of an object store at a time: each request takes as long as the transfer of a megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file at a URL, as delta-rs names it."""

    url: str
    size: int
    """Size in bytes."""
    modified_ms: int
    """Last change in ms since 1970."""
    content: "bytes | pa.Buffer | None" = None
    """All bytes, None where they are at the URL alone."""

    def __str__(self) -> str:
        return self.url


SourceFile = Path | RemoteFile


class RemoteFiles(Protocol):
    """A way to files at URLs, other than delta-rs."""

    def listed(self, folder: str) -> Iterable[RemoteFile]:
        """Return the files below a folder, in no order."""
        ...

    def opened(self, file: RemoteFile) -> io.BufferedReader:
        """Open a file for reading."""
        ...

    def digest(self, file: RemoteFile) -> str:
        """Return the SHA-256 digest of a file."""
        ...


def open_file(file: SourceFile, remote: RemoteFiles | None = None) -> io.BufferedReader:
    """Open a file for reading."""
    if isinstance(file, Path):
        return io.BufferedReader(file.open("rb", buffering=0), buffer_size=BUFFER_BYTES)
    opened: Any  # Arrow's files are like those of Python, which its types do not say
    if file.content is not None:
        from pyarrow import BufferReader  # noqa: PLC0415 - as below

        opened = BufferReader(file.content)
    elif remote is not None:
        return remote.opened(file)
    else:
        folder, _, name = file.url.rpartition("/")
        opened = _filesystem(folder).open_input_file(name)
    return io.BufferedReader(opened, buffer_size=min(_FETCHED_BYTES, max(file.size, 1)))


def file_size(file: SourceFile) -> int:
    """Return the size of a file in bytes, packed or not."""
    return file.stat().st_size if isinstance(file, Path) else file.size


def modified_ms(file: SourceFile) -> int:
    """Return when a file was last changed, in ms since 1970."""
    return round(file.stat().st_mtime * 1000) if isinstance(file, Path) else file.modified_ms


def file_digest(file: SourceFile, remote: RemoteFiles | None = None) -> str:
    """Return the SHA-256 digest of a file."""
    if remote is not None and isinstance(file, RemoteFile):
        return remote.digest(file)
    with open_file(file) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def list_files(folder: str) -> Iterator[RemoteFile]:
    """Yield the files below a folder at a URL, in no order."""
    from pyarrow import fs  # noqa: PLC0415 - the command's help must not load it

    found = _filesystem(folder).get_file_info(fs.FileSelector("", recursive=True, allow_not_found=True))
    for each in found:
        if each.is_file:
            yield RemoteFile(
                url=f"{folder}/{each.path}", size=each.size, modified_ms=round((each.mtime_ns or 0) / 1_000_000)
            )


@lru_cache(maxsize=256)
def _filesystem(folder: str) -> "fs.FileSystem":
    """Return the file system below a URL, with the credentials that the environment has."""
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - executors load this module without it
    from pyarrow import fs  # noqa: PLC0415 - as above

    return fs.PyFileSystem(DeltaStorageHandler(folder))
