"""A killed ingest of files that processes parse: its workers end by themselves."""

import json
import subprocess
import sys
from pathlib import Path

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
