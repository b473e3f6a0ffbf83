"""A compaction on Spark: executors merge, sort and delete files, at any URL that Spark writes.

Contract: the outcome is that of `compaction` on this machine, but that a day with rows of an ingest that may still be
under way is left for the next time. Spark's own errors pass through.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions

from kafka_quotas.pipeline.engine.progress import Watch, run_watched
from kafka_quotas.pipeline.ingest.compaction import dead_ingests
from kafka_quotas.pipeline.ingest.spark_engine import by_client
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.lake import DATA_TABLES, PARTITION, Lake, hadoop_url
from kafka_quotas.pipeline.tables.schemas import EVENTS, INGESTS
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot
from kafka_quotas.pipeline.tables.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLEANING: Final = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.vacuum.logging.enabled": "true",
    "spark.databricks.delta.vacuum.parallelDelete.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "64",  # 10,000 tasks for a few folders by default
}
"""Settings by which executors delete files of any age, and the table's history counts them."""


def merge_on_spark(session: "SparkSession", before: FolderSnapshot, *, at_ms: int, watch: Watch) -> None:
    """Merge the files of all tables by the executors, and drop rows of killed ingests."""
    for table in DATA_TABLES:
        name, files = _name(before.lake, table), _files(before.lake, table)
        bounds = [files[bound].drop_null() for bound in ("min.ingest", "max.ingest") if files.num_rows]
        if dead := dead_ingests(before, (each for bound in bounds for each in bound.to_pylist()), at_ms):
            session.sql(f"DELETE FROM {name} WHERE ingest IN ({', '.join(map(str, sorted(dead)))})").collect()  # noqa: S608 - numbers
        if table is not EVENTS and files.num_rows > 1:
            merge = session.sql(f"OPTIMIZE {name}").collect
            run_watched(session, merge, stage=f"merge {table.name}", watch=watch)
    _merge_days(session, before, watch)


def clean_on_spark(session: "SparkSession", lake: Lake, *, retention_hours: int) -> int:
    """Delete files that no change of the last hours needs, and return their number."""
    for setting, value in _CLEANING.items():
        session.conf.set(setting, value)
    removed = 0
    for table in (*DATA_TABLES, INGESTS):
        session.sql(f"VACUUM {_name(lake, table)} RETAIN {retention_hours} HOURS").collect()
        (latest,) = lake.table(table).history(1)
        removed += int(latest.get("operationMetrics", {}).get("numDeletedFiles", 0))
    return removed


def _name(lake: Lake, table: TableSchema) -> str:
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
    rows = by_client(session.read.format("delta").load(place).where(functions.col(PARTITION).isin(days)))
    texts = ", ".join(f"'{day.isoformat()}'" for day in sorted(days))
    writer = rows.write.format("delta").mode("overwrite").option("dataChange", "false")
    write = partial(writer.option("replaceWhere", f"{PARTITION} IN ({texts})").save, place)
    run_watched(session, write, stage="merge days", watch=watch)
