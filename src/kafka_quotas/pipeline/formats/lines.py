"""Files of this machine and at URLs, and their lines with offsets, plain or gzip, from any offset.

What is at a URL is read from its bytes if Spark has read them already, by its own reader if it has one, else through
delta-rs, as the tables are. Lines come in blocks, because a log has millions.

Invariants: at most `LONGEST_LINE` bytes of a line are held. Offsets are those of the uncompressed file. If a file can't
be read, every function raises `OSError`.
"""

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

BUFFER_BYTES: Final = 128 * 1024
"""Bytes read at a time, within the processor's cache: larger blocks are slower by a tenth to split into lines."""
_OBJECT_STORES: Final = ("s3", "gs", "abfs", "abfss", "az", "azure")
"""Schemes of stores that workers read by themselves."""
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
    """All bytes, None if they are at the URL alone."""
    reader: "Callable[[], io.BufferedReader[Any]] | None" = field(default=None, compare=False)
    """Opens it by another way than delta-rs, None for delta-rs."""

    def __str__(self) -> str:
        return self.url


SourceFile = Path | RemoteFile


def is_of_hadoop(file: SourceFile | str) -> bool:
    """Check whether Hadoop's file systems have the credentials of a file, or of a URL, on Spark."""
    return not isinstance(file, Path) and str(file).partition(":")[0] not in _OBJECT_STORES


def open_file(file: SourceFile) -> io.BufferedReader:
    """Open a file for reading."""
    if isinstance(file, Path):
        return io.BufferedReader(file.open("rb", buffering=0), buffer_size=BUFFER_BYTES)
    opened: Any  # Arrow's files are like those of Python, which its types do not say
    if file.content is not None:
        from pyarrow import BufferReader  # noqa: PLC0415 - as below

        opened = BufferReader(file.content)
    elif file.reader is not None:
        return file.reader()
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


def file_digest(file: SourceFile) -> str:
    """Return the SHA-256 digest of a file."""
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


LONGEST_LINE: Final = 16 * 1024 * 1024
"""Longest line in bytes: a metadata response of a large cluster takes some megabytes."""
TOO_LONG: Final = f"longer than {LONGEST_LINE} bytes"
_GZIP_MAGIC: Final = b"\x1f\x8b"
LARGE_BLOCK: Final = 8 * 1024 * 1024
"""Bytes read at a time where a call costs more than a line."""
_DAMAGE: Final = (EOFError, zlib.error, gzip.BadGzipFile)

_File = gzip.GzipFile | io.BufferedReader


