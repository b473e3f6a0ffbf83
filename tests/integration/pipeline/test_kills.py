"""Ingests and streams killed at any moment: every Delta reader sees each line once, and workers end by themselves."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable
from tests.support.brokers.java_process import java
from tests.support.brokers.maven import CACHE
from tests.support.pipeline.ingested_folder import broker_log, source
from tests.support.pipeline.logs import log_text
from tests.support.pipeline.spark_servers import SMALL
from tests.support.processes.awaiting import await_true

_DEADLINE_S = 600
_LEFT_S = 5
"""How long a command may go on without a worker that was killed."""
_LINES = 40
_EVENTS = 30
_START_MS = 1_795_262_400_000
needs_java = pytest.mark.skipif(java() is None, reason="Spark needs Java, and there is none here")
"""For tests on Spark."""


def keys(data: Path) -> list[tuple[str, int]]:
    """The file and offset of each event, as delta-rs and DuckDB read them, which must agree."""
    table = DeltaTable(data / "events")
    rows = table.to_pyarrow_table(columns=["src_file", "src_offset", "events"]).to_pylist()
    assert all(row["events"] == len(row["src_offset"]) for row in rows)
    found = sorted((row["src_file"], offset) for row in rows for offset in row["src_offset"])
    query = "SELECT src_file, unnest(src_offset) FROM read_parquet(?, union_by_name := true) ORDER BY ALL"
    assert duckdb.execute(query, [table.file_uris()]).fetchall() == found
    assert len(set(found)) == len(found), "a line is there twice"
    return found


def command(verb: str, *arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "kafka_quotas", "pipeline", verb, *map(str, arguments)]


def killed(commands: Sequence[list[str]], *, after_s: Sequence[float], is_worker: bool = False) -> int:
    """Run commands at once, kill each after a time, and return how many ran until then.

    With a command goes all that it started, or a worker of Spark alone, if there is one by then.
    """
    running = [
        subprocess.Popen(each, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        for each in commands
    ]
    begun_s, count = time.monotonic(), 0
    for at_s, process in sorted(zip(after_s, running, strict=True), key=lambda each: each[0]):
        time.sleep(max(begun_s + at_s - time.monotonic(), 0.0))
        count += process.poll() is None
        with suppress(ProcessLookupError):
            if is_worker and (workers := worker_pids(process.pid)):
                os.kill(workers[-1], signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_LEFT_S)
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return count


def killed_soon_after(arguments: list[str], table: Path, *, share: float) -> float:
    """Kill a command and all that it started a share of its time after it wrote to a table, and return that time."""
    begun_s = time.monotonic()
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        await_true(
            lambda: any(table.glob("_delta_log/*.json")) or process.poll() is not None, "rows", timeout_s=_DEADLINE_S
        )
        whole_s = time.monotonic() - begun_s
        time.sleep(share * whole_s)
        assert process.poll() is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return whole_s


def worker_pids(session: int) -> list[int]:
    """The Python workers of Spark in a session of processes."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"pyspark.daemon" in (each / "cmdline").read_bytes() and os.getsid(int(each.name)) == session:
                found.append(int(each.name))
    return sorted(found)


def run_to_the_end(arguments: list[str]) -> float:
    """Run a command, and return how many seconds it took."""
    begun_s = time.monotonic()
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - begun_s


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("at_once", [1, pytest.param(2, marks=pytest.mark.long), 4])
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_ingests_killed_at_any_moment_count_every_line_once(tmp_path: Path, kills: int, at_once: int) -> None:
    """Each finds that its log has grown and that there is another, and runs beside others of the same logs."""
    data, chance, count, rounds = tmp_path / "data", random.Random(7), 0, 0
    ingest = command("ingest", "--out", data, "--timezone", "UTC", "--engine", "local", *source(tmp_path))
    log = broker_log(tmp_path, log_text(_LINES))
    whole_s, known = run_to_the_end(ingest) * at_once, keys(data)
    while count < kills:
        rounds += 1
        log.write_text(log_text(_LINES * (rounds + 1)))
        broker_log(tmp_path, log_text(rounds), broker_id=1 + rounds)
        ran = killed([ingest] * at_once, after_s=[whole_s * chance.uniform(0.2, 1.0) for _ in range(at_once)])
        count += ran
        whole_s *= 1.0 if ran else 0.7  # a machine that was busy has time now
        known, before = keys(data), known
        assert set(known) >= set(before)
    run_to_the_end(ingest)
    assert len(keys(data)) == _LINES * (rounds + 1) + sum(range(rounds + 1))


