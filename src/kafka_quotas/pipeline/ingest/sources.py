"""The files of an ingest: patterns of `--source`, and what has to be known of each file before it is read.

logs/{broker_id}/kafka-request.log*      /scrapes/{cluster}/{broker_id}/{time}.prom
s3a://logs/{cluster}/{broker_id}/*.gz

A pattern is a path or URL with `*`, `**`, `?` and places for broker, cluster and time. Files at URLs are listed and
read by the file systems of a Spark session, with the schemes, credentials and mounts that Hadoop knows there, if its
driver is in this process's Java. A Connect server's driver is elsewhere and lends none.

Invariants: a file is opened once to find its format, size and head, a few files at a time. At most `HEAD_BYTES` of a
file are kept, so that thousands of files take little memory.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from glob import iglob
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.formats.lines import (
    Beginning,
    RemoteFile,
    SourceFile,
    file_digest,
    list_files,
    modified_ms,
    read_beginning,
)
from kafka_quotas.pipeline.formats.task import SNIFFED_BYTES, InputFormat, detect_format
from kafka_quotas.pipeline.formats.timestamp import epoch_ms, needs_zone
from kafka_quotas.pipeline.tables.lake import hadoop_url, is_url, lake_errors, lake_url

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from pyspark.sql import SparkSession

ListFiles = Callable[[str], Iterable[RemoteFile]]
"""Lists the files below a folder at a URL, in no order."""

_PLACES: Final = {"broker_id": r"\d{1,9}", "cluster": r"[^/]+", "time": r"[^/]+?"}
_TOKEN: Final = re.compile(r"\{(\w+)\}|(\*\*/?)|(\*)|(\?)|(.)", re.DOTALL)
_WILD: Final = re.compile(r"[*?{]")
_HINT: Final = "for example --source 'logs/{broker_id}/kafka-request.log*'"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file that a pattern matches, and the values in its path."""

    path: SourceFile
    broker_id: int | None = None
    """Value of `{broker_id}`, None if the pattern has none."""
    cluster: str | None = None
    """Value of `{cluster}`, None if the pattern has none."""
    time_ms: int | None = None
    """Value of `{time}` in ms since 1970, None if the pattern has none."""
    is_named: bool = False
    """Whether the user named this very file, rather than a folder or a pattern."""
    is_replacing: bool = False
    """Whether to read the file anew, in place of what earlier ingests made of it."""

    @property
    def place(self) -> SourceFile:
        """The file by its whole name."""
        return self.path.absolute() if isinstance(self.path, Path) else self.path


def find_files(pattern: str, listed: ListFiles = list_files) -> Iterator[FoundFile]:
    """Yield the visible files that a pattern matches, by path, and all files below a matching folder.

    At URLs, names that begin with `_` are hidden as well, as they are for Spark and Hadoop. `listed` lists files there.

    Raises:
        UsageError: The pattern has an unknown place, or matches no file.
    """
    if is_url(pattern):
        yield from _find_remote(lake_url(pattern), pattern, listed)
        return
    if pattern.startswith("file:/"):
        pattern = lake_url(pattern)
    compiled = _compile(pattern)
    found = []
    # Our own matching takes brackets literally, so the glob has them escaped.
    as_glob = re.sub(r"\{\w+\}", "*", pattern.replace("[", "[[]"))
    for name in sorted(iglob(as_glob, recursive=True)):  # noqa: PTH207 - Path.glob takes no absolute one
        match = compiled.fullmatch(name)
        if match is not None:
            found += [_found(each, match) for each in _files(Path(name))]
    if not found:
        raise UsageError(f"no file matches {pattern}", hint=_HINT)
    yield from found


def _find_remote(url: str, pattern: str, listed: ListFiles) -> Iterator[FoundFile]:
    compiled = _compile(url)
    if _is_passed_over(url.rpartition("/")[2]):
        raise UsageError(f"{pattern} is hidden: Spark and Hadoop read no file of that name", hint="rename the file")
    fixed = _WILD.split(url)[0]
    folder = fixed[: fixed.rindex("/")]
    with lake_errors(f"listing {_WILD.split(pattern)[0].rpartition('/')[0]}"):
        by_url = sorted(listed(folder), key=lambda file: file.url)
    found = []
    for file in by_url:
        parts = file.url.removeprefix(f"{folder}/").split("/")
        places = ("/".join((folder, *parts[:depth])) for depth in range(len(parts), 0, -1))
        match = next((each for each in map(compiled.fullmatch, places) if each is not None), None)
        is_hidden = _is_passed_over(parts[-1]) or any(part.startswith(".") for part in parts)
        if match is not None and not is_hidden:
            found.append(replace(_found(file, match), is_named=file.url == url))
    if not found:
        raise UsageError(f"no file matches {pattern}", hint=_HINT)
    yield from found


def _is_passed_over(name: str) -> bool:
    """Check whether Spark passes over a file because of its name, without a word."""
    return (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def find_paths(name: str, listed: ListFiles = list_files) -> Iterator[FoundFile]:
    """Yield the file, or all visible files below the folder, by path.

    `listed` lists those at URLs.
    """
    if is_url(name):
        yield from _find_remote(lake_url(name), name, listed)
        return
    path = Path(lake_url(name) if name.startswith("file:/") else name)
    found = [FoundFile(path=each, is_named=not path.is_dir()) for each in _files(path)]
    if not found:
        raise UsageError(f"there is no file {path}" if not path.is_dir() else f"no file is in {path}", hint=_HINT)
    yield from found


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path] if path.is_file() else []
    found = (each for each in path.rglob("*") if not any(name.startswith(".") for name in each.relative_to(path).parts))
    return sorted(each for each in found if each.is_file())


