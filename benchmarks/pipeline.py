"""The pipeline's speed, cost and memory, beside DuckDB, plain PySpark and a replay in plain Python.

    python benchmarks/pipeline.py [--events 20e6] [--clients 10000] [--giant 0] [--cases usage,replay,...] [--data DIR]

Events are made up: Zipf over the clients, one hour, a table by client and time. Every case runs in a process of its
own, twice: what is told is the second run, so without start and compilation. Wall time counts only what an idle machine
would: beside it stand the processor seconds of the case (children included) and of everybody else meanwhile.
"""

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pipeline_plain
import pyarrow as pa

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.simulation import Algorithm, Event, EventOperation, new_limiter
from kafka_quotas.core.quotas.simulation import replay as replay_in_core
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.job import ignore_progress
from kafka_quotas.pipeline.engine.slices import run_here
from kafka_quotas.pipeline.engine.spark import packed_frame, run_job
from kafka_quotas.pipeline.engine.spark_session import spark_session
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
from kafka_quotas.pipeline.engine.sql import DuckTables, ResultRun, SparkTables, SqlTables
from kafka_quotas.pipeline.ingest.commits import IngestRecord, commit, records_of
from kafka_quotas.pipeline.ingest.plan import ReadFile
from kafka_quotas.pipeline.jobs.replay import Model, ReplayPlan, replay_job
from kafka_quotas.pipeline.jobs.usage.job import UsagePlan, UsageTables, usage_job
from kafka_quotas.pipeline.tables.arrow import compute
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.packed_events import PackedEvents, client_number, keep_memory, pack, unpack
from kafka_quotas.pipeline.tables.schemas import EVENTS, PACKED_EVENTS
from kafka_quotas.pipeline.tables.staged_files import write_staged

