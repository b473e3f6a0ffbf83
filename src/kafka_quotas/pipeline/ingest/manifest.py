"""The files that earlier ingests read, looked up before a file is read again.

The manifests lie beside the tables. A file that grows (a log) is recognised by its first bytes, under any name and
whether or not it was compressed since: rotation renames and compresses logs. A document is recognised by its whole
content and its name. Both are looked up within one broker of one cluster.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.formats.detect import InputFormat
from kafka_quotas.pipeline.formats.lines import read_head
from kafka_quotas.pipeline.tables.layout import MANIFEST_FILE, DataFolder

HEAD_BYTES: Final = 1024
"""First bytes of a log: times and correlation ids in its first line or two distinguish it from every other."""
_VERSION: Final = 1


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
        for file in files:
            self.add(file)

    def add(self, file: ReadFile) -> None:
        """Add a file, unless it is known to have been read further."""
        place = _place(file)
        key = (place, file.head_bytes, file.head_sha256)
        earlier = self._files.get(key)
        if earlier is None or earlier.read_to <= file.read_to:
            self._files[key] = file
        self._lengths.setdefault(place, set()).add(file.head_bytes)

    def find(self, file: ReadFile, head: bytes) -> ReadFile | None:
        """Return the entry of an earlier read of the file with this head, None if it is new."""
        place = _place(file)
        if not InputFormat(file.form).grows:
            return self._files.get((place, file.head_bytes, file.head_sha256))
        lengths = (length for length in self._lengths.get(place, ()) if length <= len(head))
        found = (self._files.get((place, length, _digest(head[:length]))) for length in lengths)
        return max((each for each in found if each is not None), key=lambda each: each.read_to, default=None)


def describe_file(
    path: Path, *, input_format: InputFormat, cluster: str, broker_id: int | None
) -> tuple[ReadFile, bytes]:
    """Return the entry of a file that is unread so far, and its head.

    Raises:
        OSError: The file can't be read.
    """
    size = path.stat().st_size
    head = read_head(path, HEAD_BYTES) if input_format.grows else path.read_bytes()
    described = ReadFile(
        path=str(path),
        form=input_format.value,
        cluster=cluster,
        broker_id=broker_id,
        head_bytes=len(head),
        head_sha256=_digest(head),
        size=size,
        read_to=0,
    )
    return described, head


def known_files(folder: DataFolder) -> KnownFiles:
    """Read the manifests of all ingests in a folder.

    Raises:
        KafkaQuotasError: A manifest can't be read.
    """
    return KnownFiles(file for ingest in folder.ingests() for file in _read(ingest / MANIFEST_FILE))


def write_manifest(path: Path, files: Iterable[ReadFile], counts: Mapping[str, int]) -> None:
    """Write the manifest to `path`.

    Raises:
        OSError: The file can't be written.
    """
    content = {"version": _VERSION, "counts": dict(counts), "files": [asdict(file) for file in files]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _read(path: Path) -> list[ReadFile]:
    try:
        return [ReadFile(**file) for file in json.loads(path.read_text(encoding="utf-8"))["files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KafkaQuotasError(
            f"cannot read {path}: {error}", hint="remove that ingest's folder, and ingest its files again"
        ) from error


def _place(file: ReadFile) -> _Place:
    name = "" if InputFormat(file.form).grows else Path(file.path).name
    return _Place(form=file.form, cluster=file.cluster, broker_id=file.broker_id, name=name)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
