"""Spark's ways to run jobs, each with a real server, against the local engine: the same rows."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.support.brokers.java_process import java
from tests.support.brokers.maven import HADOOP_AWS, MissingServerError, jars
from tests.support.pipeline.command_process import TIMEOUT_S, started, told_by
from tests.support.pipeline.hdfs import hdfs
from tests.support.pipeline.logs import SAMPLE_LINES, SAMPLES, log_text, table_rows
from tests.support.pipeline.packed_environment import packed_environment
from tests.support.pipeline.s3_gateway import BUCKET, s3_gateway, upload
from tests.support.pipeline.spark_servers import (
    QUICK_EXECUTORS,
    SMALL,
    batch_pids,
    executor_pids,
    spark_cluster,
    spark_connect,
    worker_pids,
)
from tests.support.processes.awaiting import await_true

from kafka_quotas.cli.pipeline.options import proposal_of_file
from kafka_quotas.pipeline.stream.lines import read_lines
from kafka_quotas.pipeline.stream.state import Partitioner, PartState
from kafka_quotas.pipeline.tables.schemas import CLIENT_THROTTLE, EVENTS, METRICS, QUARANTINE, TableSchema

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(java() is None, reason="Spark needs Java, and there is none here"),
    pytest.mark.timeout(2700),
]
_SPLIT_BYTES = 10_000
"""Size of the splits of logs in a bucket, several in the largest of them."""
_ASKED_S = 3.0
"""Until a command has asked for a batch that its server has offered, nearly always."""
_WINDOW = ("--quota-window-num", "3")
TABLES = {
    "usage": ("usage", "usage_profile"),
    "replay": ("whatif", "throttle_spans"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Logs of all kinds, quotas, and the tables that the local engine makes of them."""

    logs: Path
    quotas: Path
    tables: Path


def commands(
    logs: Sequence[str | Path], quotas: Path, out: str | Path, engine: tuple[str, ...], *, replayed: str | Path = ""
) -> list[tuple[str, ...]]:
    """An ingest, and the usage and a replay of its events, on one engine, the replay to a place of its own if asked."""
    sources = [option for each in logs for option in ("--source", f"{each}/{{broker_id}}/*")]
    grouped = str(quotas.with_name("groups.yaml"))
    data, table, outcomes = f"{out}/data", ("--output", "json"), f"{replayed or out}/replay"
    return [
        ("pipeline", "ingest", *sources, "--timezone", "UTC", "--out", data, *engine),
        ("pipeline", "usage", data, *_WINDOW, "--quotas", str(quotas), "--out", f"{out}/usage", *table, *engine),
        ("pipeline", "replay", data, *_WINDOW, str(quotas), grouped, "--out", outcomes, "--spans", *table, *engine),
    ]


