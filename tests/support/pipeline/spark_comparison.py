"""Usage, replays, a recommendation, a validation and a report on a real Spark session against DuckDB on this machine.

Run by `command_series` in a process of its own, for PySpark leaves sockets to the garbage collector, which a test may
not. It says on standard error how many rows were equal. Whole numbers are equal, sums of floats to 1e-9.
"""

import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions
from tests.support.pipeline.events import BASE_MS, events_folder, proposal, random_events
from tests.support.pipeline.large_logs import require_equal_large_logs
from tests.support.pipeline.library import require_equal, require_library
from tests.support.pipeline.log_rows import require_log_source

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.pipeline.buckets.proposal import DefaultScope
from kafka_quotas.pipeline.engine.events import Events, EventsRequest, EventsWatcher, RecordedEvents, open_events
from kafka_quotas.pipeline.engine.job import Engine, ignore_progress
from kafka_quotas.pipeline.engine.slices import packed_columns
from kafka_quotas.pipeline.engine.spark import packed_frame, placed_rows, run_job, spark_events
from kafka_quotas.pipeline.engine.spark_session import require_on_executors, spark_errors, spark_session
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
from kafka_quotas.pipeline.engine.spark_tasks import hash_keys
from kafka_quotas.pipeline.engine.sql import ResultRun, SparkTables
from kafka_quotas.pipeline.jobs.recommend.advice import Recommendation
from kafka_quotas.pipeline.jobs.recommend.capacity import replication_of
from kafka_quotas.pipeline.jobs.recommend.plan import RecommendPlan
from kafka_quotas.pipeline.jobs.replay import ReplayPlan, replay, replay_job
from kafka_quotas.pipeline.jobs.report import report
from kafka_quotas.pipeline.jobs.usage.job import UsagePlan, usage, usage_job
from kafka_quotas.pipeline.jobs.validate import ValidatePlan, validate
from kafka_quotas.pipeline.tables.arrow import arrow_frame
from kafka_quotas.pipeline.tables.lake import Lake, create_table
from kafka_quotas.pipeline.tables.packed_events import PackedEvents
from kafka_quotas.pipeline.tables.schemas import METRICS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_COLLECTED_BYTES = 512 * 1024
"""What Spark's driver may collect of a query."""
MOST_OF_JOBS_BYTES = 256 * 1024
"""What it collects of all jobs together but large overrides, however many clients there are."""
PAIRS = proposal("pairs", (Entity.of(user=None, client_id=None), {"producer_byte_rate": 9_000.0}))
USERS = proposal(
    "users",
    (Entity.of(user=None), {"producer_byte_rate": 20_000.0, "request_percentage": 0.2}),
    (Entity.of(user="user-1"), {"consumer_byte_rate": 4_000.0, "controller_mutation_rate": 1.0}),
)
REQUESTS_TOO = proposal(
    "requests too",
    (Entity.of(user=None, client_id=None), {"producer_byte_rate": 2_000.0, "request_percentage": 0.05}),
    (Entity.of(user="user-1"), {"request_percentage": 0.01}),
)
ONE_USER = proposal("one user", (Entity.of(user="user-1"), {"producer_byte_rate": 20.0}))
RESULTS = ("usage", "usage_profile", "whatif", "throttle_spans")


