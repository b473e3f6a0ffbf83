"""Spark's ways to run jobs, each with a real server, against the local engine: the same rows."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.support.brokers.java_process import java
from tests.support.brokers.maven import HADOOP_AWS, MissingServerError, jars
from tests.support.pipeline.logs import ROOT, SAMPLE_LINES, SAMPLES, log_text, table_rows
from tests.support.pipeline.packed_environment import packed_environment
from tests.support.pipeline.s3_gateway import BUCKET, s3_gateway, upload
from tests.support.pipeline.spark_servers import QUICK_EXECUTORS, SMALL, executor_pids, spark_cluster, spark_connect
from tests.support.processes.awaiting import await_true

from kafka_quotas.cli.pipeline.proposals import proposal_of_file
from kafka_quotas.pipeline.stream.bucket_charges import Partitioner, unpacked_charges
from kafka_quotas.pipeline.stream.lines import read_lines
from kafka_quotas.pipeline.stream.state import PartState
from kafka_quotas.pipeline.tables.schemas import CLIENT_THROTTLE, EVENTS, METRICS, QUARANTINE
from kafka_quotas.pipeline.tables.table import TableSchema

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(java() is None, reason="Spark needs Java, and there is none here"),
    pytest.mark.timeout(2700),
]
_TIMEOUT_S = 1200
_SPLIT_BYTES = 10_000
"""Size of the splits of logs in a bucket, several in the largest of them."""
_WINDOW = ("--quota-window-num", "3")
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


def commands(logs: str | Path, quotas: Path, out: str | Path, engine: tuple[str, ...]) -> list[tuple[str, ...]]:
    """An ingest, and the usage and a replay of its events, on one engine."""
    sources = ("--source", f"{logs}/{{broker_id}}/*")
    data, table = f"{out}/data", ("--output", "json")
    return [
        ("pipeline", "ingest", *sources, "--timezone", "UTC", "--out", data, *engine),
        ("pipeline", "usage", data, *_WINDOW, "--quotas", str(quotas), "--out", f"{out}/usage", *table, *engine),
        ("pipeline", "replay", data, *_WINDOW, str(quotas), "--out", f"{out}/replay", "--spans", *table, *engine),
    ]


def environment() -> dict[str, str]:
    """The variables of a user who has none of a store's, and of Spark's those by which a test's Java starts quickly."""
    kept, none = {"SPARK_SUBMIT_OPTS"}, ("PYSPARK", "SPARK", "AWS_")
    return {key: value for key, value in os.environ.items() if key in kept or not key.startswith(none)}


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


def rows(folder: str | Path, table: str) -> list[dict[str, Any]]:
    place = f"{folder}/{table}".rstrip("/").replace("s3a://", "s3://")
    found: list[dict[str, Any]] = DeltaTable(place).to_pyarrow_table().to_pylist()
    return sorted(found, key=repr)


def ingested_rows(folder: str | Path, table: TableSchema) -> list[dict[str, Any]]:
    """The rows of an ingest, by what they have in common wherever their files lie."""
    found = table_rows(folder, table)
    for row in found:
        row["src_file"] = row["src_file"].rpartition("/")[2]
        if table is CLIENT_THROTTLE:
            assert row.pop("ts_ms")  # when the file was written, which is another time in a bucket
    return sorted(found, key=repr)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Brokers' logs with rubbish in them, scrapes and statistics, and what the local engine makes of them."""
    folder = tmp_path_factory.mktemp("recorded")
    logs = folder / "logs" / "3"
    logs.mkdir(parents=True)
    for broker_id, sample in SAMPLES.items():
        (logs.parent / str(broker_id)).mkdir()
        shutil.copy(sample, logs.parent / str(broker_id))
    (folder / "logs" / "4").mkdir()
    (folder / "logs" / "4" / "kafka-request.log").write_text(log_text(60))
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
    """The master of a standalone cluster of two workers, and its folder."""
    folder = tmp_path_factory.mktemp("standalone")
    with spark_cluster(folder, workers=2) as master:
        yield master, folder


