"""The table `usage`, where its rows are: in this process, or with Spark's executors.

Contract: only sums by entity and the cells of named entities come to the process that asks; the process that holds the
whole table writes it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.arrow import write_frame, write_tables
from kafka_quotas.pipeline.tables.schemas import USAGE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from kafka_quotas.pipeline.engine.spark import LeftTables

TOTALS: Final = ("bytes", "requests", "thread_ms", "mutations", "throttle_ms", "throttled")
_LONGEST_S: Final = 3600
_ORDER: Final = ("entity_id", "window_s", "window_start_ms")


class UsageCells(Protocol):
    """The rows of `usage`."""

    def totals(self) -> pa.Table:
        """Return the sums over all time, a row for each entity, in columns `entity_id` and those of `TOTALS`."""

    def of(self, entity_ids: Sequence[int], *, window_s: int) -> pa.Table:
        """Return the rows of some entities in windows of one length, by entity and time."""

    def write(self, out: str) -> None:
        """Write the table below a path or URL, in place of an earlier one.

        Raises:
            KafkaQuotasError: The table can't be written.
        """


class LocalCells:
    """The rows in memory, by entity, length of the window and time."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def totals(self) -> pa.Table:
        """Sum the longest windows."""
        longest = self.table.filter(pc.equal(self.table["window_s"], _LONGEST_S))
        sums = longest.group_by("entity_id").aggregate([(name, "sum") for name in TOTALS])
        return sums.rename_columns([name.removesuffix("_sum") for name in sums.column_names])

    def of(self, entity_ids: Sequence[int], *, window_s: int) -> pa.Table:
        """Filter the rows."""
        rows = self.table.filter(pc.equal(self.table["window_s"], window_s))
        return rows.filter(pc.is_in(rows["entity_id"], pa.array(entity_ids, pa.int32())))

    def write(self, out: str) -> None:
        """Write the rows from this process."""
        write_tables(out, {USAGE.name: self.table})


class SparkCells:
    """The rows as a job left them with Spark's executors.

    `ids` are the entities of each task's buckets.
    """

    def __init__(self, left: "LeftTables", ids: "Sequence[NDArray[np.int64]]") -> None:
        self._left = left
        self._ids = ids

    def totals(self) -> pa.Table:
        """Sum the longest windows on the executors."""
        from pyspark.sql import functions  # noqa: PLC0415 - only Spark's engine has it

        sums = (functions.sum(name).alias(name) for name in TOTALS)
        return self._frame(_LONGEST_S).groupBy("entity_id").agg(*sums).toArrow()

    def of(self, entity_ids: Sequence[int], *, window_s: int) -> pa.Table:
        """Filter the rows on the executors."""
        from pyspark.sql import functions  # noqa: PLC0415 - as above

        own = functions.col("entity_id").isin(list(entity_ids))
        return self._frame(window_s).where(own).orderBy(*_ORDER).toArrow()

    def write(self, out: str) -> None:
        """Let the executors write the rows, each range of entities in a file of its own."""
        write_frame(self._frame().repartitionByRange("entity_id").sortWithinPartitions(*_ORDER), out, USAGE)

    def _frame(self, window_s: int | None = None) -> "DataFrame":
        only = None if window_s is None else pc.field("window_s") == window_s
        return self._left.with_entities("usage", self._left.known_entities(self._ids), USAGE.column_names, only=only)