def compare(folder: Path) -> None:
    """Raise `AssertionError` with what differs where the rows are not equal."""
    folder.mkdir(exist_ok=True)
    settings = SparkSettings(
        log_file=folder / "spark.log",
        master="local[2]",
        properties={
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.maxResultSize": str(MOST_COLLECTED_BYTES),
            # Joined tables below 10 MB go to all executors by way of the driver, and count as collected there.
            "spark.sql.autoBroadcastJoinThreshold": "-1",
            "spark.sql.maxMetadataStringLength": "2000",  # of a scan's columns in a plan
            "spark.sql.ui.explainMode": "simple",
            # Of so few rows most time went into compiling each query.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        },
    )
    # several partitions of so few events
    several = mock.patch("kafka_quotas.pipeline.engine.spark.EVENTS_IN_PARTITION", 1_000)
    with several, spark_session(settings) as session:
        require_whole_tables(session)
        few = events_folder(folder / "few", random_events(3_000, seed=11), ingests=2)
        require_plain_plans(session, few)
        # A quarter of Java's time went into texts of plans, anew after each stage, for pages that nobody serves.
        session.conf.set("spark.sql.debug.maxToStringFields", "1")
        rows = require_equal_tables(session, few)
        many = events_folder(folder / "many", random_events(6_000, seed=12, clients=3_000))
        require_even_placement(session, many)
        # Two fifths of Java's time from here on went into planning queries again after each of their stages.
        session.conf.set("spark.sql.adaptive.enabled", "false")
        require_library(session, few, 3_000)
        require_equal_jobs(session, many)
        require_equal_large_logs(session, folder / "large logs")
        require_log_source(session, folder / "log source")
        require_named_failures(session, folder / "spark.log")
    sys.stderr.write(f"{rows['usage']} cells and {rows['whatif']} throttles are equal\n")


def require_whole_tables(session: "SparkSession") -> None:
    """Check that no empty chunk of a table hides the rows behind it."""
    one, none = pa.table({"n": [1]}), pa.table({"n": pa.array([], pa.int64())})
    assert arrow_frame(session, pa.concat_tables([one, none, one, none, none, one] * 3)).toArrow().num_rows == 9


def require_plain_plans(session: "SparkSession", data: Path) -> None:
    """Check that jobs scan the Delta table with filters and their own columns alone, arrays once, and no blob."""
    packed = PackedEvents(Lake(url=str(data)))
    frame = packed_frame(session, packed)
    jobs = (
        usage_job(UsagePlan(quotas=PAIRS, seconds=120)),
        usage_job(UsagePlan(quotas=PAIRS, seconds=120, horizon_days=0.0)),
        replay_job(ReplayPlan(proposals=(PAIRS,))),
        replay_job(ReplayPlan(proposals=(USERS,))),
    )
    for job in jobs:
        for count, scans in ((500, 1), (3_000, 2)):
            plan = plan_of(run_job(frame, job, count=count))
            assert "MapInArrow" in plan
            assert "binaryFile" not in plan
            assert ("hashpartitioning(partition_key" in plan) == (scans == 2)
            found = sorted(scanned_columns(plan), key=len)
            assert len(found) == scans
            assert found[-1] == set(packed_columns(job.columns))
            assert found[0] in ({"client", "events"}, found[-1])
    asked: list[str] = []
    with mock.patch.object(SparkTables, "query", lambda _, sql: asked.append(sql) or pa.table({})):
        tables = SparkTables(session)
        chosen = tables.add("chosen", pa.table({"cluster": ["default"]}))
        replication_of(
            spark_events(frame, recorded=RecordedEvents(count=1, first_ms=0, last_ms=0, seconds=1)), chosen, seconds=1
        )
    for columns in scanned_columns(plan := plan_of(session.sql(asked[0]))):
        assert columns <= {"cluster", "broker_id", "client_id", "quota_type", "is_exempt", "total_bytes"}
    assert "EqualTo(quota_type,fetch)" in plan


def plan_of(frame: "DataFrame") -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())  # type: ignore[operator]


def scanned_columns(plan: str) -> list[set[str]]:
    """The columns that each scan of the table of events reads, all with its filter."""
    found = re.findall(r"FileScan parquet .*", plan)
    assert all("PartitionFilters: [isnotnull(dt" in scan for scan in found)
    return [set(re.findall(r"(\w+):", scan.partition("ReadSchema: struct<")[2])) for scan in found]


