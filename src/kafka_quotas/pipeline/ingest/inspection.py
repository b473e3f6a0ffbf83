"""What an ingest has to know of its files before it reads them: formats, sizes, and what recognises them.

Invariants: a file is opened once for it, a few files at a time. At most `HEAD_BYTES` of a file are kept, so that
thousands of files take little memory.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.formats.lines import (
    RemoteFile,
    RemoteFiles,
    SourceFile,
    file_digest,
    is_open_ended,
    modified_ms,
    read_beginning,
)
from kafka_quotas.pipeline.formats.request_log import needs_zone
from kafka_quotas.pipeline.formats.task import SNIFFED_BYTES, InputFormat, detect_format
from kafka_quotas.pipeline.ingest.known_files import digest
from kafka_quotas.pipeline.ingest.source_pattern import FoundFile

HEAD_BYTES: Final = 1024
"""First bytes of a log: times and correlation ids in its first line or two distinguish it from every other."""
LARGEST_CONTENT_BYTES: Final = 64 * 1024 * 1024
"""Largest log at a URL that a task of Spark's has in memory, thrice for a while: 2 GB of heap did not do for 400 MB."""
_AT_ONCE: Final = 8
"""Files that are open at a time: an object store takes tens of milliseconds to answer for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedFile:
    """A file that an ingest found, and what its first and last bytes say."""

    found: FoundFile
    size: int
    """Size of the file itself in bytes, compressed or not."""
    unpacked: int
    """Size of the uncompressed file, of a gzip file modulo 2^32."""
    is_packed: bool
    """Whether the file is gzip."""
    modified_ms: int
    """Last change in ms since 1970."""
    input_format: InputFormat | None
    """The format, None for an unknown one."""
    needs_zone: bool
    """Whether the timestamps of a request log lack their zone."""
    head: bytes
    """First bytes of a log, none of a document."""
    head_bytes: int
    """Length of what recognises the file: the head of a log, a whole document."""
    head_sha256: str
    """Digest of what recognises the file."""
    is_large: bool = False
    """Whether a log at a URL is too large for the memory of one of Spark's tasks."""
    is_open_ended: bool = False
    """Whether such a log, uncompressed, lacks the end of its last line, as while it is being written."""


def inspect_files(
    found: Iterable[FoundFile], *, input_format: InputFormat | None, remote: RemoteFiles | None = None
) -> list[InspectedFile]:
    """Inspect files, in their order.

    `input_format` is the format of all, None to detect it. `remote` reads files at URLs, None for delta-rs.

    Raises:
        KafkaQuotasError: A file can't be read.
    """
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="inspect") as pool:
        return list(pool.map(lambda each: _inspect(each, input_format, remote), found))


def unreadable(path: SourceFile, error: OSError) -> KafkaQuotasError:
    """Return the error about a file that can't be read."""
    return KafkaQuotasError(f"cannot read {path}: {error.strerror or error}", hint="check the file's permissions")


def _inspect(found: FoundFile, input_format: InputFormat | None, remote: RemoteFiles | None) -> InspectedFile:
    path = found.place  # names of files are kept: what was read is what is found again
    try:
        beginning = read_beginning(path, SNIFFED_BYTES, remote)
        form = input_format or detect_format(beginning.head)
        is_document = form is not None and not form.grows
        head = b"" if is_document else beginning.head[:HEAD_BYTES]
        sha256 = file_digest(path, remote) if is_document else digest(head)
        is_large = isinstance(path, RemoteFile) and not is_document and beginning.size > LARGEST_CONTENT_BYTES
        is_open = is_large and not beginning.is_packed and is_open_ended(path, remote)
        changed_ms = modified_ms(path)
    except OSError as error:
        raise unreadable(path, error) from error
    return InspectedFile(
        found=found,
        size=beginning.size,
        unpacked=beginning.unpacked,
        is_packed=beginning.is_packed,
        modified_ms=changed_ms,
        input_format=form,
        needs_zone=form is InputFormat.REQUEST_LOG and needs_zone(beginning.head),
        head=head,
        head_bytes=beginning.size if is_document else len(head),
        head_sha256=sha256,
        is_large=is_large,
        is_open_ended=is_open,
    )
