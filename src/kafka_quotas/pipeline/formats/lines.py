"""The lines of a file with their offsets, from plain and from gzip files, from any offset.

They come in blocks, because a log has millions. Invariants: at most `LONGEST_LINE` bytes of a line are held. Offsets
are those of the uncompressed file. Where a file can't be read, every function raises `OSError`.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

LONGEST_LINE: Final = 16 * 1024 * 1024
"""Longest line in bytes: a metadata response of a large cluster takes some megabytes."""
_GZIP_MAGIC: Final = b"\x1f\x8b"
_BLOCK: Final = 128 * 1024
"""Bytes read at a time, within the processor's cache: larger blocks are slower by a tenth."""

_File = gzip.GzipFile | io.BufferedReader


class Block(NamedTuple):
    """Consecutive lines without their ends."""

    offset: int
    """Offset of the first line."""
    lines: list[bytes]
    end: int
    """End offset of the last line."""
    fault: str | None = None
    """Why its only line could not be read whole; the line is then its beginning."""
    is_open: bool = False
    """Whether its only line is the last of the file and lacks its end, as while it is being written."""


def is_gzip(path: Path) -> bool:
    """Check whether the file is gzip."""
    with path.open("rb") as file:
        return file.read(2) == _GZIP_MAGIC


def read_head(path: Path, size: int) -> bytes:
    """Read the first bytes of the uncompressed file.

    A damaged file yields as much as can be uncompressed.
    """
    head = b""
    with closing(_open(path)) as file:
        try:
            while len(head) < size and (piece := file.read1(size - len(head))):
                head += piece
        except (EOFError, zlib.error, gzip.BadGzipFile):
            pass  # reading the lines reports it
    return head


def unpacked_size(path: Path) -> int:
    """Return the size of the uncompressed file in bytes.

    Returns:
        For a gzip file the size modulo 2^32, which its last bytes hold.
    """
    size = path.stat().st_size
    if not is_gzip(path) or size < 4:
        return size
    with path.open("rb") as file:
        file.seek(-4, io.SEEK_END)
        return int.from_bytes(file.read(4), "little")


def read_blocks(path: Path, *, start: int = 0, end: int | None = None) -> Iterator[Block]:
    """Yield the lines that begin from `start` on and before `end`, in order.

    Where `start` is within a line, that line belongs to the piece before. A damaged gzip file ends with a line that has
    a fault. An `end` of None is the end of the file.
    """
    with closing(_open(path)) as file:
        offset = start
        try:
            offset = _seek_line(file, start)
            for block in _blocks(file, offset):
                offset = block.end
                kept = block if end is None or offset <= end else _before(block, end)
                if kept.lines:
                    yield kept
                if end is not None and offset >= end:
                    return
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            yield Block(offset, [b""], offset, fault=f"the packed file is damaged: {error}")


def count_lines_before(path: Path, start: int) -> int:
    """Count the lines that begin before an offset of the uncompressed file."""
    with closing(_open(path)) as file:
        left, count = _seek_line(file, start), 0
        file.seek(0)
        while left > 0 and (block := file.read(min(left, _BLOCK))):
            count += block.count(b"\n")
            left -= len(block)
        return count


def _open(path: Path) -> _File:
    if is_gzip(path):
        return gzip.GzipFile(path)  # has a buffer of its own; one around it would lose what comes before a damage
    return io.BufferedReader(path.open("rb", buffering=0), buffer_size=_BLOCK)


def _seek_line(file: _File, start: int) -> int:
    """Move to the first line that begins at `start` or after it, and return its offset."""
    if start == 0:
        return 0
    file.seek(start - 1)
    return start - 1 + _skip_line(file)


def _blocks(file: _File, offset: int) -> Iterator[Block]:
    rest = b""
    while piece := file.read1(_BLOCK):
        content = rest + piece
        end = content.rfind(b"\n")
        if end >= 0:
            yield Block(offset, content[:end].split(b"\n"), offset + end + 1)
            offset, rest = offset + end + 1, content[end + 1 :]
        elif len(content) > LONGEST_LINE:
            size = len(content) + _skip_line(file)
            yield Block(offset, [content], offset + size, fault=f"longer than {LONGEST_LINE} bytes")
            offset, rest = offset + size, b""
        else:
            rest = content
    if rest:
        yield Block(offset, [rest], offset + len(rest), is_open=True)


def _skip_line(file: _File) -> int:
    size = 0
    while piece := file.readline(LONGEST_LINE):
        size += len(piece)
        if piece.endswith(b"\n"):
            break
    return size


def _before(block: Block, end: int) -> Block:
    """Return the part of a block whose lines begin before `end`."""
    lines, offset = [], block.offset
    for line in block.lines:
        if offset >= end:
            break
        lines.append(line)
        offset += len(line) + 1
    return block._replace(lines=lines, end=min(offset, block.end))
