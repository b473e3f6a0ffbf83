"""Buckets by name, numbered for all tasks of a job together: the table `entities`.

Invariant: entities are sorted by cluster, broker, quota type, user and client-id, and numbered from 0. Every engine
therefore gives the same numbers, whatever its tasks were.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.core.resolution.quota_resolver import AppliedQuota
from kafka_quotas.pipeline.buckets.proposal import BucketName
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.schemas import ENTITIES

NAMES: Final = ("cluster", "broker_id", "quota_type", "user", "client_id")


def bucket_schema() -> pa.Schema:
    """Return the columns of buckets by name.

    User and client-id are empty where clients share the bucket across them.
    """
    schema = ENTITIES.arrow_schema()
    return pa.schema([pa.field(name, schema.field(name).type) for name in (*NAMES, "matched_level", "quota")])


def bucket_table(
    names: Sequence[BucketName], matches: Sequence[AppliedQuota | None], quota_type: QuotaType
) -> pa.Table:
    """Return the buckets of one quota type with their limits."""
    columns: list[Any] = [
        [name.cluster for name in names],
        [name.broker_id for name in names],
        [quota_type.value] * len(names),
        [name.user for name in names],
        [name.client_id for name in names],
        [None if match is None else int(match.level) for match in matches],
        [None if match is None else match.limit for match in matches],
    ]
    schema = bucket_schema()
    return pa.table([pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)], schema=schema)


def entities_of(tasks: Sequence[pa.Table]) -> tuple[pa.Table, list[NDArray[np.int64]]]:
    """Build the table `entities` from the buckets of all tasks, which have different names.

    Returns:
        The table, and for each task the entity numbers of its buckets.
    """
    buckets = pa.concat_tables([bucket_schema().empty_table(), *tasks])
    order = pc.sort_indices(buckets, sort_keys=[(name, "ascending") for name in NAMES]).to_numpy()
    ids = np.empty(order.size, dtype=np.int64)
    ids[order] = np.arange(order.size)
    named = buckets.take(pa.array(order))
    for name in ("user", "client_id"):
        place, column = named.schema.get_field_index(name), named[name]
        known = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
        named = named.set_column(place, name, known)
    columns = [pa.array(np.arange(order.size, dtype=np.int32)), *(named[each] for each in ENTITIES.column_names[1:])]
    firsts = np.cumsum([0, *(each.num_rows for each in tasks)])
    return pa.table(columns, schema=ENTITIES.arrow_schema()), np.split(ids, firsts[1:-1]) if tasks else []


def numbered(found: pa.Table, ids: NDArray[np.int64]) -> pa.Table:
    """Replace a task's own bucket numbers in its table with entity_id."""
    place = found.schema.get_field_index("bucket")
    return found.set_column(place, "entity_id", pa.array(ids[found["bucket"].to_numpy()], pa.int32()))
