"""Data folders of the earlier form, with a manifest and buckets, converted to Delta tables.

    OLD/_layout.json
    OLD/ingest=000001/events/dt=2026-11-21/bucket=3/*.parquet      quarantine, metrics and client_throttle likewise
    OLD/ingest=000001/_manifest.json                               the files that were read

Each old ingest becomes one change. A conversion that was killed continues where it was.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.ingest.change import Change, ingest_id, require_stored
from kafka_quotas.pipeline.ingest.ingested_tables import client_numbers, days
from kafka_quotas.pipeline.ingest.known_files import ReadFile
from kafka_quotas.pipeline.ingest.local_engine import store_spilled
from kafka_quotas.pipeline.ingest.spill import Spill
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.schemas import EVENTS, INGESTED_TABLES
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot
from kafka_quotas.pipeline.tables.table import TableSchema

_LAYOUT_FILE: Final = "_layout.json"
_MANIFEST_FILE: Final = "_manifest.json"


def convert(old: Path, lake: Lake, *, done: Callable[[int, int], None]) -> int:
    """Convert a folder and return the number of events.

    `done` is called with the number of converted ingests and of all.

    Raises:
        UsageError: The folder is none of the old form.
        KafkaQuotasError: A file can't be read or written.
    """
    if not (old / _LAYOUT_FILE).is_file():
        raise UsageError(f"{old} is not a data folder of the earlier form", hint=f"it would have a {_LAYOUT_FILE}")
    ingests = sorted(each for each in old.glob("ingest=*") if (each / _MANIFEST_FILE).is_file())
    lake.create()
    snapshot, events = FolderSnapshot.of(lake), 0
    for number, folder in enumerate(ingests, start=1):
        change = _change(old, folder)
        if change.ingest not in snapshot.ingests:
            found = _store(folder, lake, change.ingest)
            snapshot = replace(change, events=found).commit(snapshot)
            events += found
        done(number, len(ingests))
    return events


def _change(old: Path, folder: Path) -> Change:
    manifest = folder / _MANIFEST_FILE
    try:
        at_ms = round(manifest.stat().st_mtime * 1000)
        files = [ReadFile(**file) for file in json.loads(manifest.read_text(encoding="utf-8"))["files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KafkaQuotasError(f"cannot read {manifest}: {error}", hint="was the folder copied whole?") from error
    random = crc32(f"{old.absolute()}/{folder.name}".encode())
    return Change(ingest=ingest_id(at_ms, random), operation="convert", at_ms=at_ms, files=files)


def _store(folder: Path, lake: Lake, ingest: int) -> int:
    counts: dict[TableSchema, int] = {}
    with TemporaryDirectory(prefix="kafka-quotas-convert-") as place:
        spill = Spill(folder=Path(place))
        for table in INGESTED_TABLES:
            for number, rows in enumerate(_tables(folder / table.name)):
                counts[table] = counts.get(table, 0) + rows.num_rows
                spill.write(table, number, _completed(rows, table, ingest))
        store_spilled(spill, lake)
    require_stored(lake, ingest, counts)
    return counts.get(EVENTS, 0)


def _tables(folder: Path) -> Iterator[pa.Table]:
    for file in sorted(folder.rglob("*.parquet")):
        if not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts):
            try:
                yield pq.ParquetFile(file).read()
            except (OSError, pa.ArrowException) as error:
                raise KafkaQuotasError(f"cannot read {file}: {error}", hint="is it a whole Parquet file?") from error


def _completed(rows: pa.Table, table: TableSchema, ingest: int) -> pa.Table:
    added: dict[str, Any] = {"ingest": pa.repeat(pa.scalar(ingest, pa.int64()), rows.num_rows)}
    if table is EVENTS:
        added["dt"] = pa.chunked_array([days(chunk) for chunk in rows["ts_ms"].chunks], pa.date32())
        added["client"] = pa.chunked_array([client_numbers(batch) for batch in rows.to_batches()], pa.int64())
    columns = [added[name] if name in added else rows[name] for name in table.column_names]
    return pa.table(columns, table.column_names).cast(table.arrow_schema())
