"""Recorded events made up: rows by hand, random traffic, and folders as an ingest leaves them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.job import Job, ignore_progress
from kafka_quotas.pipeline.engine.slices import run_here
from kafka_quotas.pipeline.ingest.commits import IngestRecord, commit, records_of
from kafka_quotas.pipeline.ingest.plan import ReadFile
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.packed_events import NAMES, PackedEvents, client_number, pack
from kafka_quotas.pipeline.tables.schemas import EVENTS, PACKED_EVENTS
from kafka_quotas.pipeline.tables.staged_files import write_staged

BASE_MS = 1_795_262_400_000
_DEFAULTS: Mapping[str, Any] = {
    "cluster": "default",
    "broker_id": 1,
    "ts_ms": BASE_MS,
    "user": "alice",
    "client_id": "app",
    "ip": "",
    "quota_type": "produce",
    "bytes": 0,
    "thread_ms": None,
    "mutations": 0,
    "throttle_ms": 0,
    "api_key": -1,
    "is_exempt": False,
    "is_estimated": False,
    "is_thread_estimated": False,
    "connection": "",
    "src_file": "made-up",
    "src_offset": 0,
}


def events_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Events with these columns, and the usual ones for the rest."""
    whole = [{**_DEFAULTS, **row} for row in rows]
    for row in whole:
        row["client"] = client_number(**{name: row[name] for name in NAMES})
    return pa.Table.from_pylist(whole, schema=EVENTS.arrow_schema())


def random_events(count: int, *, seed: int = 1, clients: int = 12, seconds: int = 120) -> list[dict[str, Any]]:
    """Traffic of all quota types, one client with 40 % of it, many events in one millisecond, out of order."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        client = 0 if random.random() < 0.4 else int(random.integers(clients))
        kind = str(random.choice(["produce", "fetch", "request", "controller_mutation"], p=[0.45, 0.4, 0.1, 0.05]))
        rows.append(
            {
                "broker_id": int(random.integers(1, 3)),
                "ts_ms": BASE_MS + int(random.integers(0, seconds * 200)) * 5,
                "user": f"user-{client % 5}",
                "client_id": "" if client == 3 else f"client-{client}",
                "quota_type": kind,
                "bytes": int(random.integers(1, 20_000)) if kind in ("produce", "fetch") else 0,
                "thread_ms": float(random.integers(1, 9_000)) / 1000 if random.random() < 0.8 else None,
                "mutations": int(random.integers(1, 30)) if kind == "controller_mutation" else 0,
                "throttle_ms": int(random.integers(0, 50)) if random.random() < 0.1 else 0,
                "is_exempt": bool(random.random() < 0.05),
            }
        )
    return rows


def commit_events(lake: Lake, rows: Sequence[Mapping[str, Any]], *, file: str = "made up") -> int:
    """Commit an ingest of rows that are in no file, and return Delta's version of the events."""
    lake.create()
    packed = pa.Table.from_batches([pack(events_table(rows))])
    read = ReadFile(
        path=file, form="request-log", cluster="", broker_id=None, head_bytes=0, head_sha256=file, size=0, read_to=0
    )
    staged = write_staged(lake, PACKED_EVENTS, packed)
    version = commit(lake, IngestRecord(at_ms=BASE_MS, files=(read,)), staged, records_of(lake), lambda _: False)
    assert version is not None
    return version


def events_folder(path: Path, rows: Sequence[Mapping[str, Any]], *, ingests: int = 1) -> Path:
    """The folder, with the rows spread over N ingests."""
    for ingest in range(ingests):
        commit_events(Lake(url=str(path)), rows[ingest::ingests], file=f"file {ingest}")
    return path


def open_packed(folder: Path) -> PackedEvents:
    """The packed events of a data folder."""
    return PackedEvents(Lake(url=str(folder)))


def event_files(packed: PackedEvents) -> list[str]:
    """The Parquet files with events, without those of what ingests read."""
    files = pa.table(packed.delta.get_add_actions(flatten=True)).to_pylist()
    return [f"{packed.lake.place(PACKED_EVENTS)}/{each['path']}" for each in files if each["partition.dt"] is not None]


def run_locally(job: Job, folder: Path) -> pa.Table:
    """The rows of a job over a folder, on this machine."""
    return run_here(job, open_packed(folder), watch=ignore_progress)


def proposal(name: str, *entries: tuple[Entity, Mapping[str, float]]) -> Proposal:
    """A proposal with these quotas."""
    return Proposal(name=name, entries=entries)
