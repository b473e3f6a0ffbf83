"""The folders of the ingested tables, and the bucket of each client's events.

    DATA/_layout.json                                          the number of buckets, once and for all
    DATA/ingest=000001/events/dt=2026-11-21/bucket=3/*.parquet
    DATA/ingest=000001/quarantine/*.parquet                    metrics and client_throttle likewise
    DATA/ingest=000001/_manifest.json                          the files read, and counts of the results

Invariants: an ingest appears by one rename of its whole folder, which makes every visible ingest complete. Folders that
begin with a dot or an underscore are not data, for us as for Spark, Arrow and DuckDB. Each file of events is sorted by
ts_ms, then src_file, src_offset. `dt` and `bucket` are names of folders only. One client at one broker has one bucket,
in as many files as there were ingests and days: a reader sorts the files it joins.

Invariant: a client's bucket is the same on every machine, in every engine and for ever, because written files depend on
it: CRC-32 of user, client-id and broker id, joined by zero bytes, modulo the number of buckets. SQL engines have the
same `crc32`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.tables.schemas import EVENTS
from kafka_quotas.pipeline.tables.table import TableSchema

DEFAULT_BUCKETS: Final = 16
"""Buckets by default: each has 6 of 100 million events and is sorted in less than a gigabyte."""


def bucket_of(*, user: str, client_id: str, broker_id: int, buckets: int) -> int:
    """Return the bucket of a client's events at a broker, from 0 to `buckets` - 1."""
    return crc32(f"{user}\0{client_id}\0{broker_id}".encode()) % buckets


LAYOUT_FILE = "_layout.json"
MANIFEST_FILE = "_manifest.json"
LAYOUT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsBucket:
    """The files of one bucket, the oldest ingest and day first.

    Each file is sorted, but not all of them together.
    """

    number: int
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFolder:
    """The folder of ingested tables."""

    path: Path
    buckets: int

    @classmethod
    def open(cls, path: Path) -> "DataFolder":
        """Open a folder that an earlier ingest made.

        Raises:
            UsageError: The folder has no ingested data.
            KafkaQuotasError: The layout is unreadable or of another version.
        """
        try:
            content = json.loads((path / LAYOUT_FILE).read_text(encoding="utf-8"))
            version, buckets = int(content["version"]), int(content["buckets"])
        except OSError as error:
            raise UsageError(f"{path} holds no ingested data", hint="kafka-quotas pipeline ingest writes it") from error
        except (ValueError, KeyError, TypeError) as error:
            raise KafkaQuotasError(f"cannot read {path / LAYOUT_FILE}: {error}") from error
        if version != LAYOUT_VERSION:
            raise KafkaQuotasError(f"{path} has layout version {version}, this program reads {LAYOUT_VERSION}")
        return cls(path=path, buckets=buckets)

    def ingests(self) -> list[Path]:
        """Return the folders of the complete ingests, the oldest first."""
        return sorted(each for each in self.path.glob("ingest=*") if (each / MANIFEST_FILE).is_file())

    def files(self, table: TableSchema) -> list[Path]:
        """Return all files of a table, the oldest ingest first."""
        return [
            file
            for ingest in self.ingests()
            for file in sorted((ingest / table.name).rglob("*.parquet"))
            if not any(part.startswith((".", "_")) for part in file.relative_to(ingest).parts)
        ]

    def events_buckets(self) -> Iterator[EventsBucket]:
        """Yield every bucket that has events, by number."""
        by_bucket: dict[int, list[Path]] = {}
        for file in self.files(EVENTS):
            by_bucket.setdefault(int(file.parent.name.removeprefix("bucket=")), []).append(file)
        for number, files in sorted(by_bucket.items()):
            yield EventsBucket(number=number, files=tuple(files))
