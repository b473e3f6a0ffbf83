"""Arrow's functions, and the tables of a job as Delta tables in a folder: `OUT/<table>`.

Arrow creates its functions over columns when it is loaded, where no type checker can follow: `compute` is untyped for
that reason.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute

from kafka_quotas.pipeline.tables.lake import hadoop_url, lake_errors, lake_url
from kafka_quotas.pipeline.tables.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

compute: Final[Any] = pyarrow.compute


def write_tables(out: str, tables: Mapping[str, pa.Table]) -> None:
    """Write Delta tables below a path or URL, each in one commit, replacing the rows of an earlier run.

    Raises:
        KafkaQuotasError: The tables can't be written.
    """
    from deltalake import write_deltalake  # noqa: PLC0415 - executors load this module without it

    for name, table in tables.items():
        with lake_errors(f"writing the table {name} to {out}"):
            write_deltalake(f"{lake_url(out)}/{name}", table, mode="overwrite", schema_mode="overwrite")


def arrow_frame(session: "SparkSession", table: pa.Table) -> "DataFrame":
    """Return a table as rows of Spark.

    A table that was joined from others, or collected, may have empty chunks, and Spark 4.0 leaves out all rows behind
    the first of them (`ArrowConverters` reads a partition's batches only up to an empty one).
    """
    return session.createDataFrame(table.combine_chunks())


def write_frame(rows: "DataFrame", out: str, table: TableSchema, *, order: Sequence[str]) -> None:
    """Let Spark's executors write a Delta table below a path or URL, replacing the rows of an earlier run.

    Each range of entities is in a file of its own, in an order.
    """
    rows = rows.repartitionByRange("entity_id").sortWithinPartitions(*order)
    writer = rows.select(*table.column_names).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.save(f"{hadoop_url(lake_url(out))}/{table.name}")
