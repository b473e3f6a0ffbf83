"""The tables `whatif` and `throttle_spans` of a replay, in this process or with Spark's executors.

Contract: only counts and as many rows as are asked for come to the process that asks. The process that holds the rows
writes them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.arrow import write_frame, write_tables
from kafka_quotas.pipeline.tables.schemas import THROTTLE_SPANS, WHATIF
from kafka_quotas.pipeline.tables.table import TableSchema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from kafka_quotas.pipeline.engine.spark import LeftTables

OUTCOMES: Final = "outcomes"
"""What tasks call the rows of `whatif`."""


class ReplayOutcomes(Protocol):
    """The rows of `whatif` and `throttle_spans`."""

    def counts(self) -> tuple[int, int]:
        """Return the numbers of rows of `whatif`, and of those with a throttle time."""
        ...

    def ranked(self, limit: int | None) -> pa.Table:
        """Return the first rows of `whatif` by proposal and model, those throttled longest first."""

    def write(self, out: str, *, has_spans: bool) -> None:
        """Write the tables below a path or URL, in place of earlier ones.

        Raises:
            KafkaQuotasError: A table can't be written.
        """


class LocalOutcomes:
    """The rows in memory, by the plan's proposals."""

    def __init__(self, whatif: pa.Table, throttle_spans: pa.Table) -> None:
        self._whatif = whatif
        self._spans = throttle_spans

    def counts(self) -> tuple[int, int]:
        """Count the rows."""
        return self._whatif.num_rows, int(pc.sum(pc.greater(self._whatif["throttled_n"], 0)).as_py() or 0)

    def ranked(self, limit: int | None) -> pa.Table:
        """Sort the rows."""
        scenarios = self._whatif["scenario"].combine_chunks().dictionary_encode()  # in the order of their first rows
        found = self._whatif.append_column("proposal", scenarios.indices).sort_by(
            [
                ("proposal", "ascending"),
                ("model", "descending"),
                ("throttle_ms", "descending"),
                ("entity_id", "ascending"),
            ]
        )
        return found.select(self._whatif.column_names).slice(0, limit)

    def write(self, out: str, *, has_spans: bool) -> None:
        """Write the rows from this process."""
        spans = {THROTTLE_SPANS.name: self._spans} if has_spans else {}
        write_tables(out, {WHATIF.name: self._whatif, **spans})


class SparkOutcomes:
    """The rows as a job left them with Spark's executors.

    `ids` are the entities of each task's buckets, `proposals` the names in the plan's order.
    """

    def __init__(self, left: "LeftTables", ids: "Sequence[NDArray[np.int64]]", proposals: Sequence[str]) -> None:
        self._left = left
        self._ids = ids
        self._proposals = proposals

    def counts(self) -> tuple[int, int]:
        """Count the rows on the executors."""
        counted = self._frame(OUTCOMES, WHATIF).selectExpr("count(*) as n", "count_if(throttled_n > 0) as throttled")
        row = counted.toArrow().to_pylist()[0]
        return int(row["n"]), int(row["throttled"])

    def ranked(self, limit: int | None) -> pa.Table:
        """Sort the rows on the executors."""
        from pyspark.sql import functions  # noqa: PLC0415 - only Spark's engine has it

        order = ("proposal", functions.desc("model"), functions.desc("throttle_ms"), "entity_id")
        rows = self._frame(OUTCOMES, WHATIF).orderBy(*order)
        found = (rows if limit is None else rows.limit(limit)).select(*WHATIF.column_names)
        return found.toArrow().cast(WHATIF.arrow_schema())

    def write(self, out: str, *, has_spans: bool) -> None:
        """Let the executors write the rows, each range of entities in a file of its own."""
        for name, table in ((OUTCOMES, WHATIF), *(((THROTTLE_SPANS.name, THROTTLE_SPANS),) if has_spans else ())):
            ordered = self._frame(name, table).repartitionByRange("entity_id")
            times = ("start_ms",) if table is THROTTLE_SPANS else ()
            write_frame(ordered.sortWithinPartitions("proposal", "model", "entity_id", *times), out, table)

    def _frame(self, name: str, table: TableSchema) -> "DataFrame":
        from pyspark.sql import functions  # noqa: PLC0415 - as above

        columns = [each for each in table.column_names if each != "scenario"]
        names = functions.array(*map(functions.lit, self._proposals))
        rows = self._left.with_entities(name, self._ids, [*columns, "proposal"])
        return rows.withColumn("scenario", functions.element_at(names, functions.col("proposal") + 1))
