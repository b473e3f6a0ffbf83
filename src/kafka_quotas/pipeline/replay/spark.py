"""A replay on Spark: the tasks of `replay_task`, on files or on rows."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafka_quotas.pipeline.buckets.entities import bucket_schema
from kafka_quotas.pipeline.engine.spark import Tables, Work, found_in_rows, found_on_files, unpacked
from kafka_quotas.pipeline.replay.plan import ReplayPlan
from kafka_quotas.pipeline.replay.spans import span_schema
from kafka_quotas.pipeline.replay.task import TaskReplay, outcome_schema, replay_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEMAS: Final = {"buckets": bucket_schema(), "outcomes": outcome_schema(), "spans": span_schema()}


def replay_files(session: "SparkSession", tasks: Sequence[Sequence[Path]], plan: ReplayPlan) -> "DataFrame":
    """Replay the events in the files of each task, as a frame for `replay_found`."""
    return found_on_files(session, tasks, _work(plan), _SCHEMAS, plan.columns())


def replay_rows(events: "DataFrame", plan: ReplayPlan) -> "DataFrame":
    """Replay the rows of a frame of events, in any order, as a frame for `replay_found`."""
    return found_in_rows(events, plan.told_apart_by(), _work(plan), _SCHEMAS, plan.columns())


def replay_found(found: pa.Table) -> list[TaskReplay]:
    """Return the results of each task from a collected frame."""
    return [TaskReplay(**each) for each in unpacked(found, _SCHEMAS)]


def _work(plan: ReplayPlan) -> Work:
    def work(slices: Iterable[pa.Table]) -> Tables:
        result = replay_task(slices, plan)
        return {"buckets": result.buckets, "outcomes": result.outcomes, "spans": result.spans}

    return work
