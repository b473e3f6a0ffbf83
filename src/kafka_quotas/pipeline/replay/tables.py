"""The tables of a replay, from the results of its tasks: `entities`, `whatif` and `throttle_spans`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.pipeline.buckets.entities import entities_of, numbered
from kafka_quotas.pipeline.replay.plan import ReplayPlan
from kafka_quotas.pipeline.replay.spans import span_schema
from kafka_quotas.pipeline.replay.task import TaskReplay, outcome_schema
from kafka_quotas.pipeline.tables.schemas import THROTTLE_SPANS, WHATIF
from kafka_quotas.pipeline.tables.table import TableSchema

_ORDER: Final[list[tuple[str, Literal["ascending", "descending"]]]] = [
    ("proposal", "ascending"),
    ("model", "descending"),
    ("entity_id", "ascending"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTables:
    """The tables of a replay."""

    entities: pa.Table
    """Table `entities` without limits, which differ by proposal."""
    whatif: pa.Table
    """Table `whatif`."""
    spans: pa.Table
    """Table `throttle_spans`, empty unless the plan asks for spans."""


def replay_tables(tasks: Sequence[TaskReplay], plan: ReplayPlan) -> ReplayTables:
    """Build the tables, sorted by proposals in the plan's order, then models, then entities."""
    entities, ids = entities_of([each.buckets for each in tasks])
    none = np.empty(0, dtype=np.int64)
    outcomes = [(outcome_schema().empty_table(), none), *zip((each.outcomes for each in tasks), ids, strict=True)]
    spans = [(span_schema().empty_table(), none), *zip((each.spans for each in tasks), ids, strict=True)]
    return ReplayTables(
        entities=entities,
        whatif=_named(outcomes, plan, WHATIF, _ORDER),
        spans=_named(spans, plan, THROTTLE_SPANS, [*_ORDER, ("start_ms", "ascending")]),
    )


def _named(
    parts: Sequence[tuple[pa.Table, NDArray[np.int64]]],
    plan: ReplayPlan,
    table: TableSchema,
    order: Sequence[tuple[str, Literal["ascending", "descending"]]],
) -> pa.Table:
    """Join the tasks' tables, with entities and proposals by name, sorted."""
    joined = pa.concat_tables([numbered(found, own) for found, own in parts]).sort_by(list(order))
    names = pa.array([each.name for each in plan.proposals], pa.string())
    named = joined.append_column("scenario", names.take(joined["proposal"].combine_chunks()))
    schema = table.arrow_schema()
    return pa.table([named[name] for name in schema.names], schema=schema)
