"""What was read by earlier ingests: kept beside the tables, looked up before anything is read again.

A file that grows (a log) is known by its beginning, wherever it lies and whether or not it was packed since: rotation
renames and packs logs. A document is known by its whole content and its name. Either at one broker of one cluster.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.formats.detect import FileForm
from kafka_quotas.pipeline.formats.lines import read_head
from kafka_quotas.pipeline.tables.layout import MANIFEST_FILE, DataFolder

HEAD_BYTES: Final = 1024
"""Of a log: times and correlation ids in its first line or two tell it from every other."""
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A file as far as it was read. `head_bytes` and `head_sha256` know it again; `size` is the file's own, packed.

    `read_to` is the offset in the unpacked file behind the last line that is done with.
    """

    path: str
    form: str
    cluster: str
    broker_id: int | None
    head_bytes: int
    head_sha256: str
    size: int
    read_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where files with the same beginning are the same."""

    form: str
    cluster: str
    broker_id: int | None
    name: str


class KnownFiles:
    """What earlier ingests read."""

    def __init__(self, files: Iterable[ReadFile]) -> None:
        self._files: dict[tuple[_Place, int, str], ReadFile] = {}
        self._lengths: dict[_Place, set[int]] = {}
        for file in files:
            self.add(file)

    def add(self, file: ReadFile) -> None:
        """Nothing; the file is known, as far as it was read at the most."""
        place = _place(file)
        key = (place, file.head_bytes, file.head_sha256)
        earlier = self._files.get(key)
        if earlier is None or earlier.read_to <= file.read_to:
            self._files[key] = file
        self._lengths.setdefault(place, set()).add(file.head_bytes)

    def find(self, file: ReadFile, head: bytes) -> ReadFile | None:
        """How far a file with this head was read before, None if it is new."""
        place = _place(file)
        if not FileForm(file.form).grows:
            return self._files.get((place, file.head_bytes, file.head_sha256))
        lengths = (length for length in self._lengths.get(place, ()) if length <= len(head))
        found = (self._files.get((place, length, _digest(head[:length]))) for length in lengths)
        return max((each for each in found if each is not None), key=lambda each: each.read_to, default=None)


def describe_file(path: Path, *, form: FileForm, cluster: str, broker_id: int | None) -> tuple[ReadFile, bytes]:
    """The file as nothing of it has been read, and its head. Raises `OSError` where it can't be read."""
    size = path.stat().st_size
    head = read_head(path, HEAD_BYTES) if form.grows else path.read_bytes()
    described = ReadFile(
        path=str(path),
        form=form.value,
        cluster=cluster,
        broker_id=broker_id,
        head_bytes=len(head),
        head_sha256=_digest(head),
        size=size,
        read_to=0,
    )
    return described, head


def known_files(folder: DataFolder) -> KnownFiles:
    """What the ingests in a folder read. Raises `KafkaQuotasError` for a manifest that is none."""
    return KnownFiles(file for ingest in folder.ingests() for file in _read(ingest / MANIFEST_FILE))


def write_manifest(path: Path, files: Iterable[ReadFile], counts: Mapping[str, int]) -> None:
    """Nothing; the manifest is at `path`. Raises `OSError`."""
    content = {"version": _VERSION, "counts": dict(counts), "files": [asdict(file) for file in files]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _read(path: Path) -> list[ReadFile]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [ReadFile(**file) for file in content["files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KafkaQuotasError(
            f"cannot read {path}: {error}", hint="remove that ingest's folder, and ingest its files again"
        ) from error


def _place(file: ReadFile) -> _Place:
    name = "" if FileForm(file.form).grows else Path(file.path).name
    return _Place(form=file.form, cluster=file.cluster, broker_id=file.broker_id, name=name)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
