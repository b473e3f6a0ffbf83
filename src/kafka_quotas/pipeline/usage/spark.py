"""The usage job on Spark: the tasks of `usage_task`, on files or on rows."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafka_quotas.pipeline.buckets.entities import bucket_schema
from kafka_quotas.pipeline.engine.spark import Tables, Work, found_in_rows, found_on_files, unpacked
from kafka_quotas.pipeline.usage.task import TaskUsage, UsagePlan, profile_schema, usage_schema, usage_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEMAS: Final = {"buckets": bucket_schema(), "usage": usage_schema(), "profiles": profile_schema()}


def usage_files(session: "SparkSession", tasks: Sequence[Sequence[Path]], plan: UsagePlan) -> "DataFrame":
    """Sum up the events in the files of each task, as a frame for `usage_found`."""
    return found_on_files(session, tasks, _work(plan), _SCHEMAS)


def usage_rows(events: "DataFrame", plan: UsagePlan) -> "DataFrame":
    """Sum up the rows of a frame of events, in any order, as a frame for `usage_found`."""
    return found_in_rows(events, plan.told_apart_by(), _work(plan), _SCHEMAS)


def usage_found(found: pa.Table) -> list[TaskUsage]:
    """Return the results of each task from a collected frame."""
    return [TaskUsage(**each) for each in unpacked(found, _SCHEMAS)]


def _work(plan: UsagePlan) -> Work:
    def work(slices: Iterable[pa.Table]) -> Tables:
        result = usage_task(slices, plan)
        return {"buckets": result.buckets, "usage": result.usage, "profiles": result.profiles}

    return work
