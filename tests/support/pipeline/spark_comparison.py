"""Usage, replays, a recommendation, a removal and large logs on a real Spark session against the local engine.

Run by `command_series` in a process of its own, for PySpark leaves sockets to the garbage collector, which a test may
not. It says on standard error how many rows were equal.
"""

import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions
from tests.support.pipeline.events import (
    BASE_MS,
    added,
    events_folder,
    open_table,
    proposal,
    random_events,
    run_here,
)
from tests.support.pipeline.large_logs import require_equal_large_logs
from tests.support.pipeline.table_changes import require_equal_removal

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.pipeline.buckets.entities import NAMES
from kafka_quotas.pipeline.buckets.proposal import DefaultScope
from kafka_quotas.pipeline.engine import event_pieces, spark
from kafka_quotas.pipeline.engine.choice import Engine
from kafka_quotas.pipeline.engine.job import Job, Tables, ignore_progress, without_events
from kafka_quotas.pipeline.engine.runner import EventsRequest, EventsWatcher, OpenEvents, open_events
from kafka_quotas.pipeline.engine.spark import LeftTables, run_job, tables_by_task
from kafka_quotas.pipeline.engine.spark_session import spark_errors, spark_session
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
from kafka_quotas.pipeline.ingest.spark_engine import clients_on_spark
from kafka_quotas.pipeline.recommend.advice import RecommendPlan, Tolerance
from kafka_quotas.pipeline.recommend.job import recommend
from kafka_quotas.pipeline.replay.job import BUCKETS, OUTCOMES, LocalOutcomes, SparkOutcomes, replay_job, replay_tables
from kafka_quotas.pipeline.replay.task import ReplayPlan
from kafka_quotas.pipeline.report.job import what_if
from kafka_quotas.pipeline.report.traffic import client_traffic, limited_traffic
from kafka_quotas.pipeline.tables import client_ranges
from kafka_quotas.pipeline.tables.arrow import arrow_frame
from kafka_quotas.pipeline.tables.client_ranges import EventTable
from kafka_quotas.pipeline.tables.clients import USER_SHIFT
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.schemas import CLIENTS, EVENTS, METRICS
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot
from kafka_quotas.pipeline.usage.job import SparkUsage, usage, usage_job, usage_tables
from kafka_quotas.pipeline.usage.task import BUCKETS as USED
from kafka_quotas.pipeline.usage.task import UsagePlan
from kafka_quotas.pipeline.validate.check import ValidatePlan
from kafka_quotas.pipeline.validate.job import validate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_COLLECTED_BYTES = 512 * 1024
"""What Spark's driver may collect of a job."""
LEAST_COLLECTED_BYTES = 4 * 1024
"""What it collects of a replay at most, whose tables all stay with the executors."""
MOST_OF_ADVICE_BYTES = 96 * 1024
"""What it collects of all steps of a recommendation for 3,000 clients, some of whom get a limit of their own."""
PAIRS = proposal("pairs", (Entity.of(user=None, client_id=None), {"producer_byte_rate": 9_000.0}))
TIGHTER = proposal("tighter", (Entity.of(user=None, client_id=None), {"producer_byte_rate": 2_000.0}))
ONE_USER = proposal("one user", (Entity.of(user="user-1"), {"producer_byte_rate": 20.0}))
REQUESTS_TOO = proposal(
    "requests too",
    (Entity.of(user=None, client_id=None), {"producer_byte_rate": 2_000.0, "request_percentage": 0.05}),
    (Entity.of(user="user-1"), {"request_percentage": 0.01}),
)
USERS = proposal(
    "users",
    (Entity.of(user=None), {"producer_byte_rate": 20_000.0, "request_percentage": 0.2}),
    (Entity.of(user="user-1"), {"consumer_byte_rate": 4_000.0, "controller_mutation_rate": 1.0}),
)


