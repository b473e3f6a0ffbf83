"""Killed ingests: every reader of Delta tables sees each line once at any moment, and workers end by themselves."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

from deltalake import DeltaTable
from tests.support.pipeline.ingested_folder import broker_log, source
from tests.support.pipeline.logs import log_text
from tests.support.processes.awaiting import await_true

_DEADLINE_S = 30
_PROGRAM = """
import json, os, time
from pathlib import Path
from kafka_quotas.core.formats.metric_names import BUILT_IN
from kafka_quotas.pipeline.formats.task import InputFormat
from kafka_quotas.pipeline.formats.task import IngestTask
from kafka_quotas.pipeline.ingest.local_engine import workers

if __name__ == "__main__":
    os.cpu_count = lambda: 2
    task = IngestTask(
        number=0, file_number=0, path=Path("f"), input_format=InputFormat.DAEMON_EVENTS, cluster="c",
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
    await_true(lambda: not any(_is_running(pid) for pid in workers), f"{workers} have ended", timeout_s=_DEADLINE_S)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


_KILLS = 6
_LINES = 40


def test_ingests_killed_at_any_moment_count_every_line_once(tmp_path: Path) -> None:
    data, chance, killed = tmp_path / "data", random.Random(7), 0
    command = [sys.executable, "-m", "kafka_quotas", "pipeline", "ingest", "--out", str(data), "--timezone", "UTC"]
    command += ["--engine", "local", *source(tmp_path)]
    begun_s = time.monotonic()
    log = broker_log(tmp_path, log_text(_LINES))
    subprocess.run(command, check=True, capture_output=True)
    whole_s = time.monotonic() - begun_s
    for kill in range(1, _KILLS + 1):
        log.write_text(log_text(_LINES * (kill + 1)))
        broker_log(tmp_path, log_text(kill), broker_id=1 + kill)
        known = _events(data)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(whole_s * chance.uniform(0.3, 1.0))
            killed += process.poll() is None
            process.kill()
        assert _events(data) in (known, _LINES * (kill + 1) + sum(range(kill + 1)))
    subprocess.run(command, check=True, capture_output=True)
    assert killed
    assert _events(data) == _LINES * (_KILLS + 1) + sum(range(_KILLS + 1))


def _events(data: Path) -> int:
    return sum(DeltaTable(data / "events").to_pyarrow_table(columns=["events"])["events"].to_pylist())
