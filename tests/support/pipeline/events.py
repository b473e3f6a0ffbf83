"""Recorded events made up: rows by hand, random traffic, and folders as an ingest leaves them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.job import Job, Tables, run_tasks, task_files
from kafka_quotas.pipeline.engine.progress import ignore_progress
from kafka_quotas.pipeline.tables.layout import LAYOUT_FILE, LAYOUT_VERSION, MANIFEST_FILE, DataFolder, bucket_of
from kafka_quotas.pipeline.tables.schemas import EVENTS

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
    schema = pa.schema([field for field in EVENTS.arrow_schema() if field.name != "dt"])
    return pa.Table.from_pylist([{**_DEFAULTS, **row} for row in rows], schema=schema)


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


def events_folder(path: Path, rows: Sequence[Mapping[str, Any]], *, buckets: int = 4, ingests: int = 1) -> Path:
    """The folder, with the rows spread over N ingests as files that are sorted by time."""
    path.mkdir(parents=True)
    (path / LAYOUT_FILE).write_text(json.dumps({"version": LAYOUT_VERSION, "buckets": buckets}))
    for ingest in range(ingests):
        folder = path / f"ingest={ingest + 1:06}"
        for number, events in _bucketed(rows[ingest::ingests], buckets).items():
            place = folder / "events" / "dt=2026-11-21" / f"bucket={number}"
            place.mkdir(parents=True)
            pq.write_table(events.sort_by("ts_ms"), place / "part-0.parquet", row_group_size=500)
        folder.mkdir(exist_ok=True)
        (folder / MANIFEST_FILE).write_text("{}")
    return path


def _bucketed(rows: Sequence[Mapping[str, Any]], buckets: int) -> dict[int, pa.Table]:
    found: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        whole = {**_DEFAULTS, **row}
        key = {name: whole[name] for name in ("user", "client_id", "broker_id")}
        found.setdefault(bucket_of(**key, buckets=buckets), []).append(row)
    return {number: events_table(of_bucket) for number, of_bucket in found.items()}


def run_here(job: Job, folder: Path) -> list[Tables]:
    """The tables of each task of a job over a folder, on this machine."""
    return run_tasks(job, task_files(DataFolder.open(folder), job), watch=ignore_progress)


def proposal(name: str, *entries: tuple[Entity, Mapping[str, float]]) -> Proposal:
    """A proposal with these quotas."""
    return Proposal(name=name, entries=entries)
