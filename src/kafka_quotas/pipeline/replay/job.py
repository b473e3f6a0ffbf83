"""The job `replay`: the tables `entities`, `whatif` and `throttle_spans` of open events under a plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa

from kafka_quotas.pipeline.buckets.entities import SortKey, bucket_schema, entities_of, joined, task_schema
from kafka_quotas.pipeline.engine.job import Job, Tables
from kafka_quotas.pipeline.engine.runner import OpenEvents
from kafka_quotas.pipeline.replay.outcomes import BUCKETS, OUTCOMES, LocalOutcomes, ReplayOutcomes, SparkOutcomes
from kafka_quotas.pipeline.replay.task import ReplayPlan, counted_task, replay_task
from kafka_quotas.pipeline.replay.unreached import are_unreached
from kafka_quotas.pipeline.tables.schemas import THROTTLE_SPANS, WHATIF

_ORDER: Final[tuple[SortKey, ...]] = (("proposal", "ascending"), ("model", "descending"), ("entity_id", "ascending"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTables:
    """The tables of a replay."""

    entities: pa.Table
    """Table `entities` without limits, which differ by proposal."""
    whatif: pa.Table
    throttle_spans: pa.Table
    """Table `throttle_spans`, empty unless the plan asks for it."""


def replay(events: OpenEvents, plan: ReplayPlan) -> ReplayOutcomes:
    """Replay open events under every proposal of a plan, and return the outcomes.

    They are where the engine has them: with Spark's executors, as long as the events are open, or here.

    Raises:
        KafkaQuotasError: A file can't be read, or Spark does not start or fails.
    """
    tasks, left = events.run_leaving(replay_job(plan), (BUCKETS, OUTCOMES, THROTTLE_SPANS.name))
    if left is not None:
        return SparkOutcomes(left, [each.name for each in plan.proposals])
    tables = replay_tables(tasks, plan)
    return LocalOutcomes(tables.entities, tables.whatif, tables.throttle_spans)


def replay_job(plan: ReplayPlan) -> Job:
    """Return the job that replays a plan."""
    return Job(
        name="replay",
        partition_columns=plan.partition_columns(),
        columns=plan.columns(),
        task=partial(replay_task, plan=plan),
        schemas={
            BUCKETS: bucket_schema(),
            OUTCOMES: task_schema(WHATIF),
            "throttle_spans": task_schema(THROTTLE_SPANS),
        },
        suffices=partial(are_unreached, plan=plan),
        counted=partial(counted_task, plan=plan),
    )


def replay_tables(tasks: Sequence[Tables], plan: ReplayPlan) -> ReplayTables:
    """Build the tables, sorted by proposals in the plan's order, then models, then entities."""
    entities, ids = entities_of([each[BUCKETS] for each in tasks])
    names = [each.name for each in plan.proposals]
    spans = [each["throttle_spans"] for each in tasks]
    span_order: tuple[SortKey, ...] = (*_ORDER, ("start_ms", "ascending"))
    return ReplayTables(
        entities=entities,
        whatif=joined([each["outcomes"] for each in tasks], ids, WHATIF, order=_ORDER, proposals=names),
        throttle_spans=joined(spans, ids, THROTTLE_SPANS, order=span_order, proposals=names),
    )
