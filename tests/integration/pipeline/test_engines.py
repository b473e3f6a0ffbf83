"""Spark's ways to run jobs, each with a real server, against the local engine: the same rows."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support.brokers.java_process import java
from tests.support.pipeline.logs import ROOT, SAMPLE_LINES, log_text, table_rows
from tests.support.pipeline.packed_environment import packed_environment
from tests.support.pipeline.spark_servers import spark_cluster, spark_connect
from tests.support.processes.awaiting import await_true

from kafka_quotas.pipeline.tables.schemas import CLIENT_THROTTLE, EVENTS, METRICS, QUARANTINE

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(java() is None, reason="Spark needs Java, and there is none here"),
    pytest.mark.timeout(2700),
]
_TIMEOUT_S = 1200
_EXECUTOR = b"CoarseGrainedExecutorBackend"
_WINDOW = ("--quota-window-num", "3")
_QUICK_START = ("--spark-conf", "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1")
"""For executors that live for seconds; a Connect server has none, and does not let its settings be changed."""
_SMALL = (
    *("--spark-conf", "spark.sql.shuffle.partitions=2"),
    *("--spark-conf", "spark.sql.codegen.wholeStage=false"),
    *("--spark-conf", "spark.sql.codegen.factoryMode=NO_CODEGEN"),
)
"""For data so small that Java would be busy with compiling each query for most of the time."""
TABLES = {
    "usage": ("entities", "usage", "usage_profile"),
    "replay": ("entities", "whatif", "throttle_spans"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Logs of all kinds, quotas, and the tables that the local engine makes of them."""

    logs: Path
    quotas: Path
    tables: Path


def commands(logs: Path, quotas: Path, out: Path, engine: tuple[str, ...]) -> list[tuple[str, ...]]:
    """An ingest, and the usage and a replay of its events, on one engine."""
    sources = ("--source", "examples/request-log/{broker_id}/*.gz", "--source", f"{logs}/{{broker_id}}/*")
    data, table = str(out / "data"), ("--output", "csv")
    return [
        ("pipeline", "ingest", *sources, "--timezone", "UTC", "--out", data, *engine),
        ("pipeline", "usage", data, *_WINDOW, "--quotas", str(quotas), "--out", str(out / "usage"), *table, *engine),
        ("pipeline", "replay", data, *_WINDOW, str(quotas), "--out", str(out / "replay"), "--spans", *table, *engine),
    ]


def environment() -> dict[str, str]:
    """The variables of a user who has set none of Spark's but the ones by which a test's Java starts quickly."""
    kept = {"SPARK_SUBMIT_OPTS"}
    return {key: value for key, value in os.environ.items() if key in kept or not key.startswith(("PYSPARK", "SPARK"))}


def started(series: list[tuple[str, ...]]) -> "subprocess.Popen[str]":
    """The process of commands that run one after the other."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.processes.command_series", *(json.dumps(each) for each in series)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def told_by(process: "subprocess.Popen[str]") -> str:
    """What a process says on standard error, which must end well."""
    try:
        _, told = process.communicate(timeout=_TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 0, told
    return told


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(folder / table).to_pyarrow_table().to_pylist()
    return found


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Brokers' logs with rubbish in them, scrapes and statistics, and what the local engine makes of them."""
    folder = tmp_path_factory.mktemp("recorded")
    logs = folder / "logs" / "3"
    logs.mkdir(parents=True)
    (logs / "kafka-request.log").write_text(log_text(50) + "rubbish\n" + log_text(10, first=50)[:-30])
    (logs / "1795262400.prom").write_text('kafka_server_produce_byte_rate{user="u",client_id=""} 5 1795262400000\n')
    (logs / "client.txt").write_text("producer-metrics:produce-throttle-time-avg:{client-id=p} : 12.5\n")
    quotas = folder / "quotas.yaml"
    quotas.write_text(
        "entries:\n  - {entity: {user: null}, quotas: {producer_byte_rate: 60k, request_percentage: 1}}\n"
    )
    told_by(started(commands(logs.parent, quotas, folder / "local", ("--engine", "local"))))
    return Recorded(logs=logs.parent, quotas=quotas, tables=folder / "local")


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A standalone cluster's master, and its folder."""
    folder = tmp_path_factory.mktemp("standalone")
    with spark_cluster(folder) as master:
        yield master, folder


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A Connect server's address, and its folder."""
    folder = tmp_path_factory.mktemp("connect")
    with spark_connect(folder) as master:
        yield master, folder


