"""The job `usage`: the tables `entities`, `usage` and `usage_profile` of open events."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafka_quotas.pipeline.buckets.entities import SortKey, bucket_schema, entities_of, joined, task_schema
from kafka_quotas.pipeline.engine.job import Job, Tables
from kafka_quotas.pipeline.engine.runner import OpenEvents
from kafka_quotas.pipeline.tables.schemas import USAGE, USAGE_DEMAND, USAGE_PROFILE
from kafka_quotas.pipeline.usage.cells import LocalCells, SparkCells, UsageCells
from kafka_quotas.pipeline.usage.task import REPLICATION, UsagePlan, usage_task

if TYPE_CHECKING:
    from kafka_quotas.pipeline.engine.spark import LeftTables

_ORDER: Final[tuple[SortKey, ...]] = tuple((name, "ascending") for name in ("entity_id", "window_s", "window_start_ms"))


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTables:
    """The tables `entities` (with the quotas in force), `usage` and `usage_profile`."""

    entities: pa.Table
    cells: UsageCells
    """Table `usage`, which may lie with Spark's executors as long as the events are open."""
    profiles: pa.Table
    demands: pa.Table
    """Table `usage_demand`, empty unless the plan asks for demands."""
    replication: pa.Table
    """Bytes that followers fetched, by the schema `REPLICATION`, likewise."""


def usage(events: OpenEvents, plan: UsagePlan) -> UsageTables:
    """Sum up open events, with the errors of `OpenEvents.run`."""
    return usage_tables(*events.run_leaving(usage_job(plan), ("usage",)))


def usage_job(plan: UsagePlan) -> Job:
    """Return the job that sums up the usage of a plan's quotas."""
    return Job(
        name="usage",
        partition_columns=plan.partition_columns(),
        columns=plan.columns,
        task=partial(usage_task, plan=plan),
        schemas={
            "buckets": bucket_schema(),
            "usage": task_schema(USAGE),
            "profiles": task_schema(USAGE_PROFILE),
            "demands": task_schema(USAGE_DEMAND),
            "replication": REPLICATION,
        },
    )


def usage_tables(tasks: Sequence[Tables], left: "LeftTables | None" = None) -> UsageTables:
    """Build the tables, sorted by entity, then by the length of the window and time.

    `left` are the rows of `usage` that stay with Spark's executors, None where the tasks have them.
    """
    entities, ids = entities_of([each["buckets"] for each in tasks])
    cells: UsageCells
    if left is None:
        cells = LocalCells(joined([each["usage"] for each in tasks], ids, USAGE, order=_ORDER))
    else:
        cells = SparkCells(left, ids)
    return UsageTables(
        entities=entities,
        cells=cells,
        profiles=joined([each["profiles"] for each in tasks], ids, USAGE_PROFILE, order=_ORDER[:1]),
        demands=joined([each["demands"] for each in tasks], ids, USAGE_DEMAND, order=_ORDER[:1]),
        replication=pa.concat_tables([REPLICATION.empty_table(), *(each["replication"] for each in tasks)]),
    )