@needs_java
@pytest.mark.integration
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.long)])
def test_ingests_on_spark_killed_at_any_moment_count_every_line_once(
    tmp_path: Path, kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java and the driver die together, or a worker first, and what a killed one has written is never seen."""
    # What is kept of Spark's jars for later sessions outlives the run: to fetch and archive them took half of the work.
    # An archive of classes costs more than it saves the three sessions of one kill, which have no place for it.
    monkeypatch.setenv("XDG_CACHE_HOME", str(CACHE / "spark") if kills > 1 else os.devnull)
    data, chance, count, ingests = tmp_path / "data", random.Random(11), 0, 1
    engine = ("--engine", "spark", "--master", "local[2]", *SMALL)
    ingest = command("ingest", "--out", data, "--timezone", "UTC", *engine, *source(tmp_path))
    log = broker_log(tmp_path, log_text(_LINES) + "rubbish\n")
    whole_s = run_to_the_end(ingest)
    while count < kills:
        log.write_text(log_text(_LINES) + "rubbish\n" + log_text(_LINES * ingests, first=_LINES))
        ingests += 1
        was_killed = killed([ingest], after_s=[whole_s * chance.uniform(0.4, 1.0)], is_worker=count % 2 == 1)
        count += was_killed
        whole_s *= 1.0 if was_killed else 0.7  # it takes less time than the first, which compiles
        assert len(keys(data)) in {_LINES * each for each in range(1, ingests + 1)}
    run_to_the_end(ingest)
    assert len(keys(data)) == _LINES * ingests
    assert DeltaTable(data / "quarantine").to_pyarrow_table().num_rows == 1


@needs_java
@pytest.mark.integration
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.long)])
def test_streams_killed_at_any_moment_count_every_event_once(tmp_path: Path, kills: int) -> None:
    """A batch is a file of events, of which there are more than batches between two kills."""
    data, live, chance, count = tmp_path / "data", tmp_path / "live", random.Random(13), 0
    folder, quotas = tmp_path / "log", tmp_path / "quotas.yaml"
    folder.mkdir()
    quotas.write_text("entries:\n  - {entity: {user: u1}, quotas: {producer_byte_rate: 100k}}\n")
    engine = ("--master", "local[2]", *SMALL)
    stream = command(
        "stream", folder, "--quotas", quotas, "--out", live, "--event-log", data, "--batch-size", 1, *engine
    )
    for batches in range(1, 4):
        write_events(folder, batches - 1)
    whole_s = killed_soon_after([*stream, "--interval", "10ms"], live, share=chance.uniform(0.0, 0.2))
    for kill in range(1, kills):
        for _ in range(4):
            write_events(folder, batches)
            batches += 1
        after_s = [whole_s * chance.uniform(0.5, 1.2)]
        count += killed([[*stream, "--interval", "10ms"]], after_s=after_s, is_worker=kill % 2 == 1)
        assert len(keys_of_stream(data)) % _EVENTS == 0
    run_to_the_end([*stream, "--once"])
    assert count or kills == 1
    assert keys_of_stream(data) == [_START_MS + number for number in range(_EVENTS * batches)]
    rows = DeltaTable(live).to_pyarrow_table().to_pylist()
    assert sum(row["events"] for row in rows) == _EVENTS * batches
    assert sorted(row["batch_id"] for row in rows) == sorted([*range(batches)] * 3)
    assert {row["total_events"] for row in rows if row["batch_id"] == batches - 1} == {_EVENTS * batches // 3}


def keys_of_stream(data: Path) -> list[int]:
    """The times of all events, which differ."""
    if not any((data / "events").glob("dt=2*/*.parquet")):
        return []
    files = DeltaTable(data / "events").file_uris()
    found = duckdb.execute("SELECT unnest(ts_ms) FROM read_parquet(?) ORDER BY 1", [files]).fetchall()
    rows = DeltaTable(data / "events").to_pyarrow_table(columns=["ts_ms"])["ts_ms"].to_pylist()
    assert [at_ms for (at_ms,) in found] == sorted(at_ms for row in rows for at_ms in row)
    return [at_ms for (at_ms,) in found]


def write_events(folder: Path, batch: int) -> None:
    """Write a file of events of three users, and let it appear whole."""
    lines = []
    for number in range(batch * _EVENTS, (batch + 1) * _EVENTS):
        client = {"user": f"u{number % 3}", "client_id": "app", "ip": "10.0.0.7", "connection": number % 3}
        charge = {"quota_type": "produce", "bytes": 1000, "thread_ms": 0, "mutations": 0, "throttle_ms": 1}
        event = {"v": 1, "ts_ms": _START_MS + number, "cluster": "c", "broker_id": 1, "api_key": 0}
        lines.append(json.dumps({**event, **client, **charge, "is_exempt": False}))
    hidden = folder / f".{batch}"
    hidden.write_text("\n".join(lines) + "\n")
    os.utime(hidden, (batch, batch))  # the order in which Spark takes them
    hidden.rename(folder / f"events-{batch}.jsonl")


_PROGRAM = """
import json, os, time
from pathlib import Path
from kafka_quotas.core.formats.metric_names import BUILT_IN
from kafka_quotas.pipeline.formats.task import InputFormat
from kafka_quotas.pipeline.formats.task import IngestTask
from kafka_quotas.pipeline.ingest.ingested_tables import workers

if __name__ == "__main__":
    os.cpu_count = lambda: 2
    task = IngestTask(
        number=0, path=Path("f"), input_format=InputFormat.DAEMON_EVENTS, cluster="c",
        broker_id=1, zone=None, names=BUILT_IN, ts_ms=0,
    )
    with workers([task, task], 10**9) as pool:
        print(json.dumps([pool.submit(os.getpid).result(), pool.submit(os.getppid).result()]), flush=True)
        time.sleep(600)
"""


def test_no_worker_outlives_an_ingest_that_was_killed(tmp_path: Path) -> None:
    program = tmp_path / "ingesting.py"
    program.write_text(_PROGRAM, encoding="utf-8")
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        workers = json.loads(process.stdout.readline())
        process.kill()
    await_true(lambda: not any(_is_running(pid) for pid in workers), f"{workers} have ended", timeout_s=30)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
