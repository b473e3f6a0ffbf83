"""Arrow's functions and memory, and the tables of a job as Delta tables in a folder: `OUT/<table>`.

Arrow creates its functions over columns when it is loaded, where no type checker can follow: `compute` is untyped for
that reason. Slices need arrays of some MB for a fraction of a second each. By default the C library takes these from
the system and gives them back, and the system clears every page anew: a third of the processor time of `usage`.

Source: mallopt(3) of glibc. C libraries without it go on as before.
"""

import ctypes
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute

from kafka_quotas.pipeline.tables.lake import hadoop_url, lake_errors, lake_url
from kafka_quotas.pipeline.tables.schemas import TableSchema

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


_KEPT_BYTES: Final = 1 << 30
_OPTIONS: Final = (
    (-1, _KEPT_BYTES),  # M_TRIM_THRESHOLD: more free memory than this goes back to the system
    (-3, _KEPT_BYTES),  # M_MMAP_THRESHOLD: larger arrays come from the system, one by one
    (-8, 1),  # M_ARENA_MAX: heaps that threads have of their own are given back, whatever the thresholds
)


@lru_cache(maxsize=1)
def keep_memory() -> None:
    """Have NumPy and Arrow keep the memory that they free, from threads that begin later as well."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None and all(set_option(*each) for each in _OPTIONS):
        pa.set_memory_pool(pa.system_memory_pool())
