"""The job `usage`: the tables `entities`, `usage` and `usage_profile` of open events.

Contract: the rows are in this process, or with Spark's executors. Only counts, sums and as many rows as are asked for
come to the process that asks. The process that holds the rows writes them.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from kafka_quotas.pipeline.buckets.entities import (
    NAMES,
    SortKey,
    bucket_schema,
    columns_table,
    entities_of,
    joined,
    nulls_for_shared,
    task_schema,
    with_nulls,
    without_nulls,
)
from kafka_quotas.pipeline.engine.client_parts import ClientParts, LocalParts, Pick
from kafka_quotas.pipeline.engine.job import Job, Tables
from kafka_quotas.pipeline.engine.runner import OpenEvents
from kafka_quotas.pipeline.tables.arrow import arrow_frame, write_frame, write_tables
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.schemas import ENTITIES, USAGE, USAGE_PROFILE
from kafka_quotas.pipeline.usage.task import BUCKETS, REPLICATION, UsagePlan, usage_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kafka_quotas.pipeline.engine.spark import LeftTables

ORDER: Final = ("entity_id", "window_s", "window_start_ms")
"""Columns by which the rows of `usage` are sorted."""
SECONDS: Final = pa.schema(
    [
        *(bucket_schema().field(name) for name in NAMES),
        *(pa.field(name, USAGE.arrow_schema().field(name).type) for name in ("window_start_ms", "bytes")),
    ]
)
_FOLLOWERS: Final = ("cluster", "broker_id", "follower")


class UsageTables(Protocol):
    """The buckets that were used, with all that `BUCKETS` has of them, and their rows of `usage`."""

    def count(self) -> int:
        """Return the number of buckets."""
        ...

    def clusters(self) -> list[str]:
        """Return the clusters of the buckets, sorted."""
        ...

    def ranked(self, limit: int | None) -> pa.Table:
        """Return the first buckets: by nearness to their limits, then the largest without one."""

    def amounts_of(self, names: pa.Table, *, window_s: int, column: str = "bytes") -> pa.Table:
        """Sum up a column of `usage` of some buckets in windows of one length.

        Args:
            names: Some of the columns `NAMES`, null if buckets are shared, no row twice. Buckets that are equal in
                these columns are added up.
            window_s: Length of the windows in s: 1, 60 or 3600.
            column: The column to sum up.

        Returns:
            These columns, `window_start_ms` and the sums, in any order.
        """

    def seconds_of(self, names: pa.Table) -> ClientParts:
        """Return names, `window_start_ms` and `bytes` of each second in which some buckets were used.

        `names` are distinct, in the columns `NAMES`, empty if buckets are shared.
        """
        ...

    def by_client(self, pick: Pick) -> ClientParts:
        """Return the rows that a function leaves of the buckets, with empty names where clients share them."""
        ...

    def replication(self) -> pa.Table:
        """Return the bytes that followers fetched, by the schema `REPLICATION`."""

    def write(self, out: str) -> None:
        """Write the tables below a path or URL, in place of earlier ones.

        Raises:
            KafkaQuotasError: A table can't be written.
        """


class LocalUsage:
    """The rows in memory: buckets by entity, `usage` by entity, length of the window and time."""

    def __init__(self, buckets: pa.Table, usage: pa.Table, replication: pa.Table) -> None:
        self.all_buckets = buckets
        self.usage = usage
        self._replication = replication

    def count(self) -> int:
        """Count the rows."""
        return len(self.all_buckets)

    def clusters(self) -> list[str]:
        """Pick the distinct ones."""
        return sorted(self.all_buckets["cluster"].unique().to_pylist())

    def ranked(self, limit: int | None) -> pa.Table:
        """Sort the rows."""
        found, quota = self.all_buckets, self.all_buckets["quota"]
        is_limited = pc.and_kleene(pc.is_valid(quota), pc.greater(quota, 0.0))
        kind = pc.if_else(is_limited, "", found["quota_type"])
        size = pc.if_else(is_limited, pc.divide(found["p99"], quota), found["max"])
        ranks = pa.table({"is_free": pc.invert(is_limited), "kind": kind, "size": size, "place": found["entity_id"]})
        keys = [(name, "descending" if name == "size" else "ascending") for name in ranks.column_names]
        return found.take(pc.sort_indices(ranks, sort_keys=keys).slice(0, limit))

    def amounts_of(self, names: pa.Table, *, window_s: int, column: str = "bytes") -> pa.Table:
        """Join the rows."""
        by = [*names.column_names, "window_start_ms"]
        found = self._cells(without_nulls(names), window_s, column).group_by(by).aggregate([(column, "sum")])
        return with_nulls(found.rename_columns([*by, column]))

    def _cells(self, names: pa.Table, window_s: int, column: str = "bytes") -> pa.Table:
        keys = names.column_names
        own = without_nulls(self.all_buckets.select(["entity_id", *keys])).join(names, keys, None, "inner")
        rows = self.usage.filter(pc.equal(self.usage["window_s"], window_s)).select(
            ["entity_id", "window_start_ms", column]
        )
        return rows.join(own, "entity_id", None, "inner")

    def seconds_of(self, names: pa.Table) -> LocalParts:
        """Join the rows."""
        return LocalParts(columns_table(self._cells(names, 1).select(SECONDS.names).columns, SECONDS))

    def by_client(self, pick: Pick) -> LocalParts:
        """Take all rows."""
        names = without_nulls(self.all_buckets.select(NAMES))
        others = self.all_buckets.drop_columns(NAMES)
        return LocalParts(pick(pa.table([*names.columns, *others.columns], [*NAMES, *others.column_names])))

    def replication(self) -> pa.Table:
        """Return the rows of all tasks."""
        return self._replication

    def write(self, out: str) -> None:
        """Write the rows from this process."""
        known = {each.name: self.all_buckets.select(each.column_names) for each in (ENTITIES, USAGE_PROFILE)}
        write_tables(out, {**known, USAGE.name: self.usage})


class SparkUsage:
    """The rows as a job left them with Spark's executors."""

    def __init__(self, left: "LeftTables") -> None:
        self._left = left

    def count(self) -> int:
        """Count the rows on the executors."""
        return self._left.rows("buckets").count()

    def clusters(self) -> list[str]:
        """Pick the distinct ones on the executors."""
        return sorted(self._left.rows("buckets").select("cluster").distinct().toArrow()["cluster"].to_pylist())

    def ranked(self, limit: int | None) -> pa.Table:
        """Sort the rows on the executors."""
        from pyspark.sql import functions  # noqa: PLC0415 - only Spark's engine has it

        is_limited = functions.expr("coalesce(quota > 0, false)")
        kind = functions.when(~is_limited, functions.col("quota_type"))
        size = functions.when(is_limited, functions.expr("p99 / quota")).otherwise(functions.col("max"))
        rows = self._left.rows("buckets").orderBy(~is_limited, kind, functions.desc(size), *NAMES)
        return with_nulls((rows if limit is None else rows.limit(limit)).select(*BUCKETS.names[:-1]).toArrow())

    def amounts_of(self, names: pa.Table, *, window_s: int, column: str = "bytes") -> pa.Table:
        """Join the rows on the executors."""
        from pyspark.sql import functions  # noqa: PLC0415 - as above

        rows, by = self._cells(without_nulls(names), window_s, column), [*names.column_names, "window_start_ms"]
        return with_nulls(rows.groupBy(*by).agg(functions.sum(column).alias(column)).toArrow())

    def _cells(self, names: pa.Table, window_s: int, column: str = "bytes") -> "DataFrame":
        from pyspark.sql import functions  # noqa: PLC0415 - as above

        keys, buckets = names.column_names, self._left.rows("buckets")
        own = buckets.join(functions.broadcast(arrow_frame(buckets.sparkSession, names)), keys)
        columns = [*keys, "window_start_ms", column]
        return self._left.with_buckets("usage", own, columns, only=pc.field("window_s") == window_s)

    def seconds_of(self, names: pa.Table) -> ClientParts:
        """Join the rows on the executors."""
        from kafka_quotas.pipeline.engine.spark_parts import SparkParts  # noqa: PLC0415 - as above

        return SparkParts.of_rows(self._cells(names, 1), SECONDS)

    def by_client(self, pick: Pick) -> ClientParts:
        """Take the rows on the executors."""
        from kafka_quotas.pipeline.engine.spark_parts import SparkParts  # noqa: PLC0415 - as above

        return SparkParts.of(self._left, "buckets", pick)

    def replication(self) -> pa.Table:
        """Sum up the rows on the executors."""
        from pyspark.sql import functions  # noqa: PLC0415 - as above

        summed = self._left.rows("replication").groupBy(*_FOLLOWERS).agg(functions.sum("bytes").alias("bytes"))
        return summed.toArrow().cast(REPLICATION)

    def write(self, out: str) -> None:
        """Let the executors write the rows."""
        known = nulls_for_shared(self._left.numbered("buckets", by=NAMES))
        for table in (ENTITIES, USAGE_PROFILE):
            write_frame(known, out, table, order=["entity_id"])
        rows = self._left.with_buckets("usage", known, USAGE.column_names)
        write_frame(rows, out, USAGE, order=ORDER)


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
