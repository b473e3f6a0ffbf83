"""Buckets by name, numbered for all tasks of a job together: the table `entities`.

Invariant: entities are sorted by cluster, broker, quota type, user and client-id, and numbered from 0. Every engine
therefore gives the same numbers, whatever its tasks were.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.core.resolution.quota_resolver import AppliedQuota
from kafka_quotas.pipeline.buckets.proposal import BucketName
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.schemas import ENTITIES, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAMES: Final = ("cluster", "broker_id", "quota_type", "user", "client_id")
SortKey = tuple[str, Literal["ascending", "descending"]]


def bucket_schema() -> pa.Schema:
    """Return the columns of a task's buckets, with empty names where clients share them."""
    schema = ENTITIES.arrow_schema()
    named = [pa.field(name, schema.field(name).type) for name in (*NAMES, "matched_level", "quota")]
    return pa.schema([*named, pa.field("bucket", pa.int64())])


def task_schema(table: TableSchema) -> pa.Schema:
    """Return the columns of a table in the results of a task, which has numbers of its own.

    `bucket`, a place in the task's buckets, takes the place of `entity_id`, and `proposal`, a place in the plan's
    proposals, that of `scenario`.
    """
    numbered = {"entity_id": ("bucket", pa.int64()), "scenario": ("proposal", pa.int32())}
    return pa.schema([numbered.get(field.name, (field.name, field.type)) for field in table.arrow_schema()])


def columns_table(columns: Sequence[Any], schema: pa.Schema) -> pa.Table:
    """Return the table of these columns, which are arrays or sequences of values."""
    return pa.table([pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)], schema=schema)


def bucket_table(
    names: Sequence[BucketName], matches: Sequence[AppliedQuota | None], quota_type: QuotaType
) -> pa.Table:
    """Return the buckets of one quota type with their limits, but without numbers."""
    columns = [
        [name.cluster for name in names],
        [name.broker_id for name in names],
        [quota_type.value] * len(names),
        [name.user for name in names],
        [name.client_id for name in names],
        [None if match is None else int(match.level) for match in matches],
        [None if match is None else match.limit for match in matches],
    ]
    return columns_table(columns, bucket_schema().remove(len(columns)))


def numbered(tables: Sequence[pa.Table]) -> pa.Table:
    """Join the buckets of all quota types of a task, at least one, and number them from 0."""
    found = pa.concat_tables(tables)
    return found.append_column("bucket", pa.array(np.arange(found.num_rows), pa.int64()))


def entities_of(tasks: Sequence[pa.Table], schema: pa.Schema | None = None) -> tuple[pa.Table, list[NDArray[np.int64]]]:
    """Build the table `entities` from the buckets of all tasks, which have different names.

    `schema` is that of the tasks' buckets, None for `bucket_schema`.

    Returns:
        The table, with what other columns the buckets have, and for each task the entity numbers of its buckets.
    """
    buckets = pa.concat_tables([(schema or bucket_schema()).empty_table(), *tasks])
    order = pc.sort_indices(buckets, sort_keys=[(name, "ascending") for name in NAMES]).to_numpy()
    ids = np.empty(order.size, dtype=np.int64)
    ids[order] = np.arange(order.size)
    named = buckets.take(pa.array(order))
    named = with_nulls(named)
    others = [field for field in buckets.schema if field.name not in (*ENTITIES.column_names, "bucket")]
    found = pa.schema([*ENTITIES.arrow_schema(), *others])
    columns = [pa.array(np.arange(order.size, dtype=np.int32)), *(named[each] for each in found.names[1:])]
    firsts = np.cumsum([0, *(each.num_rows for each in tasks)])
    return pa.table(columns, schema=found), np.split(ids, firsts[1:-1]) if tasks else []


def with_nulls(rows: pa.Table) -> pa.Table:
    """Return rows with null in place of the empty names that tasks have for what clients share."""
    for name in {"user", "client_id"}.intersection(rows.column_names):
        column = pc.if_else(pc.equal(rows[name], ""), pa.scalar(None, pa.string()), rows[name])
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows


def without_nulls(names: pa.Table) -> pa.Table:
    """Return names with empty ones in place of null, by which rows can be joined."""
    shared = ("user", "client_id")
    return pa.table(
        {each: pc.fill_null(names[each], "") if each in shared else names[each] for each in names.column_names}
    )


def nulls_for_shared(rows: "DataFrame") -> "DataFrame":
    """Return rows of Spark as `with_nulls` does."""
    from pyspark.sql import functions  # noqa: PLC0415 - only Spark's engine has it

    return rows.withColumns({each: functions.expr(f"nullif({each}, '')") for each in ("user", "client_id")})


def joined(
    tasks: Sequence[pa.Table],
    ids: Sequence[NDArray[np.int64]],
    table: TableSchema,
    *,
    order: Sequence[SortKey],
    proposals: Sequence[str] = (),
    in_runs: bool = False,
) -> pa.Table:
    """Join a table's parts from all tasks, sorted, with numbers of entities and names of proposals.

    `ids` are the entity numbers of each task's buckets. In `order`, the columns to sort by, `proposal` is the plan's.
    `in_runs` says that all columns of it are whole numbers and ascend, and that rows which differ in the last one alone
    come together and in order: then only such runs are sorted.
    """
    parts = [task_schema(table).empty_table(), *tasks]
    found = pa.concat_tables(
        part.append_column("entity_id", pa.array(own[part["bucket"].to_numpy()], pa.int32()))
        for part, own in zip(parts, [np.empty(0, dtype=np.int64), *ids], strict=True)
    )
    found = found.take(_order_of_runs(found, order)) if in_runs else found.sort_by(list(order))
    if proposals:
        names = pa.array(proposals, pa.string())
        found = found.append_column("scenario", names.take(found["proposal"].combine_chunks()))
    schema = table.arrow_schema()
    return pa.table([found[name] for name in schema.names], schema=schema)


def _order_of_runs(rows: pa.Table, order: Sequence[SortKey]) -> pa.Array:
    """Return the positions of rows in an order, given runs of them as `joined` wants."""
    keys = [rows[name].to_numpy() for name, _ in order[:-1]]
    is_first = np.zeros(max(rows.num_rows - 1, 0), dtype=bool)
    for key in keys:
        is_first |= key[1:] != key[:-1]
    starts = np.flatnonzero(np.append(np.ones(min(rows.num_rows, 1), dtype=bool), is_first))
    runs = np.lexsort([key[starts] for key in reversed(keys)])
    counts = np.diff(np.append(starts, rows.num_rows))[runs]
    moved = starts[runs] - (np.cumsum(counts) - counts)
    return pa.array(np.repeat(moved, counts) + np.arange(rows.num_rows))
