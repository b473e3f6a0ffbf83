"""The tables of the usage job, from the results of its tasks: `entities`, `usage` and `usage_profile`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafka_quotas.pipeline.buckets.entities import entities_of, numbered
from kafka_quotas.pipeline.tables.schemas import USAGE, USAGE_PROFILE
from kafka_quotas.pipeline.tables.table import TableSchema
from kafka_quotas.pipeline.usage.task import TaskUsage, profile_schema, usage_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTables:
    """The tables `entities` (with the quotas in force), `usage` and `usage_profile`."""

    entities: pa.Table
    usage: pa.Table
    profiles: pa.Table


def usage_tables(tasks: Sequence[TaskUsage]) -> UsageTables:
    """Build the tables, sorted by entity, then by the length of the window and time."""
    entities, ids = entities_of([each.buckets for each in tasks])
    none = np.empty(0, dtype=np.int64)
    usage = [numbered(each.usage, own) for each, own in zip(tasks, ids, strict=True)]
    profiles = [numbered(each.profiles, own) for each, own in zip(tasks, ids, strict=True)]
    usage.append(numbered(usage_schema().empty_table(), none))
    profiles.append(numbered(profile_schema().empty_table(), none))
    return UsageTables(
        entities=entities,
        usage=_sorted(pa.concat_tables(usage), USAGE, ("entity_id", "window_s", "window_start_ms")),
        profiles=_sorted(pa.concat_tables(profiles), USAGE_PROFILE, ("entity_id",)),
    )


def _sorted(found: pa.Table, table: TableSchema, keys: Sequence[str]) -> pa.Table:
    ordered = found.sort_by([(key, "ascending") for key in keys])
    schema = table.arrow_schema()
    return pa.table([ordered[name] for name in schema.names], schema=schema)
