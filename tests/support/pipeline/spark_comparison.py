"""Usage and replay on a real Spark session, on files and on rows, against the local engine.

Run by `command_series` in a process of its own, for PySpark leaves sockets to the garbage collector, which a test may
not. It says on standard error how many rows were equal.
"""

import random
import sys
from pathlib import Path

from tests.support.pipeline.events import events_folder, events_table, proposal, random_events

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.pipeline.engine.local import run_tasks, task_files
from kafka_quotas.pipeline.engine.progress import ignore_progress
from kafka_quotas.pipeline.engine.spark_session import spark_session
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
from kafka_quotas.pipeline.replay.plan import ReplayPlan
from kafka_quotas.pipeline.replay.spark import replay_files, replay_found, replay_rows
from kafka_quotas.pipeline.replay.tables import replay_tables
from kafka_quotas.pipeline.replay.task import replay_task
from kafka_quotas.pipeline.tables.layout import DataFolder
from kafka_quotas.pipeline.usage.spark import usage_files, usage_found, usage_rows
from kafka_quotas.pipeline.usage.tables import usage_tables
from kafka_quotas.pipeline.usage.task import UsagePlan, usage_task

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
    files = task_files(data, ("cluster", "broker_id", "user", "client_id"))
    random.Random(5).shuffle(rows)  # a frame of events has no order
    settings = SparkSettings(log_file=folder / "spark.log", master="local[2]", shuffle_partitions=3)
    with spark_session(settings) as session:
        frame = session.createDataFrame(events_table(rows))
        for plan in (ReplayPlan(proposals=(PAIRS, TIGHTER)), ReplayPlan(proposals=(USERS, PAIRS), spans=True)):
            local = run_tasks(
                task_files(data, plan.told_apart_by()),
                lambda slices, plan=plan: replay_task(slices, plan),
                stage="replay",
                watch=ignore_progress,
            )
            expected = replay_tables(local, plan)
            found = [replay_rows(frame, plan)]
            if "client_id" in plan.told_apart_by():
                found.append(replay_files(session, files, plan))
            for each in found:
                tables = replay_tables(replay_found(each.toArrow()), plan)
                assert tables.entities.to_pylist() == expected.entities.to_pylist()
                assert tables.whatif.to_pylist() == expected.whatif.to_pylist()
                assert tables.spans.to_pylist() == expected.spans.to_pylist()
                assert (tables.spans.num_rows > 0) == plan.spans
            throttled += sum(expected.whatif["throttled_n"].to_pylist())
        usage_plan = UsagePlan(quotas=PAIRS, seconds=120)
        known = usage_tables(
            run_tasks(files, lambda slices: usage_task(slices, usage_plan), stage="usage", watch=ignore_progress)
        )
        for each in (usage_rows(frame, usage_plan), usage_files(session, files, usage_plan)):
            tables = usage_tables(usage_found(each.toArrow()))
            assert tables.entities.to_pylist() == known.entities.to_pylist()
            assert tables.usage.to_pylist() == known.usage.to_pylist()
            assert tables.profiles.to_pylist() == known.profiles.to_pylist()
        empty = replay_rows(frame.where("ts_ms < 0"), ReplayPlan(proposals=(PAIRS,)))
        assert replay_found(empty.toArrow()) == []
    sys.stderr.write(f"{known.usage.num_rows} cells and {throttled} throttles are equal\n")