@pytest.mark.parametrize(
    ("server", "jobs"),
    [
        pytest.param("standalone", ("ingest", "replay"), id="standalone"),  # usage is in the next test
        pytest.param("connect", ("ingest", "usage", "replay"), id="connect"),
    ],
)
def test_jobs_on_spark_give_the_rows_of_the_local_engine(
    tmp_path: Path, recorded: Recorded, server: str, jobs: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    master, _ = request.getfixturevalue(server)
    quick = _QUICK_START if server == "standalone" else ()
    engine = ("--master", master, "--spark-log", str(tmp_path / "spark.log"), *quick, *_SMALL)
    series = [each for each in commands(recorded.logs, recorded.quotas, tmp_path, engine) if each[1] in jobs]
    if server == "standalone":  # Java runs already, and on this machine alone the tables of random events are equal too
        series.append(("compare", str(tmp_path / "compared")))
    told = told_by(started(series))
    compared = re.search(r"(\d+) cells and (\d+) throttles are equal", told)
    assert (compared is not None) == (server == "standalone")
    assert compared is None or min(int(compared[1]), int(compared[2])) > 1_000
    assert told.count(f"note: engine spark: --master {master} was given") == len(jobs)
    assert "WARN" not in told  # Spark's own noise is in the log
    for table, least in ((EVENTS, 2 * SAMPLE_LINES + 59), (QUARANTINE, 2), (METRICS, 1), (CLIENT_THROTTLE, 1)):
        found = table_rows(tmp_path / "data", table)
        assert len(found) >= least
        if table is CLIENT_THROTTLE:  # its time is the file's own: the same file, the same time
            assert found[0]["throttle_ms"] == 12.5
        assert found == table_rows(recorded.tables / "data", table)
    for job in jobs[1:]:
        for name in TABLES[job]:
            expected = rows(recorded.tables / job, name)
            assert expected
            assert rows(tmp_path / job, name) == expected, name


def test_a_killed_executor_and_one_without_numba_change_no_row(
    tmp_path: Path, recorded: Recorded, standalone: tuple[str, Path]
) -> None:
    master, folder = standalone
    before = set((folder / "work").glob("app-*"))
    engine = (
        "--master",
        master,
        "--spark-log",
        str(tmp_path / "log"),
        "--env-archive",
        str(packed_environment(tmp_path)),
        *_QUICK_START,
        *_SMALL,
    )
    usage = ("usage", str(recorded.tables / "data"), *_WINDOW, "--quotas", str(recorded.quotas))
    process = started([("pipeline", *usage, "--out", str(tmp_path / "usage"), *engine)])
    try:
        executor = running_executor(folder / "work", before, process)
        os.kill(executor, signal.SIGKILL)
    finally:
        told = told_by(process)
    assert "kernels ran in NumPy, for numba is not installed everywhere: equal results, slower" in told
    (application,) = set((folder / "work").glob("app-*")) - before
    assert sorted(each.name for each in application.iterdir()) == ["0", "1"]  # the killed one, and the one after it
    for name in TABLES["usage"]:
        assert rows(tmp_path / "usage", name) == rows(recorded.tables / "usage", name), name


def running_executor(work: Path, before: set[Path], process: "subprocess.Popen[str]") -> int:
    """The process id of the executor of a new application, once it has begun with a task."""
    begun: list[Path] = []

    def has_begun() -> bool:
        begun.extend(each for each in set(work.glob("app-*")) - before if _runs_a_task(each / "0" / "stderr"))
        return bool(begun) or process.poll() is not None

    await_true(has_begun, "an executor begins with a task", timeout_s=_TIMEOUT_S)
    assert begun, f"no executor began with a task: {process.communicate()[1]}"
    return next(pid for pid in _processes(begun[0] / "0") if _EXECUTOR in _command(pid))


def _runs_a_task(log: Path) -> bool:
    return log.is_file() and re.search(r"Running task .* in stage", log.read_text(errors="replace")) is not None


def _processes(folder: Path) -> Iterator[int]:
    """The processes that run in a folder."""
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if (each / "cwd").resolve() == folder.resolve():
                yield int(each.name)
        except OSError:
            continue  # it has ended meanwhile


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
