"""What a load test leaves, by its own writer, into events and client_throttle."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.load.recordings import MS, recorded, run_of
from tests.support.pipeline.logs import table_rows
from tests.support.processes.run_cli import run_cli

from kafka_quotas.loadtest.plan.workload import ClientKind, Workload
from kafka_quotas.loadtest.results.exports import write_samples
from kafka_quotas.pipeline.tables.schemas import CLIENT_THROTTLE, EVENTS, QUARANTINE

STARTED_MS = 1_700_000_000_000


def ingest(path: Path, *more: str) -> tuple[dict[str, Any], Path]:
    """The counts of an ingest of one file, and the folder of its tables."""
    out = path.parent / "data"
    code, told, err = run_cli("pipeline", "ingest", str(path), "--out", str(out), "--output", "json", *more)
    assert code == 0, err
    return json.loads(told), out


def samples(path: Path) -> None:
    """A run of a producer that was watched, one that was not, and floods of topics and of connections."""
    seen = recorded("app", user="alice", quota=1000)
    seen.recorder.response(100 * MS, charged=700, throttle_ms=0, broker=3)
    seen.recorder.response(1500 * MS, charged=900, throttle_ms=250, broker=4)
    acknowledged = recorded("old", kind=ClientKind.RAW)
    acknowledged.recorder.acknowledged(500 * MS, records=1, size=1000)
    topics = recorded("admin", workload=Workload.MUTATE, quota=5)
    topics.recorder.response(10 * MS, charged=80, throttle_ms=0, broker=9)
    connections = recorded("lost", workload=Workload.CONNECT)
    connections.recorder.response(20 * MS, charged=1, throttle_ms=0)
    write_samples(run_of(seen, acknowledged, topics, connections, elapsed_s=2.0), path)


def test_the_events_of_a_load_test_are_events_and_its_seconds_what_clients_saw(tmp_path: Path) -> None:
    path = tmp_path / "samples.parquet"
    samples(path)
    counts, data = ingest(path, "--broker-id", "9")
    rows = sorted(table_rows(data, EVENTS), key=lambda row: row["ts_ms"])
    names = (
        "ts_ms",
        "broker_id",
        "user",
        "client_id",
        "quota_type",
        "bytes",
        "mutations",
        "throttle_ms",
        "is_estimated",
    )
    assert [tuple(row[name] for name in names) for row in rows] == [
        (STARTED_MS + 10, 9, "ANONYMOUS", "admin", "controller_mutation", 0, 80, 0, False),
        (STARTED_MS + 100, 3, "alice", "app", "produce", 700, 0, 0, False),
        (STARTED_MS + 500, 9, "ANONYMOUS", "old", "produce", 1000, 0, 0, True),
        (STARTED_MS + 1500, 4, "alice", "app", "produce", 900, 0, 250, False),
    ]
    throttles = [row for row in table_rows(data, CLIENT_THROTTLE) if row["client_id"] == "app"]
    names = ("ts_ms", "throttle_ms", "max_throttle_ms", "samples", "source")
    assert [tuple(row[name] for name in names) for row in throttles] == [
        (STARTED_MS + 1000, 0.0, 0.0, 1, "load-test"),
        (STARTED_MS + 2000, 250.0, 250.0, 1, "load-test"),
    ]
    assert (counts["events"], counts["quarantined"], counts["unused"]) == (4, 0, 1)
    assert counts["lines"] == counts["events"] + counts["client_throttle"] + counts["unused"]
    again, _ = ingest(path, "--broker-id", "9")
    assert (again["unchanged"], again["events"]) == (1, 0)


def test_what_is_no_file_of_samples_is_refused_with_a_reason(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "other.parquet")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1" + bytes(20))
    (tmp_path / "run.json").write_text('{"schema": "kafka-quotas.load-test/3", "entities": []}')
    reasons = {}
    for name in ("other.parquet", "cut.parquet", "run.json"):
        counts, data = ingest(tmp_path / name)
        assert counts["quarantined"] == 1
        reasons |= {Path(row["src_file"]).name: row["reason"] for row in table_rows(data, QUARANTINE)}
    assert reasons["other.parquet"] == "not a load test's samples: no column broker_id"
    assert reasons["cut.parquet"].startswith("broken Parquet: ")
    assert reasons["run.json"] == "this document has no events; samples.parquet beside it does"
