"""Usage and replay on a real Spark session, on files and on rows, against the local engine.

Run by `command_series` in a process of its own, for PySpark leaves sockets to the garbage collector, which a test may
not. It says on standard error how many rows were equal.
"""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.pipeline.events import events_folder, events_table, proposal, random_events, run_here

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.pipeline.engine.job import Job, Tables, task_files
from kafka_quotas.pipeline.engine.spark import run_on_files, run_on_rows, tables_by_task
from kafka_quotas.pipeline.engine.spark_session import spark_session
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
from kafka_quotas.pipeline.replay.job import replay_job, replay_tables
from kafka_quotas.pipeline.replay.task import ReplayPlan
from kafka_quotas.pipeline.tables.layout import DataFolder
from kafka_quotas.pipeline.usage.job import usage_job, usage_tables
from kafka_quotas.pipeline.usage.task import UsagePlan

PAIRS = proposal("pairs", (Entity.of(user=None, client_id=None), {"producer_byte_rate": 9_000.0}))
TIGHTER = proposal("tighter", (Entity.of(user=None, client_id=None), {"producer_byte_rate": 2_000.0}))
USERS = proposal(
    "users",
    (Entity.of(user=None), {"producer_byte_rate": 20_000.0, "request_percentage": 0.2}),
    (Entity.of(user="user-1"), {"consumer_byte_rate": 4_000.0, "controller_mutation_rate": 1.0}),
)


def compare(folder: Path) -> None:
    """Raise `AssertionError` with what differs where the tables are not equal."""
    folder.mkdir(exist_ok=True)
    throttled = 0
    rows = random_events(3_000, seed=11)
    data = DataFolder.open(events_folder(folder / "data", rows, ingests=2))
    random.Random(5).shuffle(rows)  # a frame of events has no order
    settings = SparkSettings(log_file=folder / "spark.log", master="local[2]", shuffle_partitions=3)
    with spark_session(settings) as session:
        frame = session.createDataFrame(events_table(rows))

        def found(job: Job) -> Iterator[list[Tables]]:
            yield tables_by_task(run_on_rows(frame, job).toArrow(), job)
            if job.is_by_bucket:
                yield tables_by_task(run_on_files(session, task_files(data, job), job).toArrow(), job)

        for plan in (ReplayPlan(proposals=(PAIRS, TIGHTER)), ReplayPlan(proposals=(USERS, PAIRS), throttle_spans=True)):
            expected = replay_tables(run_here(replay_job(plan), data.path), plan)
            for each in found(replay_job(plan)):
                tables = replay_tables(each, plan)
                assert tables.entities.to_pylist() == expected.entities.to_pylist()
                assert tables.whatif.to_pylist() == expected.whatif.to_pylist()
                assert tables.throttle_spans.to_pylist() == expected.throttle_spans.to_pylist()
                assert (tables.throttle_spans.num_rows > 0) == plan.throttle_spans
            throttled += sum(expected.whatif["throttled_n"].to_pylist())
        by_client = usage_job(UsagePlan(quotas=PAIRS, seconds=120))
        assert by_client.is_by_bucket
        known = usage_tables(run_here(by_client, data.path))
        for each in found(by_client):
            used = usage_tables(each)
            assert used.entities.to_pylist() == known.entities.to_pylist()
            assert used.usage.to_pylist() == known.usage.to_pylist()
            assert used.profiles.to_pylist() == known.profiles.to_pylist()
        assert tables_by_task(run_on_rows(frame.where("ts_ms < 0"), by_client).toArrow(), by_client) == []
    sys.stderr.write(f"{known.usage.num_rows} cells and {throttled} throttles are equal\n")
