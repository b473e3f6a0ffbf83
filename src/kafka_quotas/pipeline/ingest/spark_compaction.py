"""A compaction on Spark: executors merge, sort and delete files, at any URL that Spark writes.

Contract: the outcome is that of `compaction` on this machine, but that a day with rows of an ingest that may still be
under way is left for the next time. Spark's own errors pass through.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions

from kafka_quotas.pipeline.engine.progress import Watch, run_watched
from kafka_quotas.pipeline.engine.spark_failures import delta_conflicts
from kafka_quotas.pipeline.ingest.compaction import dead_ingests
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.lake import DATA_TABLES, PARTITION, Lake, hadoop_url
from kafka_quotas.pipeline.tables.schemas import EVENTS, INGESTS
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot
from kafka_quotas.pipeline.tables.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ORDER: Final = (PARTITION, "client", "ts_ms", "src_file", "src_offset")
_CLEANING: Final = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.vacuum.logging.enabled": "true",
    "spark.databricks.delta.vacuum.parallelDelete.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "64",  # 10,000 tasks for a few folders by default
}
"""Settings by which executors delete files of any age, and the table's history counts them."""


def merge_on_spark(session: "SparkSession", before: FolderSnapshot, *, at_ms: int, watch: Watch) -> None:
    """Merge the files of all tables by the executors, and drop rows of killed ingests.

    Raises:
        ConflictError: Another change came in between.
    """
    with delta_conflicts():
        for table in DATA_TABLES:
            _merge(session, before, table, at_ms=at_ms, watch=watch)
        _merge_days(session, before, watch)


def _merge(session: "SparkSession", before: FolderSnapshot, table: TableSchema, *, at_ms: int, watch: Watch) -> None:
    """Drop the rows of killed ingests from a table, and merge its files unless they are of days."""
    name, files = sql_name(before.lake, table), _files(before.lake, table)
    bounds = [files[bound].drop_null() for bound in ("min.ingest", "max.ingest") if files.num_rows]
    if dead := dead_ingests(before, (each for bound in bounds for each in bound.to_pylist()), at_ms):
        delete_rows(session, before.lake, table, sorted(dead))
    if table is not EVENTS and files.num_rows > 1:
        run_watched(session, session.sql(f"OPTIMIZE {name}").collect, stage=f"merge {table.name}", watch=watch)


def clean_on_spark(session: "SparkSession", lake: Lake, *, retention_hours: int) -> int:
    """Delete files that no change of the last hours needs, and return their number."""
    for setting, value in _CLEANING.items():
        session.conf.set(setting, value)
    removed = 0
    for table in (*DATA_TABLES, INGESTS):
        session.sql(f"VACUUM {sql_name(lake, table)} RETAIN {retention_hours} HOURS").collect()
        (latest,) = lake.table(table).history(1)
        removed += int(latest.get("operationMetrics", {}).get("numDeletedFiles", 0))
    return removed


def delete_rows(
    session: "SparkSession", lake: Lake, table: TableSchema, ingests: Sequence[int], more: str = ""
) -> None:
    """Let executors delete rows of some ingests, those for which `more`, in SQL, holds as well."""
    numbers = ", ".join(map(str, ingests))
    session.sql(f"DELETE FROM {sql_name(lake, table)} WHERE ingest IN ({numbers}){more}").collect()  # noqa: S608 - ours


def sql_name(lake: Lake, table: TableSchema) -> str:
    """Return a table as Spark's SQL names it."""
    place = hadoop_url(lake.place(table)).replace("`", "``")
    return f"delta.`{place}`"


def _files(lake: Lake, table: TableSchema) -> pa.Table:
    return pa.table(lake.table(table).get_add_actions(flatten=True))


def _merge_days(session: "SparkSession", before: FolderSnapshot, watch: Watch) -> None:
    """Write the files of each day that has several anew, by client and time."""
    place, files = hadoop_url(before.lake.place(EVENTS)), _files(before.lake, EVENTS)
    if not files.num_rows:
        return
    known = pa.array(before.ingests, pa.int64())
    is_known = pc.and_(*(pc.is_in(files[bound], value_set=known) for bound in ("min.ingest", "max.ingest")))
    of_day = files.append_column("is_known", is_known).group_by(f"partition.{PARTITION}")
    counted = of_day.aggregate([("path", "count"), ("is_known", "all")]).to_pylist()
    days = [row[f"partition.{PARTITION}"] for row in counted if row["path_count"] > 1 and row["is_known_all"]]
    if not days:
        return
    found = session.read.format("delta").load(place).where(functions.col(PARTITION).isin(days))
    rows = found.repartitionByRange(*_ORDER[:3]).sortWithinPartitions(*_ORDER)
    texts = ", ".join(f"'{day.isoformat()}'" for day in sorted(days))
    writer = rows.write.format("delta").mode("overwrite").option("dataChange", "false")
    write = partial(writer.option("replaceWhere", f"{PARTITION} IN ({texts})").save, place)
    run_watched(session, write, stage="merge days", watch=watch)