def _compile(pattern: str) -> re.Pattern[str]:
    seen: set[str] = set()

    def piece(token: re.Match[str]) -> str:
        name, deep, star, mark, letter = token.groups()
        if name is not None:
            if name not in _PLACES:
                raise UsageError(f"--source {pattern}: unknown place {{{name}}}", hint=f"known: {', '.join(_PLACES)}")
            first = name not in seen
            seen.add(name)
            return f"(?P<{name}>{_PLACES[name]})" if first else f"(?P={name})"
        if deep is not None:
            return "(?:.*/)?" if deep.endswith("/") else ".*"
        if star is not None:
            return "[^/]*"
        return "[^/]" if mark is not None else re.escape(letter)

    return re.compile(_TOKEN.sub(piece, pattern))


def _found(path: SourceFile, match: re.Match[str]) -> FoundFile:
    values = match.groupdict()
    broker, time = values.get("broker_id"), values.get("time")
    return FoundFile(
        path=path,
        broker_id=None if broker is None else int(broker),
        cluster=values.get("cluster"),
        time_ms=None if time is None else _time_ms(time, path),
    )


def _time_ms(text: str, path: SourceFile) -> int:
    """Return milliseconds since 1970 of a whole number or an ISO time, which is UTC without an offset."""
    if re.fullmatch(r"\d{1,15}", text, re.ASCII):
        return epoch_ms(int(text))
    try:
        time = datetime.fromisoformat(text.replace("_", ":"))
    except ValueError as error:
        hint = "seconds since 1970, or an ISO time such as 2026-11-21T12:00:00Z, _ in place of : if wanted"
        raise UsageError(f"the name of {path} has no {{time}}: {text}", hint=hint) from error
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


HEAD_BYTES: Final = 1024
"""First bytes of a log: times and correlation ids in its first line or two distinguish it from every other."""
_AT_ONCE: Final = 8
"""Files that are open at a time: an object store takes tens of milliseconds to answer for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedFile(Beginning):
    """A file that an ingest found, and what its first and last bytes say.

    Its head is that of a log, and empty for a document.
    """

    found: FoundFile
    modified_ms: int
    """Last change in ms since 1970."""
    input_format: InputFormat | None
    """The format, None for an unknown one."""
    needs_zone: bool
    """Whether the timestamps of a request log lack their zone."""
    head_bytes: int
    """Length of what recognises the file: the head of a log, a whole document."""
    head_sha256: str
    """Digest of what recognises the file."""


def inspect_files(found: Iterable[FoundFile], *, input_format: InputFormat | None) -> list[InspectedFile]:
    """Inspect files, in their order.

    `input_format` is the format of all, None to detect it.
    """
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="inspect") as pool:
        return list(pool.map(lambda each: _inspect(each, input_format), found))


def unreadable(path: SourceFile, error: OSError) -> KafkaQuotasError:
    """Return the error about a file that can't be read."""
    return KafkaQuotasError(f"cannot read {path}: {error.strerror or error}", hint="check the file's permissions")


def _inspect(found: FoundFile, input_format: InputFormat | None) -> InspectedFile:
    path = found.place  # names of files are kept: what was read is what is found again
    try:
        beginning = read_beginning(path, SNIFFED_BYTES)
        form = input_format or detect_format(beginning.head)
        is_document = form is not None and not form.grows
        head = b"" if is_document else beginning.head[:HEAD_BYTES]
        sha256 = file_digest(path) if is_document else digest(head)
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
    )


_MISSING: Final = "java.io.FileNotFoundException"


def hadoop_files(session: "SparkSession", folder: str) -> Iterator[RemoteFile]:
    """Yield the files below a folder that a session's Hadoop lists and reads, in no order."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - comes with PySpark, an extra

    java: Any = session.sparkContext._jvm  # noqa: SLF001 - has no other door
    java_session: Any = session._jsparkSession  # noqa: SLF001 - as above
    place = java.org.apache.hadoop.fs.Path(hadoop_url(f"{folder}/"))
    files = place.getFileSystem(java_session.sessionState().newHadoopConf())
    top = f"{place.toUri().getPath().rstrip('/')}/"  # a server may name itself otherwise than the URL does
    try:
        found = files.listFiles(place, True)  # noqa: FBT003 - Hadoop's own signature
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() == _MISSING:
            return
        raise
    while found.hasNext():
        file = found.next()
        path, size = file.getPath(), file.getLen()
        yield RemoteFile(
            url=f"{folder}/{path.toUri().getPath().removeprefix(top)}",
            size=size,
            modified_ms=file.getModificationTime(),
            reader=partial(_opened, files, path, size),
        )


def _opened(files: Any, path: Any, size: int) -> io.BufferedReader:
    return io.BufferedReader(_HadoopFile(files.open(path), size), buffer_size=SNIFFED_BYTES)


class _HadoopFile(io.RawIOBase):
    """Java's stream of a file as Python has files."""

    def __init__(self, stream: Any, size: int) -> None:
        self._stream = stream
        self._size = size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer)
        content: bytes = self._stream.readNBytes(len(view))
        view[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._size}[whence]
        self._stream.seek(place)
        return place

    def tell(self) -> int:
        return int(self._stream.getPos())

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def digest(content: bytes) -> str:
    """Return what identifies the bytes."""
    return sha256(content).hexdigest()