Timed = Callable[[Callable[[], int]], None]
"""Runs something that tells how many events, or events by limits, it did, and remembers what that took."""
FILE_EVENTS = 1 << 20
SLICE_EVENTS = 1 << 23
"""Events that are made at once: of more of one client each has a part of the time."""
BASE_MS = 1_795_262_400_000
PYTHON_EVENTS = 300_000
AIMS = {
    "usage": 8e6,
    "usage-spark": 3e6,
    "replay": 15e6,
    "replay-spark": 6e6,
    "sweep": 60e6,
}
LIMIT = 20_000.0
"""A quota in bytes/s that the busy clients exceed."""
USAGE_JOB = usage_job(UsagePlan(quotas=Proposal(name="nothing", entries=()), seconds=3600))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=float, default=20e6)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--giant", type=float, default=0.0, help="the share of all events that the first client has")
    parser.add_argument("--cases", default=",".join(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--data", type=Path, help="a folder of events that is kept and, if there, used again")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        run_case(options.case, options.data)
        return
    with tempfile.TemporaryDirectory() as folder:
        data = options.data or Path(folder) / "events"
        if not data.exists():
            make_events(data, int(options.events), options.clients, options.giant)
        print(f"{count(opened(data)):,} events, {os.cpu_count()} processors\n")
        print(f"{'case':26}{'M steps/s':>10}{'aim':>6}{'wall s':>9}{'CPU s':>8}{'others':>8}{'peak MiB':>10}")
        for case in options.cases.split(","):
            measure(case, data)


def measured(case: str, data: Path) -> dict[str, float]:
    """Return steps, seconds and peak memory of a case in a process of its own, or raise `RuntimeError`."""
    command = [sys.executable, __file__, "--case", case, "--data", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(case: str, data: Path) -> None:
    """One line of figures."""
    try:
        found = measured(case, data)
    except RuntimeError as error:
        print(f"{case:26} failed: {error}")
        return
    aim = f"{AIMS[case] / 1e6:g}" if case in AIMS else ""
    speed = found["steps"] / found["wall_s"] / 1e6
    print(
        f"{case:26}{speed:10.2f}{aim:>6}{found['wall_s']:9.2f}{found['cpu_s']:8.2f}{found['others_s']:8.2f}"
        f"{found['peak_mib']:10.0f}",
        flush=True,
    )


def run_case(case: str, data: Path) -> None:
    """Print the figures of the second of two runs as JSON."""
    twice: list[dict[str, float]] = []

    def timed(work: Callable[[], int]) -> None:
        for _ in range(2):
            wall, cpu, everybody = time.monotonic(), cpu_seconds(), machine_seconds()
            steps = work()
            own = cpu_seconds() - cpu
            twice.append(
                {
                    "steps": steps,
                    "wall_s": time.monotonic() - wall,
                    "cpu_s": own,
                    "others_s": max(machine_seconds() - everybody - own, 0.0),
                }
            )

    CASES[case](opened(data), timed)
    print(json.dumps({**twice[-1], "peak_mib": peak_mib()}))


def usage(data: PackedEvents, timed: Timed) -> None:
    """Measure the usage job on this machine, with its tables."""

    def work() -> int:
        tables = DuckTables()
        write_usage(tables, tables.add("usage", run_here(USAGE_JOB, data, watch=ignore_progress)))
        return count(data)

    timed(work)


def usage_spark(data: PackedEvents, timed: Timed) -> None:
    """Measure the usage job on Spark, with its tables."""
    with session() as spark:

        def work() -> int:
            tables = SparkTables(spark)
            rows = run_job(packed_frame(spark, data), USAGE_JOB, count=count(data))
            write_usage(tables, tables.name("usage", rows, keep=True))
            tables.forget()
            return count(data)

        timed(work)


def write_usage(tables: SqlTables, rows: str) -> None:
    with tempfile.TemporaryDirectory() as out:
        UsageTables.of(tables, rows).write(out, ResultRun.of("nothing", BASE_MS))


def usage_duckdb(data: PackedEvents, timed: Timed) -> None:
    """Cells of one second in DuckDB, without rates and profiles, from the loose events that the packed rows have."""
    query = (
        "select cluster, broker_id, user, client_id, quota_type, at_ms // 1000 as at_s, sum(size) as amount, "
        "count(*) as n from (select cluster, broker_id, user, client_id, quota_type, unnest(ts_ms) as at_ms, "
        f"unnest(bytes) as size from read_parquet({data.delta.file_uris()!r}, hive_partitioning=false)) group by all"
    )
    timed(lambda: duckdb.sql(query).to_arrow_table() is not None and count(data))


def replay(data: PackedEvents, timed: Timed, *, limits: int = 1, shared: bool = False) -> None:
    """Measure a replay in a closed loop on this machine, for each client or (`shared`) for each user."""
    job = replay_job(plan_of(limits, shared=shared))

    def work() -> int:
        return int(compute.sum(run_here(job, data, watch=ignore_progress)["n"]).as_py())

    timed(work)


def replay_spark(data: PackedEvents, timed: Timed, *, limits: int = 1, shared: bool = False) -> None:
    """Measure the same on Spark."""
    job = replay_job(plan_of(limits, shared=shared))
    with session() as spark:

        def work() -> int:
            rows = run_job(packed_frame(spark, data), job, count=count(data))
            return int(rows.selectExpr("sum(n) as n").toArrow()["n"][0].as_py())

        timed(work)


def usage_plain(data: PackedEvents, timed: Timed) -> None:
    """Measure plain DataFrame code that writes the same tables, with approximate rates."""
    with session() as spark:

        def work() -> int:
            with tempfile.TemporaryDirectory() as out:
                pipeline_plain.write_usage(packed_frame(spark, data), out, seconds=3600)
            return count(data)

        timed(work)


def replay_plain(data: PackedEvents, timed: Timed) -> None:
    """Measure the kernel by plain `mapInArrow` over packed rows as they lie in files."""
    with session() as spark:
        rows = pipeline_plain.replayed(packed_frame(spark, data), LIMIT)
        timed(lambda: int(rows.selectExpr("sum(n) as n").toArrow()["n"][0].as_py()))


def replay_python(data: PackedEvents, timed: Timed) -> None:
    """Measure the calculator's own code, event by event, over some clients."""
    columns = ["broker_id", "user", "client_id", "ts_ms", "bytes"]
    rows = unpack(data.table(columns), columns).slice(0, PYTHON_EVENTS).to_pylist()

    def work() -> int:
        by_client: dict[tuple[int, str, str], list[Event]] = {}
        for row in rows:
            key = row["broker_id"], row["user"], row["client_id"]
            by_client.setdefault(key, []).append(Event(t_ms=row["ts_ms"], amount=float(row["bytes"])))
        for own in by_client.values():
            limiter = new_limiter(Algorithm.RATE, bound=20_000.0, samples=11, window_ms=1000)
            for _ in replay_in_core(own, limiter, usual=EventOperation.RECORD, closed_loop=True):
                pass
        return len(rows)

    timed(work)


CASES: dict[str, Callable[[PackedEvents, Timed], None]] = {
    "usage": usage,
    "usage-spark": usage_spark,
    "usage-plain": usage_plain,
    "usage-duckdb": usage_duckdb,
    "replay": replay,
    "replay-spark": replay_spark,
    "replay-plain": replay_plain,
    "replay-shared": lambda data, timed: replay(data, timed, shared=True),
    "replay-shared-spark": lambda data, timed: replay_spark(data, timed, shared=True),
    "replay-python": replay_python,
    "sweep": lambda data, timed: replay(data, timed, limits=10),
    "sweep-spark": lambda data, timed: replay_spark(data, timed, limits=10),
}


def count(data: PackedEvents) -> int:
    found: int = compute.sum(data.table(["events"])["events"]).as_py()
    return found


def plan_of(limits: int, *, shared: bool = False) -> ReplayPlan:
    """Return default quotas from 5 kB/s on, each twice the one before, or a single one."""
    entity = Entity.of(user=None) if shared else Entity.of(user=None, client_id=None)
    values = [LIMIT] if limits == 1 else [5_000.0 * 2**step for step in range(limits)]
    proposals = [Proposal(name=str(value), entries=((entity, {"producer_byte_rate": value}),)) for value in values]
    return ReplayPlan(proposals=tuple(proposals), models=(Model.CLOSED,))


def session():  # type: ignore[no-untyped-def]
    """Start a session on all cores."""
    folder = Path(tempfile.mkdtemp())
    return spark_session(SparkSettings(log_file=folder / "spark.log", properties={"spark.driver.memory": "4g"}))


def make_events(path: Path, count: int, clients: int, giant: float, *, hours: float = 1.0) -> None:
    """Write a folder of produce events as an ingest leaves it, a part at a time to need little memory."""
    random = np.random.default_rng(1)
    weights = 1 / np.arange(1, clients + 1) ** 1.1
    weights[0] = weights[0] if not giant else giant / (1 - giant) * weights[1:].sum()
    counts = np.rint(count * weights / weights.sum()).astype(np.int64)
    numbers = np.array([client_number(**names_of(client)) for client in range(clients)])
    order = np.argsort(numbers)
    lake = Lake(url=str(path))
    lake.create()
    files = []
    end_s = round(hours * 3600)
    for own in np.split(order, np.flatnonzero(np.diff(np.cumsum(counts[order]) // FILE_EVENTS)) + 1):
        slices = 1 + int(counts[own].sum()) // SLICE_EVENTS
        bounds_ms = BASE_MS + np.arange(slices + 1) * end_s // slices * 1000
        for number, (start_ms, stop_ms) in enumerate(itertools.pairwise(bounds_ms)):
            chosen = np.repeat(own, counts[own] // slices + (number < counts[own] % slices))
            times = random.integers(start_ms, stop_ms, chosen.size)
            sizes = random.integers(200, 20_000, chosen.size)
            events = events_of(chosen, numbers[chosen], times, sizes)
            files += write_staged(lake, PACKED_EVENTS, pa.Table.from_batches([pack(events)]))
    file = ReadFile(path="", form="", cluster="", broker_id=None, head_bytes=0, head_sha256="", size=0, read_to=0)
    commit(lake, IngestRecord(at_ms=BASE_MS, files=(file,)), files, records_of(lake), lambda _: False)


def names_of(client: int) -> dict[str, Any]:
    return {
        "cluster": "default",
        "broker_id": client % 3,
        "user": f"user-{client % 97}",
        "client_id": f"client-{client}",
    }


def events_of(clients: np.ndarray, numbers: np.ndarray, times: np.ndarray, sizes: np.ndarray) -> pa.Table:
    names = pa.array([f"client-{client}" for client in range(int(clients.max()) + 1)])
    users = pa.array([f"user-{user}" for user in range(97)])
    same = {"cluster": "default", "ip": "", "quota_type": "produce", "connection": "", "src_file": "made-up"}
    columns = {
        "broker_id": (clients % 3).astype(np.int32),
        "ts_ms": times,
        "user": users.take(pa.array(clients % 97)),
        "client_id": names.take(pa.array(clients)),
        "bytes": sizes,
        "thread_ms": pa.nulls(clients.size, pa.float64()),
        "src_offset": np.arange(clients.size),
        "client": numbers,
        **{name: pa.array([text]).take(pa.array(np.zeros(clients.size, np.int32))) for name, text in same.items()},
    }
    schema = EVENTS.arrow_schema()
    whole = [columns.get(field.name, np.zeros(clients.size)) for field in schema]
    arrays = [pa.array(each).cast(field.type) for each, field in zip(whole, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def opened(path: Path) -> PackedEvents:
    keep_memory()
    return PackedEvents(Lake(url=str(path.absolute())))


def cpu_seconds() -> float:
    """Of this process, its threads, and all its descendants, running ones included: Spark's are."""
    own, found = os.getpid(), 0.0
    parents: dict[int, int] = {}
    ticks: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
        ticks[int(folder.name)] = sum(map(float, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    for pid, seconds in ticks.items():
        at = pid
        while at not in (own, 0, 1) and at in parents:
            at = parents[at]
        found += seconds if at == own else 0.0
    return found


def machine_seconds() -> float:
    """Return what all processes of the machine have used."""
    user, nice, system, *_ = map(float, Path("/proc/stat").read_text().splitlines()[0].split()[1:])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def peak_mib() -> float:
    """Of this process alone: `ru_maxrss` would have what the parent held, which made the events."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


if __name__ == "__main__":
    main()
