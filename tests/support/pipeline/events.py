"""Recorded events made up: rows by hand, random traffic, and folders as an ingest leaves them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.job import Job, Tables, ignore_progress, run_tasks
from kafka_quotas.pipeline.ingest.change import Change
from kafka_quotas.pipeline.ingest.ingested_tables import clients_of
from kafka_quotas.pipeline.ingest.plan import ReadFile
from kafka_quotas.pipeline.tables.client_ranges import NAMES, EventTable
from kafka_quotas.pipeline.tables.clients import client_number
from kafka_quotas.pipeline.tables.event_files import sorted_by_client, write_events
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.schemas import CLIENTS, EVENTS
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot

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


def events_table(rows: Sequence[Mapping[str, Any]], *, ingest: int = 1) -> pa.Table:
    """Events with these columns, and the usual ones for the rest."""
    whole = [{**_DEFAULTS, **row, "ingest": ingest} for row in rows]
    for row in whole:
        row["client"] = client_number(**{name: row[name] for name in NAMES})
        row["dt"] = datetime.fromtimestamp(row["ts_ms"] / 1000, UTC).date()
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


NO_FILE: Final = ReadFile(path="", form="", cluster="", broker_id=None, head_bytes=0, head_sha256="", size=0, read_to=0)
"""Stands for the file that rows of a test come from."""


def added(before: FolderSnapshot, *, ingest: int, events: int) -> FolderSnapshot:
    """The folder with one more change, whose rows are written."""
    change = Change(ingest=ingest, operation="ingest", at_ms=BASE_MS, events=events, files=[NO_FILE])
    return change.commit(before)


def events_folder(path: Path, rows: Sequence[Mapping[str, Any]], *, ingests: int = 1) -> Path:
    """The folder, with the rows spread over N ingests."""
    lake = Lake(url=str(path))
    lake.create()
    snapshot = FolderSnapshot.of(lake)
    for ingest in range(1, ingests + 1):
        events = events_table(rows[ingest - 1 :: ingests], ingest=ingest)
        if events.num_rows:
            ordered = sorted_by_client(events)
            lake.commit_files(EVENTS, write_events(lake, ordered))
            lake.append(CLIENTS, clients_of(ordered))
        snapshot = added(snapshot, ingest=ingest, events=events.num_rows)
    return path


def open_table(folder: Path) -> EventTable:
    """The events of a data folder."""
    return EventTable(FolderSnapshot.of(Lake(url=str(folder))))


def run_here(job: Job, folder: Path) -> list[Tables]:
    """The tables of each task of a job over a folder, on this machine."""
    return run_tasks(job, open_table(folder), watch=ignore_progress)


def proposal(name: str, *entries: tuple[Entity, Mapping[str, float]]) -> Proposal:
    """A proposal with these quotas."""
    return Proposal(name=name, entries=entries)