def require_even_placement(session: "SparkSession", data: Path) -> None:
    """Check that each partition of a job has about as many events as every other."""
    frame, job = packed_frame(session, PackedEvents(Lake(url=str(data)))), replay_job(ReplayPlan(proposals=(PAIRS,)))
    keys = session.createDataFrame([(int(key),) for key in hash_keys(12)], "key int")
    assert [row[0] for row in keys.selectExpr("pmod(hash(key), 12)").collect()] == list(range(12))
    for partitions in (2, 5, 12):
        with mock.patch("kafka_quotas.pipeline.engine.spark.EVENTS_IN_PARTITION", 6_000 // partitions + 1):
            placed = placed_rows(frame, job, count=6_000)
        events = placed.groupBy(functions.spark_partition_id()).agg(functions.sum(functions.size("ts_ms")))
        found = [count for _, count in events.collect()]
        assert sum(found) == 6_000
        largest_client = 0.4 * 6_000 / 2 * 1.1  # at one of two brokers
        assert max(found) <= largest_client + 6_000 / partitions


def require_equal_tables(session: "SparkSession", data: Path) -> dict[str, int]:
    """Compare the tables that both engines write, twice, and return the number of rows of each."""
    for engine in Engine.LOCAL, Engine.SPARK:
        out = str(data / engine.value)
        with opened(session, data, engine) as events:
            run = ResultRun.of("pairs", events.recorded.last_ms)
            used = usage(events, UsagePlan(quotas=PAIRS, seconds=120, horizon_days=0.0))
            replayed = replay(events, ReplayPlan(proposals=(USERS, PAIRS), throttle_spans=True))
            replayed.write(out, run, has_spans=True)
            for _ in range(2):  # the same days are replaced
                used.write(out, run)
    found = {}
    for name in RESULTS:
        local, on_spark = (written(data / engine.value / name) for engine in (Engine.LOCAL, Engine.SPARK))
        require_equal(local, on_spark, name)
        found[name] = len(local)
    return found


def written(table: Path) -> list[dict[str, Any]]:
    """The rows of a table, but for the run that wrote them."""
    rows = DeltaTable(table).to_pyarrow_table().drop_columns(["run_id"]).to_pylist()
    return sorted(rows, key=lambda row: repr([value for value in row.values() if not isinstance(value, float)]))


def require_equal_jobs(session: "SparkSession", data: Path) -> None:
    """Compare all that jobs say of many clients, of whom few come to the driver."""
    add_scrapes(data)
    plan = RecommendPlan(
        scope=DefaultScope.PAIR,
        fetch_floor=0.0,
        explained="user-0/client-0",
        capacities={-1: {QuotaType.PRODUCE: 20_000.0}},
        priorities=(("user-0/client-0", 2.0),),
    )
    found = []
    for engine in Engine.LOCAL, Engine.SPARK:
        with opened(session, data, engine) as events, collected_bytes(session) as collected:
            used = usage(events, UsagePlan(quotas=ONE_USER, seconds=120))
            ranked, everybody = used.ranked(7).to_pylist(), used.ranked(None).to_pylist()
            outcomes = replay(events, ReplayPlan(proposals=(REQUESTS_TOO, PAIRS)))
            first = outcomes.ranked(20).to_pylist()
            page = report(events, plan, ONE_USER, step=lambda _: None)
            checked = validate(events, ValidatePlan(quotas=REQUESTS_TOO), limit=30)
            known = (events.recorded, used.count(), used.clusters(), ranked, outcomes.counts(), first)
            found.append(
                (*known, advised(page.recommendation), page.clients, page.limited, page.rates, checked, everybody)
            )
    for place, (local, on_spark) in enumerate(zip(*found, strict=True)):
        require_equal(local, on_spark, str(place))
    clients, advices = found[0][6]
    assert sum(collected) < MOST_OF_JOBS_BYTES, sum(collected)
    assert clients > 1_000
    assert advices[0].explained is not None
    assert len(advices[0].explained.brokers[0].trials) > 24
    assert sum(len(each.overrides) for each in advices) > 10
    assert any(each.pays for each in advices[0].overrides), "the capacity is short"
    page_limited, checked = found[0][8], found[0][10]
    assert page_limited.count - page_limited.limited > 100, "throttled without a limit of theirs"
    assert checked.count > 1_000
    assert checked.is_range


def advised(found: Recommendation) -> tuple[int, Any]:
    return found.clients, found.advices


def add_scrapes(data: Path) -> None:
    """Add scrapes of the largest client's bytes to a folder."""
    names = {"cluster": "default", "quota_type": "produce", "user": "user-0", "client_id": "client-0"}
    rows = [
        names | {"ts_ms": BASE_MS + second * 1000, "broker": broker, "value": 100.0 * second, "metric": "byte_rate"}
        for second in range(120)
        for broker in ("1", "2", "broker-3:9092")
    ]
    place, schema = Lake(url=str(data)).place(METRICS), METRICS.arrow_schema()
    create_table(place, METRICS)
    usual = {field.name: "" if field.type == pa.string() else 0 for field in schema}
    write_deltalake(place, pa.Table.from_pylist([usual | row for row in rows], schema), mode="append")


@contextmanager
def opened(session: "SparkSession", data: Path, engine: Engine) -> Iterator[Events]:
    """The events of a folder, of which jobs run on this session or here."""
    request = EventsRequest(data=str(data), spark=SparkSettings(log_file=data / "spark.log"), engine=engine)
    watcher = EventsWatcher(progress=ignore_progress, chosen=lambda _: None)
    with mock.patch("kafka_quotas.pipeline.engine.spark_session.started", return_value=session):  # noqa: SIM117
        with open_events(request, watcher) as events:
            yield events


@contextmanager
def collected_bytes(session: "SparkSession") -> Iterator[list[int]]:
    """The bytes of each table that comes to the driver in the block."""
    frames, found = type(session.range(1)), []
    collect = frames.toArrow

    def counted(frame: Any) -> pa.Table:
        table = collect(frame)
        found.append(table.nbytes)
        return table

    with mock.patch.object(frames, "toArrow", counted):
        yield found


def require_named_failures(session: "SparkSession", log_file: Path) -> None:
    """Check what is said of a missing library, a worker that was killed, and more rows than the driver may collect."""

    def die(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    def grow(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.record_batch({"content": [os.urandom(MOST_COLLECTED_BYTES)]})

    with pytest.raises(KafkaQuotasError, match=r"^executors have no such_library$") as caught:
        require_on_executors(session, ("numpy", "such_library"))
    assert "--env-archive sends them" in (caught.value.hint or "")
    for run, said in ((die, "a Python worker was killed"), (grow, "are more than spark.driver.maxResultSize")):
        with pytest.raises(KafkaQuotasError, match=f"^Spark failed while trying: .*{said}"):  # noqa: SIM117
            with spark_errors("trying", log_file=log_file):
                session.range(1).mapInArrow(run, "content binary").toArrow()
