"""The job `replay`: the tables `entities`, `whatif` and `throttle_spans` of open events under a plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafka_quotas.pipeline.buckets.entities import SortKey, bucket_schema, entities_of, joined, task_schema
from kafka_quotas.pipeline.engine.job import Job, Tables
from kafka_quotas.pipeline.engine.runner import OpenEvents
from kafka_quotas.pipeline.replay.outcomes import OUTCOMES, LocalOutcomes, ReplayOutcomes, SparkOutcomes
from kafka_quotas.pipeline.replay.task import ReplayPlan, replay_task
from kafka_quotas.pipeline.tables.schemas import THROTTLE_SPANS, WHATIF

if TYPE_CHECKING:
    from kafka_quotas.pipeline.engine.spark import LeftTables

_ORDER: Final[tuple[SortKey, ...]] = (("proposal", "ascending"), ("model", "descending"), ("entity_id", "ascending"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTables:
    """The tables of a replay."""

    entities: pa.Table
    """Table `entities` without limits, which differ by proposal."""
    whatif: pa.Table
    throttle_spans: pa.Table
    """Table `throttle_spans`, empty unless the plan asks for it."""


def replay(events: OpenEvents, plan: ReplayPlan) -> tuple[pa.Table, ReplayOutcomes]:
    """Replay open events under every proposal of a plan, and return the entities and the outcomes.

    The outcomes are where the engine has them: with Spark's executors, as long as the events are open, or here.

    Raises:
        KafkaQuotasError: A file can't be read, or Spark does not start or fails.
    """
    tasks, left = events.run_leaving(replay_job(plan), (OUTCOMES, THROTTLE_SPANS.name))
    if left is not None:
        return left_outcomes(tasks, left, plan)
    tables = replay_tables(tasks, plan)
    return tables.entities, LocalOutcomes(tables.whatif, tables.throttle_spans)


def left_outcomes(tasks: Sequence[Tables], left: "LeftTables", plan: ReplayPlan) -> tuple[pa.Table, SparkOutcomes]:
    """Return the entities of all tasks, and the rows that the job left with Spark's executors."""
    entities, ids = entities_of([each["buckets"] for each in tasks])
    return entities, SparkOutcomes(left, ids, [each.name for each in plan.proposals])


def replay_job(plan: ReplayPlan) -> Job:
    """Return the job that replays a plan."""
    return Job(
        name="replay",
        partition_columns=plan.partition_columns(),
        columns=plan.columns(),
        task=partial(replay_task, plan=plan),
        schemas={
            "buckets": bucket_schema(),
            OUTCOMES: task_schema(WHATIF),
            "throttle_spans": task_schema(THROTTLE_SPANS),
        },
    )


def replay_tables(tasks: Sequence[Tables], plan: ReplayPlan) -> ReplayTables:
    """Build the tables, sorted by proposals in the plan's order, then models, then entities."""
    entities, ids = entities_of([each["buckets"] for each in tasks])
    names = [each.name for each in plan.proposals]
    spans = [each["throttle_spans"] for each in tasks]
    span_order: tuple[SortKey, ...] = (*_ORDER, ("start_ms", "ascending"))
    return ReplayTables(
        entities=entities,
        whatif=joined([each["outcomes"] for each in tasks], ids, WHATIF, order=_ORDER, proposals=names),
        throttle_spans=joined(spans, ids, THROTTLE_SPANS, order=span_order, proposals=names),
    )
