"""The job `usage`: the tables `entities`, `usage` and `usage_profile` of open events."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from kafka_quotas.pipeline.buckets.entities import SortKey, entities_of, joined, task_schema
from kafka_quotas.pipeline.engine.job import Job, Tables
from kafka_quotas.pipeline.engine.runner import OpenEvents
from kafka_quotas.pipeline.tables.schemas import USAGE
from kafka_quotas.pipeline.usage.tables import ORDER, LocalUsage, SparkUsage, UsageTables
from kafka_quotas.pipeline.usage.task import BUCKETS, REPLICATION, UsagePlan, usage_task

_ORDER: Final[tuple[SortKey, ...]] = tuple((name, "ascending") for name in ORDER)


def usage(events: OpenEvents, plan: UsagePlan) -> UsageTables:
    """Sum up open events, with the errors of `OpenEvents.run`.

    The tables are where the engine has them: with Spark's executors, as long as the events are open, or here.
    """
    job = usage_job(plan)
    tasks, left = events.run_leaving(job, tuple(job.schemas))
    return usage_tables(tasks) if left is None else SparkUsage(left)


def usage_job(plan: UsagePlan) -> Job:
    """Return the job that sums up the usage of a plan's quotas."""
    return Job(
        name="usage",
        partition_columns=plan.partition_columns(),
        columns=plan.columns,
        task=partial(usage_task, plan=plan),
        schemas={"buckets": BUCKETS, "usage": task_schema(USAGE), "replication": REPLICATION},
        bulky="usage",
    )


def usage_tables(tasks: Sequence[Tables]) -> LocalUsage:
    """Build the tables, sorted by entity, then by the length of the window and time."""
    buckets, ids = entities_of([each["buckets"] for each in tasks], BUCKETS)
    return LocalUsage(
        buckets,
        joined([each["usage"] for each in tasks], ids, USAGE, order=_ORDER, in_runs=True),
        pa.concat_tables([REPLICATION.empty_table(), *(each["replication"] for each in tasks)]),
    )
