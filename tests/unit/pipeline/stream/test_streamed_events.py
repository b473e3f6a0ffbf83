"""Events that a stream adds to a data folder, beside those that were ingested: jobs make the same of either."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.support.pipeline.events import BASE_MS
from tests.support.pipeline.ingested_folder import ingest
from tests.support.pipeline.logs import table_rows
from tests.support.processes.run_cli import run_cli

from kafka_quotas.pipeline.ingest import commits
from kafka_quotas.pipeline.stream.lines import AHEAD_MS, pack_lines
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.schemas import EVENTS, PACKED_EVENTS

_QUOTAS = "entries:\n  - {entity: {user: u1}, quotas: {producer_byte_rate: 20k}}\n"


def event_lines(count: int) -> list[bytes]:
    """Lines of a few clients, many at the same time, over two hours."""
    chance = random.Random(5)
    times = sorted(chance.randrange(7200) * 1000 for _ in range(count))
    lines = []
    for number, at_ms in enumerate(times):
        client = {"user": f"u{number % 3}", "client_id": "app", "ip": "10.0.0.7", "connection": number % 3}
        charge = {"quota_type": "produce", "bytes": chance.randrange(90_000), "thread_ms": 0, "mutations": 0}
        event = {"v": 1, "ts_ms": BASE_MS + at_ms, "cluster": "c", "broker_id": 1, "api_key": 0, "throttle_ms": 1}
        lines.append(json.dumps({**event, **client, **charge, "is_exempt": False}).encode())
    return lines


def packed(lines: list[bytes], first: int, now_ms: int) -> pa.Table:
    places = [pa.array(["events-0"] * len(lines)), pa.array(range(first, first + len(lines)), pa.int64())]
    batch = pa.record_batch([pa.array(lines, pa.binary()), *places], ["value", "src_file", "src_offset"])
    rows = pack_lines([batch], now_ms=now_ms)
    return pa.Table.from_batches(rows, PACKED_EVENTS.arrow_schema())


def replayed(data: Path, quotas: Path) -> str:
    code, found, told = run_cli(
        "pipeline", "replay", str(data), str(quotas), "--engine", "local", "--output", "json", "--model", "both"
    )
    assert code == 0, told
    return found.replace(str(data), "DATA")


def test_a_replay_of_streamed_of_merged_and_of_ingested_events_is_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, quotas = event_lines(400), tmp_path / "quotas.yaml"
    quotas.write_text(_QUOTAS)
    log = tmp_path / "events.jsonl"
    found = []
    for steps in ([400], [150, 400]):
        for step in steps:
            log.write_bytes(b"\n".join(lines[:step]) + b"\n")
            ingest(tmp_path / f"ingested-{len(steps)}", log)
        found.append(replayed(tmp_path / f"ingested-{len(steps)}", quotas))
    lake = Lake(url=str(tmp_path / "streamed"))
    lake.create()
    for first in range(0, 400, 60):
        rows = packed(lines[first : first + 60], first, BASE_MS + 7_200_000)
        write_deltalake(lake.place(PACKED_EVENTS), rows, mode="append")
    found.append(replayed(tmp_path / "streamed", quotas))
    monkeypatch.setattr(commits, "_MANY_FILES", 2)
    commits.merge_small_files(lake)
    assert len(lake.table(PACKED_EVENTS).file_uris()) == 1
    found.append(replayed(tmp_path / "streamed", quotas))
    assert len(set(found)) == 1
    assert '"u1"' in found[0]


def test_lines_that_cannot_be_read_and_events_from_the_future_are_left_out(tmp_path: Path) -> None:
    lines = event_lines(3)
    latest_ms = max(json.loads(line)["ts_ms"] for line in lines)
    assert sum(packed([*lines, b"rubbish"], 0, latest_ms - AHEAD_MS)["events"].to_pylist()) == 3
    assert sum(packed([*lines, b"rubbish"], 0, latest_ms - AHEAD_MS - 1)["events"].to_pylist()) == 2
    write_deltalake(str(tmp_path / "events"), packed(lines, 7, latest_ms), partition_by=["dt"])
    assert sorted(row["src_offset"] for row in table_rows(tmp_path, EVENTS)) == [7, 8, 9]