def rows(folder: str | Path, table: str) -> list[dict[str, Any]]:
    place = f"{folder}/{table}".rstrip("/").replace("s3a://", "s3://")
    found: list[dict[str, Any]] = DeltaTable(place).to_pyarrow_table().to_pylist()
    return sorted(({name: row[name] for name in row if name != "run_id"} for row in found), key=repr)


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
    (folder / "groups.yaml").write_text(
        quotas.read_text() + "group:\n  - {name: all, members: [{user_pattern: '*'}], producer_byte_rate: 50k}\n"
    )
    told_by(started(commands([logs.parent], quotas, folder / "local", ("--engine", "local"))))
    return Recorded(logs=logs.parent, quotas=quotas, tables=folder / "local")


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The master of a standalone cluster of two workers, and its folder."""
    folder = tmp_path_factory.mktemp("standalone")
    with spark_cluster(folder, workers=2) as master:
        yield master, folder


@pytest.fixture(scope="module")
def stores(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], str]]:
    """The variables of an S3 gateway, whose bucket has the logs of real brokers, and the URL of HDFS, with the rest."""
    try:
        jars(HADOOP_AWS)
        with s3_gateway(tmp_path_factory.mktemp("s3")) as variables, hdfs(tmp_path_factory.mktemp("hdfs")) as system:
            for log in sorted(recorded.logs.glob("*/*")):
                if int(log.parent.name) in SAMPLES:
                    upload(variables, log, f"logs/{log.parent.name}/{log.name}")
            others = [each for each in recorded.logs.iterdir() if int(each.name) not in SAMPLES]
            system.upload(*others)
            yield variables, system.url
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
    # First of all: its worker processes compile the kernels, which executors would do side by side.
    engine = ("--master", master, *SMALL)
    told = told_by(started(commands([recorded.logs], recorded.quotas, tmp_path, engine)))
    require_equal(tmp_path, recorded, ("usage", "replay"), master, told)


@pytest.mark.long
def test_a_stream_on_a_connect_server_outlasts_a_kill_of_its_command(
    tmp_path: Path, recorded: Recorded, connect: tuple[str, Path]
) -> None:
    master, folder = connect
    engine = ("--master", master, *SMALL)
    batches = event_logs(tmp_path / "log")
    source, out = str(tmp_path / "log"), tmp_path / "live"
    stream = ("stream", source, "--once", "--batch-size", "1", "--quotas", str(recorded.quotas), "--out", str(out))
    told = told_after_a_kill(("pipeline", *stream, *engine), out, folder)
    live = rows(out, "")
    assert live == sorted(streamed(batches, recorded.quotas), key=repr)
    assert {row["batch_id"] for row in live} == {0, 1}
    assert sum(row["late_events"] for row in live) == 1
    assert "batch 1: 41 events, 4 buckets, 1 charges too late, 1 that can't be read" in told


def told_after_a_kill(stream: tuple[str, ...], out: Path, server: Path) -> str:
    """What a stream says that is killed and started again while the server works for the killed one.

    The workers of the first stand still in its second batch until the other one takes the same batch.
    """
    begun = out / "_checkpoint" / "offsets" / "1"

    def await_in(process: "subprocess.Popen[str]", condition: Callable[[], bool], what: str) -> None:
        await_true(lambda: condition() or process.poll() is not None, what, timeout_s=TIMEOUT_S)
        assert process.poll() is None, process.communicate()[1]

    first = started([stream])
    stopped: list[int] = []
    try:
        await_in(first, lambda: any(out.glob("_delta_log/*0.json")), "the first batch")
        stopped = worker_pids(server)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        await_in(first, begun.exists, "the second batch")
        time.sleep(_ASKED_S)
        first.kill()
        first.communicate()
        second = started([stream])
        await_in(second, lambda: len(batch_pids(server)) == 2, "the other command's stream")
        time.sleep(_ASKED_S)
    finally:
        first.kill()
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    return told_by(second)


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
        pieces = Partitioner(proposal, parts=1).pieces(
            each.charges for each in read_lines([pa.record_batch([pa.array(lines)], ["value"])])
        )
        yield from state.take((each for _, each in pieces), horizons, batch_id=number).to_pylist()


@pytest.mark.long
def test_a_cluster_ingests_and_replays_in_a_bucket_and_on_hdfs_through_kills_of_executors(
    tmp_path: Path,
    recorded: Recorded,
    standalone: tuple[str, Path],
    stores: tuple[dict[str, str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master, folder = standalone
    before = applications(folder)
    store, hdfs_url = stores
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
        *("--master", master, *QUICK_EXECUTORS, *SMALL),
        *("--spark-conf", f"spark.driver.extraClassPath={found}/*"),
        *("--spark-conf", f"spark.executor.extraClassPath={found}/*"),
        *(f"--spark-conf=spark.hadoop.fs.s3a.{name}={text}" for name, text in known_to_spark.items()),
        *("--spark-conf", f"spark.sql.files.maxPartitionBytes={_SPLIT_BYTES}"),
    )
    out = f"s3a://{BUCKET}/out"
    logs = [f"s3a://{BUCKET}/logs", hdfs_url]
    ingest, _, _ = commands(logs, recorded.quotas, out, engine)  # usage is in the test above
    # One executor replays: two have ingested.
    alone = (*engine, "--spark-conf", "spark.cores.max=1")
    _, _, replay = commands([], recorded.quotas, out, alone, replayed=hdfs_url)
    process = started([("large", "0"), ingest, replay])
    try:
        os.kill(running_executor(folder, before, process), signal.SIGKILL)
        os.kill(running_executor(folder, applications(folder), process), signal.SIGKILL)
    finally:
        told = told_by(process)
    # each has one in place of the killed one
    assert sorted(executors(folder, before).values(), key=len) == [{"0", "1"}, {"0", "1", "2"}]
    for name, value in store.items():
        monkeypatch.setenv(name, value)
    require_equal(out, recorded, ("replay",), master, told, tables=hdfs_url)


def require_equal(
    out: str | Path, recorded: Recorded, jobs: tuple[str, ...], master: str, told: str, *, tables: str | Path = ""
) -> None:
    """Compare the tables of an ingest and some jobs on Spark with those of the local engine.

    `tables` is where those of the jobs are, if elsewhere.
    """
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
            assert rows(f"{tables or out}/{job}", name) == expected, name


@pytest.mark.long
def test_executors_without_numba_are_refused_before_the_first_stage(
    tmp_path: Path, recorded: Recorded, standalone: tuple[str, Path]
) -> None:
    sent = ("--env-archive", str(packed_environment(tmp_path)))
    usage = ("usage", str(recorded.tables / "data"), "--quotas", str(recorded.quotas))
    process = started([("pipeline", *usage, "--master", standalone[0], *sent, *QUICK_EXECUTORS, *SMALL)])
    _, told = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert "error: executors have no numba\nhint: --env-archive sends them" in told


def applications(folder: Path) -> set[str]:
    """The applications that there were so far."""
    return {each.name for each in folder.glob("work*/app-*")}


def executors(folder: Path, before: set[str]) -> dict[str, set[str]]:
    """The numbers of the executors of each new application, by its name."""
    found: dict[str, set[str]] = {}
    for each in folder.glob("work*/app-*"):
        if each.name not in before:
            found.setdefault(each.name, set()).update(own.name for own in each.iterdir())
    return found


def running_executor(folder: Path, before: set[str], process: "subprocess.Popen[str]") -> int:
    """The process id of the executor of a new application, once it has begun with a job: stage 0 asks for libraries."""
    begun: list[Path] = []

    def has_begun() -> bool:
        own = [each for each in folder.glob("work*/app-*") if each.name not in before]
        begun.extend(log.parent for each in own for log in each.glob("*/stderr") if _runs_a_task(log))
        return bool(begun) or process.poll() is not None

    await_true(has_begun, "an executor begins with a task", timeout_s=TIMEOUT_S)
    assert begun, f"no executor began with a task: {process.communicate()[1]}"
    return executor_pids(begun[0])[0]


def _runs_a_task(log: Path) -> bool:
    return log.is_file() and re.search(r"Running task .* in stage (?!0\.)", log.read_text(errors="replace")) is not None