class Block(NamedTuple):
    """Consecutive lines."""

    offset: int
    """Offset of the first line."""
    content: bytes | memoryview
    """The lines with their line feeds. The only line of a block that is open or has a fault lacks one."""
    end: int
    """End offset of the last line."""
    fault: str | None = None
    """Why its only line could not be read whole; the line is then its beginning."""
    is_open: bool = False
    """Whether its only line is the last of the file and lacks its end, as while it is being written."""

    @property
    def lines(self) -> list[bytes]:
        """The lines without their ends."""
        lines = bytes(self.content).split(b"\n")
        if not lines[-1] and len(lines) > 1:
            lines.pop()
        return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The first bytes of a file, and its sizes."""

    head: bytes
    """The first bytes of the uncompressed file, as many as can be uncompressed of a damaged one."""
    size: int
    """Size of the file itself in bytes."""
    unpacked: int
    """Size of the uncompressed file, of a gzip file modulo 2^32, which its last bytes hold."""
    is_packed: bool
    """Whether the file is gzip."""


def read_beginning(path: SourceFile, length: int) -> Beginning:
    """Read up to `length` first bytes of the uncompressed file and its sizes, opening it once."""
    size = file_size(path)
    with open_file(path) as file:
        is_packed, unpacked = file.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC), size
        if is_packed and size >= 4:
            file.seek(-4, io.SEEK_END)
            unpacked = int.from_bytes(file.read(4), "little")
        file.seek(0)
        content, head = gzip.GzipFile(fileobj=file) if is_packed else file, b""
        with suppress(*_DAMAGE):  # reading the lines reports it
            while len(head) < length and (piece := content.read1(length - len(head))):
                head += piece
    return Beginning(head=head, size=size, unpacked=unpacked, is_packed=is_packed)


def read_head(path: SourceFile, length: int) -> bytes:
    """Read the first bytes of the uncompressed file.

    A damaged file yields as much as can be uncompressed.
    """
    return read_beginning(path, length).head


def read_blocks(
    path: SourceFile, *, start: int = 0, end: int | None = None, block_bytes: int = BUFFER_BYTES
) -> Iterator[Block]:
    """Yield the lines that begin from `start` on and before `end`, in order.

    Where `start` is within a line, that line belongs to the piece before. A damaged gzip file ends with a line that has
    a fault. An `end` of None is the end of the file. Each block has about `block_bytes`, and is valid until the next.
    """
    with _open(path) as file:
        offset = start
        try:
            offset = _seek_line(file, start)
            for block in _blocks(file, offset, block_bytes, end):
                offset = block.end
                kept = block if end is None or offset <= end else block_before(block, end)
                if kept.content:
                    yield kept
                if end is not None and offset >= end:
                    return
        except _DAMAGE as error:
            yield Block(offset, b"", offset, fault=f"the packed file is damaged: {error}")


def count_lines_before(path: SourceFile, start: int) -> int:
    """Count the lines that begin before an offset of the uncompressed file."""
    with _open(path) as file:
        left, count = _seek_line(file, start), 0
        file.seek(0)
        while left > 0 and (block := file.read(min(left, BUFFER_BYTES))):
            count += block.count(b"\n")
            left -= len(block)
        return count


@contextmanager
def _open(path: SourceFile) -> Iterator[_File]:
    with open_file(path) as file:
        is_packed = file.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
        # gzip has a buffer of its own; one around it would lose what comes before a damage
        yield gzip.GzipFile(fileobj=file) if is_packed else file


def _seek_line(file: _File, start: int) -> int:
    """Move to the first line that begins at `start` or after it, and return its offset."""
    if start == 0:
        return 0
    file.seek(start - 1)
    return start - 1 + _skip_line(file)


def _blocks(file: _File, offset: int, block_bytes: int, end_wanted: int | None) -> Iterator[Block]:
    """Yield the lines of the rest of the file, each block in the same buffer.

    Not much is read after the offset before which the wanted lines begin, None for the end of the file.
    """
    buffer, filled = bytearray(block_bytes), 0
    while True:
        room = memoryview(buffer)[filled:]
        if end_wanted is not None:
            room = room[: max(end_wanted - offset - filled, 0) + BUFFER_BYTES]
        size, damage = _fill(file, room)
        end = buffer.rfind(b"\n", filled, filled + size) + 1
        filled += size
        if end > 0:
            yield Block(offset, memoryview(buffer)[:end], offset + end)
            offset, filled = offset + end, filled - end
            buffer[:filled] = buffer[end : end + filled]
        elif filled > LONGEST_LINE:
            length = filled + _skip_line(file)
            yield Block(offset, bytes(buffer[:filled]), offset + length, fault=TOO_LONG)
            offset, filled = offset + length, 0
        elif filled == len(buffer):
            buffer = buffer + bytearray(len(buffer))
        if damage is not None:
            raise damage
        if size == 0:
            break
    if filled:
        yield Block(offset, bytes(buffer[:filled]), offset + filled, is_open=True)


def _fill(file: _File, buffer: memoryview) -> tuple[int, Exception | None]:
    """Fill the buffer, and return the size read and the damage that ended it."""
    size = 0
    try:
        while size < len(buffer) and (got := file.readinto1(buffer[size:])):
            size += got
    except _DAMAGE as error:
        return size, error
    return size, None


def _skip_line(file: _File) -> int:
    size = 0
    while piece := file.readline(LONGEST_LINE):
        size += len(piece)
        if piece.endswith(b"\n"):
            break
    return size


def block_before(block: Block, end: int) -> Block:
    """Return the part of a block whose lines begin before `end`."""
    first = end - 1 - block.offset
    if first < 0:
        return block._replace(content=b"")
    size = first + bytes(block.content[first:]).find(b"\n") + 1
    return block._replace(content=block.content[:size], end=block.offset + size) if size > first else block