@pytest.fixture(scope="module")
def store(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables by which programs find an S3 gateway, whose bucket has the recorded logs."""
    try:
        jars(HADOOP_AWS)
        with s3_gateway(tmp_path_factory.mktemp("s3")) as variables:
            for log in sorted(recorded.logs.glob("*/*")):
                upload(variables, log, f"logs/{log.parent.name}/{log.name}")
            yield variables
    except MissingServerError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A Connect server's address, and its folder."""
    folder = tmp_path_factory.mktemp("connect")
    with spark_connect(folder) as master:
        yield master, folder


def test_a_connect_server_gives_the_rows_of_the_local_engine(
    tmp_path: Path, recorded: Recorded, connect: tuple[str, Path]
) -> None:
    master, _ = connect
    # First of all: its one worker process compiles the kernels, which two executors would do side by side.
    engine = ("--master", master, "--spark-log", str(tmp_path / "spark.log"), *SMALL)
    stream = (
        "pipeline",
        "stream",
        str(tmp_path / "log"),
        "--once",
        "--batch-size",
        "1",
        "--out",
        str(tmp_path / "live"),
    )
    batches = event_logs(tmp_path / "log")
    jobs = [
        *commands(recorded.logs, recorded.quotas, tmp_path, engine),
        (*stream, "--quotas", str(recorded.quotas), *engine),
    ]
    told = told_by(started(jobs))
    require_equal(tmp_path, recorded, ("usage", "replay"), master, told)
    live = rows(tmp_path / "live", "")
    assert live == sorted(streamed(batches, recorded.quotas), key=repr)
    assert {row["batch_id"] for row in live} == {0, 1}
    assert sum(row["late_events"] for row in live) == 1
    assert "batch 1: 41 events, 4 buckets, 1 charges too late, 1 that can't be read" in told


def event_logs(folder: Path) -> list[list[bytes]]:
    """The lines of two files of the daemon's event log, which are two batches of a stream."""
    folder.mkdir()
    batches = [[event_line(number) for number in range(first, first + 40)] for first in (0, 40)]
    batches[1] += [event_line(-60_000), b"rubbish"]
    for number, lines in enumerate(batches):
        file = folder / f"events-{number}.jsonl"
        file.write_bytes(b"\n".join(lines) + b"\n")
        os.utime(file, (number, number))  # the order in which Spark takes them
    return batches


def event_line(number: int) -> bytes:
    client = {"user": f"u{number % 4}", "client_id": "app", "ip": "10.0.0.7", "connection": number % 3}
    charge = {"quota_type": "produce", "bytes": 10_000 + number % 7, "thread_ms": 0, "mutations": 0, "throttle_ms": 1}
    event = {"v": 1, "ts_ms": 1_763_726_400_000 + number, "cluster": "c", "broker_id": 1, "api_key": 0}
    return json.dumps({**event, **client, **charge, "is_exempt": False}).encode()


def streamed(batches: list[list[bytes]], quotas: Path) -> Iterator[dict[str, Any]]:
    """The rows of a stream's batches by its arithmetic alone, without Spark."""
    proposal = proposal_of_file(str(quotas))
    state = PartState(proposal)
    for number, lines in enumerate(batches):
        horizons = {broker: at_ms - 10_000 for broker, at_ms in state.clocks_ms().items()}
        pieces = Partitioner(proposal, parts=1).pieces([read_lines(pa.array(lines)).charges])
        yield from state.take([unpacked_charges(each) for _, each in pieces], horizons, batch_id=number).to_pylist()


def test_a_cluster_reads_logs_in_a_bucket_and_writes_its_tables_there(
    tmp_path: Path,
    recorded: Recorded,
    standalone: tuple[str, Path],
    store: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master, _ = standalone
    known_to_spark = {
        "endpoint": store["AWS_ENDPOINT_URL"],
        "endpoint.region": store["AWS_REGION"],
        "access.key": store["AWS_ACCESS_KEY_ID"],
        "secret.key": store["AWS_SECRET_ACCESS_KEY"],
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
    }
    found = jars(HADOOP_AWS)  # on the class path, as on clusters that work with S3: it is not sent to each executor
    engine = (
        *("--master", master, "--spark-log", str(tmp_path / "spark.log"), *QUICK_EXECUTORS, *SMALL),
        *("--spark-conf", f"spark.driver.extraClassPath={found}/*"),
        *("--spark-conf", f"spark.executor.extraClassPath={found}/*"),
        *(f"--spark-conf=spark.hadoop.fs.s3a.{name}={text}" for name, text in known_to_spark.items()),
        *("--spark-conf", f"spark.sql.files.maxPartitionBytes={_SPLIT_BYTES}"),
    )
    out = f"s3a://{BUCKET}/out"
    ingest, _, _ = commands(f"s3a://{BUCKET}/logs", recorded.quotas, out, engine)  # usage is in the test above
    # One executor replays: two have ingested, and two do a job in the test below.
    _, _, replay = commands("", recorded.quotas, out, (*engine, "--spark-conf", "spark.cores.max=1"))
    told = told_by(started([("large", "0"), ingest, replay, ("compare", str(tmp_path / "compared"))]))
    compared = re.search(r"(\d+) cells and (\d+) throttles are equal", told)  # Java runs already
    assert compared is not None
    assert min(int(compared[1]), int(compared[2])) > 1_000
    for name, value in store.items():
        monkeypatch.setenv(name, value)
    require_equal(out, recorded, ("replay",), master, told)


def require_equal(out: str | Path, recorded: Recorded, jobs: tuple[str, ...], master: str, told: str) -> None:
    """Compare the tables of an ingest and some jobs on Spark with those of the local engine."""
    assert told.count(f"note: using the spark engine (--master {master} was given)") == 1 + len(jobs)
    assert "WARN" not in told  # Spark's own noise is in the log
    for table, least in ((EVENTS, 2 * SAMPLE_LINES + 119), (QUARANTINE, 2), (METRICS, 1), (CLIENT_THROTTLE, 1)):
        found = ingested_rows(f"{out}/data", table)
        assert len(found) >= least
        assert found == ingested_rows(recorded.tables / "data", table)
    for job in jobs:
        for name in TABLES[job]:
            expected = rows(recorded.tables / job, name)
            assert expected
            assert rows(f"{out}/{job}", name) == expected, name


def test_a_killed_executor_and_one_without_numba_change_no_row(
    tmp_path: Path, recorded: Recorded, standalone: tuple[str, Path]
) -> None:
    master, folder = standalone
    before = set(folder.glob("work*/app-*"))
    engine = (
        "--master",
        master,
        "--spark-log",
        str(tmp_path / "log"),
        "--env-archive",
        str(packed_environment(tmp_path)),
        *QUICK_EXECUTORS,
        *SMALL,
    )
    usage = ("usage", str(recorded.tables / "data"), *_WINDOW, "--quotas", str(recorded.quotas))
    process = started([("pipeline", *usage, "--out", str(tmp_path / "usage"), *engine)])
    try:
        executor = running_executor(folder, before, process)
        os.kill(executor, signal.SIGKILL)
    finally:
        told = told_by(process)
    assert "kernels ran in NumPy, for numba is not installed everywhere: equal results, slower" in told
    executors = {
        each.name for application in set(folder.glob("work*/app-*")) - before for each in application.iterdir()
    }
    assert executors == {"0", "1", "2"}  # one of each worker, and the one in place of the killed one
    for name in TABLES["usage"]:
        assert rows(tmp_path / "usage", name) == rows(recorded.tables / "usage", name), name


def running_executor(folder: Path, before: set[Path], process: "subprocess.Popen[str]") -> int:
    """The process id of the executor of a new application, once it has begun with a task."""
    begun: list[Path] = []

    def has_begun() -> bool:
        applications = set(folder.glob("work*/app-*")) - before
        begun.extend(log.parent for each in applications for log in each.glob("*/stderr") if _runs_a_task(log))
        return bool(begun) or process.poll() is not None

    await_true(has_begun, "an executor begins with a task", timeout_s=_TIMEOUT_S)
    assert begun, f"no executor began with a task: {process.communicate()[1]}"
    return executor_pids(begun[0])[0]


def _runs_a_task(log: Path) -> bool:
    return log.is_file() and re.search(r"Running task .* in stage", log.read_text(errors="replace")) is not None