def compare(folder: Path) -> None:
    """Raise `AssertionError` with what differs where the tables are not equal."""
    folder.mkdir(exist_ok=True)
    throttled = 0
    data = events_folder(folder / "the data", random_events(3_000, seed=11), ingests=2)
    events = open_table(data)
    settings = SparkSettings(
        log_file=folder / "spark.log",
        master="local[2]",
        shuffle_partitions=3,
        properties={
            "spark.driver.maxResultSize": str(MOST_COLLECTED_BYTES),
            # Joined tables below 10 MB go to all executors by way of the driver, and count as collected there.
            "spark.sql.autoBroadcastJoinThreshold": "-1",
            "spark.sql.adaptive.enabled": "true",  # Java keeps what `SMALL` has set for the commands before
            # Of so few rows most time went into compiling each query.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        },
    )
    with spark_session(settings) as session:

        def found(job: Job) -> list[Tables]:
            return tables_by_task(run_job(session, events, job).toArrow(), job)

        require_whole_tables(session)
        require_equal_figures(session, events)
        plans = (ReplayPlan(proposals=(PAIRS, TIGHTER)), ReplayPlan(proposals=(USERS, PAIRS), throttle_spans=True))
        sizes = events.snapshot.files(EVENTS)["size_bytes"].to_pylist()
        assert min(sizes) < max(sizes)
        for plan, largest in zip(
            plans, (spark._LARGEST_FILE, min(sizes)), strict=True
        ):  # then all but one come as rows
            expected = replay_tables(run_here(replay_job(plan), data), plan)
            with mock.patch.object(spark, "_LARGEST_FILE", largest):
                tables = replay_tables(found(replay_job(plan)), plan)
            assert tables.entities.to_pylist() == expected.entities.to_pylist()
            assert tables.whatif.to_pylist() == expected.whatif.to_pylist()
            assert tables.throttle_spans.to_pylist() == expected.throttle_spans.to_pylist()
            assert (tables.throttle_spans.num_rows > 0) == plan.throttle_spans
            throttled += sum(expected.whatif["throttled_n"].to_pylist())
        cells = require_equal_usage(session, data)
        require_equal_outcomes(session, folder)
        require_equal_advice(session, folder)
        require_equal_traffic(session, folder)
        require_equal_removal(session, folder)
        require_equal_large_logs(session, folder / "large logs")
        require_named_failures(session, folder / "spark.log")
    sys.stderr.write(f"{cells} cells and {throttled} throttles are equal\n")


def require_whole_tables(session: "SparkSession") -> None:
    """Check that no empty chunk of a table hides the rows behind it."""
    one, none = pa.table({"n": [1]}), pa.table({"n": pa.array([], pa.int64())})
    assert arrow_frame(session, pa.concat_tables([one, none, one, none, none, one] * 3)).toArrow().num_rows == 9


def require_equal_usage(session: "SparkSession", data: Path) -> int:
    """Compare what a job on usage leaves with executors, and return the number of cells."""
    job = usage_job(UsagePlan(quotas=PAIRS, seconds=120, horizon_days=0.0))
    known = usage_tables(run_here(job, data))
    with too_many_clients(10):
        left = LeftTables(run_job(session, open_table(data), job), job.schemas, bulky=job.bulky)
    assert left.others().toArrow().nbytes < LEAST_COLLECTED_BYTES
    used = SparkUsage(left)
    assert (used.count(), used.clusters()) == (known.count(), known.clusters())
    assert used.ranked(7).to_pylist() == known.ranked(7).select(used.ranked(7).column_names).to_pylist()
    columns = [name for name in USED.names if name not in (*NAMES, "bucket")]
    (rows,) = known.by_client(lambda buckets: buckets.select([*NAMES, *columns])).of_each(pa.Table.to_pylist)
    parts = used.by_client(lambda buckets: buckets.select([*NAMES, *columns])).of_each(pa.Table.to_pylist)
    assert sorted(chain(*parts), key=repr) == sorted(rows, key=repr)
    names = known.all_buckets.select(NAMES)
    cells = [each.amounts_of(names, window_s=1).to_pylist() for each in (known, used)]
    alone = names.group_by(["user"]).aggregate([])
    users = [each.amounts_of(alone, window_s=60).to_pylist() for each in (known, used)]
    followers = [each.replication().to_pylist() for each in (known, used)]
    for local, on_spark in (cells, users):
        assert sorted(local, key=str) == sorted(on_spark, key=str)
    assert summed(followers[0]) == summed(followers[1])
    left.forget()
    return len(cells[0])


def summed(followers: list[dict[str, Any]]) -> dict[tuple[Any, ...], int]:
    """Bytes of each follower, whatever rows they are in."""
    found: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in followers:
        found[row["cluster"], row["broker_id"], row["follower"]] += row["bytes"]
    return found


def require_equal_figures(session: "SparkSession", events: EventTable) -> None:
    """Compare what a job has to know of a folder before it runs, as Spark reads it where the folder is at a URL."""
    there = replace(events.snapshot, session=session)
    known, found = [each.read(CLIENTS).to_pylist() for each in (events.snapshot, there)]
    assert sorted(found, key=repr) == sorted(known, key=repr)
    other = EventTable(there)
    assert other.recorded_s() == events.recorded_s()
    assert (other.count, other.first_ms, other.last_ms) == (events.count, events.first_ms, events.last_ms)
    for shift in (0, USER_SHIFT):
        assert other.ranges(shift=shift, workers=2) == events.ranges(shift=shift, workers=2)
    with too_many_clients(10), collected_bytes(session) as collected:
        many = EventTable(there)
    assert (many.count, many.first_ms, many.last_ms) == (events.count, events.first_ms, events.last_ms)
    assert sum(collected) < 100  # three numbers


@contextmanager
def too_many_clients(in_part: int) -> Iterator[None]:
    """Have executors judge and divide the clients in the block, some of them at a time."""
    with (
        mock.patch.object(client_ranges, "MOST_CLIENTS", 0),
        mock.patch.object(spark, "_CLIENTS_IN_PART", in_part),
    ):
        yield


def require_equal_outcomes(session: "SparkSession", folder: Path) -> None:
    """Compare outcomes of a sweep that are too many for the driver: executors count, rank and write them."""
    data = events_folder(folder / "many", random_events(6_000, seed=12, clients=3_000))
    limits = [(f"step {step}", {"producer_byte_rate": 600.0 * step}) for step in range(1, 16)]
    plan = ReplayPlan(
        proposals=tuple(proposal(name, (Entity.of(user=None, client_id=None), each)) for name, each in limits)
    )
    job = replay_job(plan)
    tables = replay_tables(run_here(replace(job, suffices=None), data), plan)
    rest, counted = without_events(job, open_table(data))
    assert counted
    assert rest.chosen is not None
    assert rest.count > 1_000
    few = rest.chosen[:200].tolist()
    stored = [row for row in open_table(data).snapshot.read(CLIENTS).to_pylist() if row["client"] in few]
    of_few = session.read.format("delta").load(str(data / "events")).where(functions.col("client").isin(few))
    counted_there = clients_on_spark(of_few).toArrow().to_pylist()
    assert sorted(counted_there, key=lambda row: row["client"]) == sorted(stored, key=lambda row: row["client"])
    known = LocalOutcomes(tables.entities, tables.whatif, tables.throttle_spans)
    with mock.patch.object(event_pieces, "_MOST_COPIES", 0):  # cut into pieces
        frame = run_job(session, open_table(data), job)
    left = LeftTables(frame, {name: job.schemas[name] for name in (BUCKETS, OUTCOMES)})
    with too_many_clients(1_000):
        few_limits = replace(plan, proposals=plan.proposals[::3])  # for all tables are collected here
        judged = tables_by_task(run_job(session, open_table(data), replay_job(few_limits)).toArrow(), job)
    here = run_here(replace(replay_job(few_limits), suffices=None), data)
    assert replay_tables(judged, few_limits) == replay_tables(here, few_limits)
    collected = left.others().toArrow()
    assert collected.nbytes < LEAST_COLLECTED_BYTES
    outcomes = SparkOutcomes(left, [each.name for each in plan.proposals])
    assert outcomes.entities().to_pylist() == tables.entities.to_pylist()
    assert outcomes.entities([7, 3]).to_pylist() == tables.entities.take([3, 7]).to_pylist()
    assert outcomes.counts() == known.counts()
    assert outcomes.ranked(20).to_pylist() == known.ranked(20).to_pylist()
    outcomes.write(str(folder / "written"), has_spans=False)
    for name, table in (("whatif", tables.whatif), ("entities", tables.entities)):
        written = DeltaTable(folder / "written" / name).to_pyarrow_table()
        assert sorted(written.to_pylist(), key=repr) == sorted(table.to_pylist(), key=repr)
    size = left._frame.selectExpr("sum(length(content))").toArrow().to_pylist()[0].popitem()[1]
    assert size > MOST_COLLECTED_BYTES


def require_equal_advice(session: "SparkSession", folder: Path) -> None:
    """Compare a recommendation and a validation of which executors keep what the driver could not collect."""
    plan = RecommendPlan(scope=DefaultScope.PAIR, tolerance=Tolerance(fetch_floor=0.0), explained="user-0/client-0")
    validated = ValidatePlan(quotas=REQUESTS_TOO)
    add_scrapes(folder / "many")
    found = []
    for engine in (Engine.LOCAL, Engine.SPARK):
        with opened(session, folder / "many", engine) as events:
            with collected_bytes(session) as collected:
                advised = recommend(events, plan, step=lambda _: None)
            checked = validate(events, validated)
        what_ifs = [what_if(each) for each in advised.advices]
        found.append((advised.clients, advised.advices, what_ifs, checked))
    for local, on_spark in zip(*found, strict=True):
        assert local == on_spark
    clients, advices, _, checked = found[0]
    assert sum(collected) < MOST_OF_ADVICE_BYTES
    assert clients > 1_000
    assert advices[0].explained is not None
    assert len(advices[0].explained.brokers[0].trials) > 24
    assert sum(len(each.overrides) for each in advices) > 10
    assert any(each.throttle is not None and each.throttle.low_ms for each in checked.buckets)
    assert any(each.rate is not None and each.rate.scrapes > 50 for each in checked.buckets)
    assert checked.is_range
    assert checked.count == len(checked.buckets) > 1_000


def require_equal_traffic(session: "SparkSession", folder: Path) -> None:
    """Compare a report's figures and a validation, of which no more comes for ten times as many clients."""
    events_folder(folder / "more", random_events(30_000, seed=15, clients=30_000))
    come = []
    add_scrapes(folder / "more")
    for name in ("many", "more"):
        found = []
        for engine in (Engine.LOCAL, Engine.SPARK):
            with opened(session, folder / name, engine) as events, collected_bytes(session) as collected:
                tables = usage(events, UsagePlan(quotas=ONE_USER, seconds=120))
                clients = client_traffic(tables, cluster="default", seconds=120)
                limited = limited_traffic(tables, cluster="default", seconds=120)
                checked = validate(events, ValidatePlan(quotas=REQUESTS_TOO), limit=30)
            amounts = {kind: round(amount, 6) for kind, amount in clients.amounts.items()}
            found.append((replace(clients, amounts=amounts), limited, checked))
        assert found[0] == found[1]
        assert limited.count - limited.limited > 100, "throttled without a limit of theirs"
        come.append(sum(collected))
    assert come[1] < 1.1 * come[0], come


def add_scrapes(data: Path) -> None:
    """Add scrapes of the largest client's bytes to a folder."""
    names = {"cluster": "default", "quota_type": "produce", "user": "user-0", "client_id": "client-0"}
    rest = {"metric": "byte_rate", "src_file": "scrapes", "ingest": 1}
    rows = [
        {"ts_ms": BASE_MS + second * 1000, "broker": broker, "value": 100.0 * second, **names, **rest}
        for second in range(120)
        for broker in ("1", "2", "broker-3:9092")
    ]
    lake = Lake(url=str(data))
    before = FolderSnapshot.of(lake)
    lake.append(METRICS, pa.Table.from_pylist(rows, schema=METRICS.arrow_schema()))
    added(before, ingest=1, events=0)


@contextmanager
def opened(session: "SparkSession", data: Path, engine: Engine) -> Iterator[OpenEvents]:
    """The events of a folder, of which jobs run on this session or here."""
    request = EventsRequest(data=str(data), spark=SparkSettings(log_file=data / "spark.log"), engine=engine)
    with open_events(request, EventsWatcher(progress=ignore_progress, chosen=lambda _: None)) as events:
        events._session._session = session
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
    """Check what is said of a worker that was killed, and of more rows than the driver may collect."""

    def die(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    def grow(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.record_batch({"content": [os.urandom(MOST_COLLECTED_BYTES)]})

    for run, said in ((die, "a Python worker was killed"), (grow, "are more than spark.driver.maxResultSize")):
        with pytest.raises(KafkaQuotasError, match=f"^Spark failed while trying: .*{said}"):  # noqa: SIM117
            with spark_errors("trying", log_file=log_file):
                session.range(1).mapInArrow(run, "content binary").toArrow()
