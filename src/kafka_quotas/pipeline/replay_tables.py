"""The tables of a replay, from what its tasks found: `entities` and `whatif`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from kafka_quotas.pipeline.entity_table import entities_of, numbered
from kafka_quotas.pipeline.replay_plan import ReplayPlan
from kafka_quotas.pipeline.replay_task import TaskReplay, outcome_schema
from kafka_quotas.pipeline.schemas import WHATIF

_ORDER: Final = [("proposal", "ascending"), ("model", "descending"), ("entity_id", "ascending")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTables:
    """The tables `entities` (without limits: those differ by proposal) and `whatif`."""

    entities: pa.Table
    whatif: pa.Table


def replay_tables(tasks: Sequence[TaskReplay], plan: ReplayPlan) -> ReplayTables:
    """The tables, sorted: proposals in the plan's order, then models, then entities."""
    entities, ids = entities_of([each.buckets for each in tasks])
    outcomes = [numbered(each.outcomes, own) for each, own in zip(tasks, ids, strict=True)]
    nothing = numbered(outcome_schema().empty_table(), np.empty(0, dtype=np.int64))
    joined = pa.concat_tables([nothing, *outcomes]).sort_by(_ORDER)
    names = pa.array([each.name for each in plan.proposals], pa.string())
    named = joined.append_column("scenario", names.take(joined["proposal"].combine_chunks()))
    schema = WHATIF.arrow_schema()
    return ReplayTables(entities=entities, whatif=pa.table([named[name] for name in schema.names], schema=schema))
