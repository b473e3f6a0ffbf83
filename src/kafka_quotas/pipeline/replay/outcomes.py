"""The tables `entities`, `whatif` and `throttle_spans` of a replay, in this process or with Spark's executors.

Contract: only counts and as many rows as are asked for come to the process that asks. The process that holds the rows
writes them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa

from kafka_quotas.pipeline.buckets.entities import NAMES, nulls_for_shared
from kafka_quotas.pipeline.tables.arrow import arrow_frame, write_frame, write_tables
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.schemas import ENTITIES, THROTTLE_SPANS, WHATIF
from kafka_quotas.pipeline.tables.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kafka_quotas.pipeline.engine.spark import LeftTables

OUTCOMES: Final = "outcomes"
"""What tasks call the rows of `whatif`."""
BUCKETS: Final = "buckets"
"""What tasks call the rows of `entities`."""
_HELD: Final = ("scenario", "entity_id", "throttled_n", "throttle_ms")
_TRIAL: Final = ("entity_id", "quota", "throttle_ms")


class ReplayOutcomes(Protocol):
    """The rows of `entities`, `whatif` and `throttle_spans`."""

    def entities(self, entity_ids: Sequence[int] | None = None) -> pa.Table:
        """Return some rows of `entities`, without limits, which differ by proposal, or all for None."""
        ...

    def counts(self) -> tuple[int, int]:
        """Return the numbers of rows of `whatif`, and of those with a throttle time."""
        ...

    def ranked(self, limit: int | None) -> pa.Table:
        """Return the first rows of `whatif` by proposal and model, those throttled longest first."""

    def held(self) -> pa.Table:
        """Return the rows of `whatif` with a throttle time, in the columns of `_HELD`."""

    def of(self, entity_ids: Sequence[int]) -> pa.Table:
        """Return the limited rows of some entities, in the columns of `_TRIAL`."""

    def deciding(self, active_s: pa.Table, *, tolerated_share: float) -> pa.Table:
        """Return the limits of a sweep that decide what each entity needs, in the columns of `_TRIAL`.

        They are the highest limit that holds it back for longer than tolerated, if any does, and the next one above.

        Args:
            active_s: Columns `entity_id` and `active_s`, the seconds with traffic; other entities are left out.
            tolerated_share: Tolerated share of the active time, 0 to 1.
        """

    def write(self, out: str, *, has_spans: bool) -> None:
        """Write the tables below a path or URL, in place of earlier ones.

        Raises:
            KafkaQuotasError: A table can't be written.
        """


class LocalOutcomes:
    """The rows in memory, by the plan's proposals."""

    def __init__(self, entities: pa.Table, whatif: pa.Table, throttle_spans: pa.Table) -> None:
        self._entities = entities
        self._whatif = whatif
        self._spans = throttle_spans

    def entities(self, entity_ids: Sequence[int] | None = None) -> pa.Table:
        """Pick the rows, which are by number."""
        return self._entities if entity_ids is None else self._entities.take(pa.array(entity_ids, pa.int64()))

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

    def held(self) -> pa.Table:
        """Filter the rows."""
        return self._whatif.filter(pc.greater(self._whatif["throttled_n"], 0)).select(list(_HELD))

    def of(self, entity_ids: Sequence[int]) -> pa.Table:
        """Filter the rows."""
        own = pc.is_in(self._whatif["entity_id"], pa.array(entity_ids, pa.int32()))
        return self._whatif.filter(pc.and_(own, pc.is_valid(self._whatif["quota"]))).select(list(_TRIAL))

    def deciding(self, active_s: pa.Table, *, tolerated_share: float) -> pa.Table:
        """Compare the rows of each entity, by limit."""
        rows = self._whatif.select(list(_TRIAL)).join(active_s, "entity_id", join_type="inner")
        rows = rows.filter(pc.is_valid(rows["quota"])).sort_by([("entity_id", "ascending"), ("quota", "ascending")])
        if not rows.num_rows:
            return rows.select(list(_TRIAL))
        _, starts = np.unique(rows["entity_id"].to_numpy(), return_index=True)
        is_held = rows["throttle_ms"].to_numpy() / 1000 / rows["active_s"].to_numpy() > tolerated_share
        highest = np.maximum.reduceat(np.where(is_held, np.arange(is_held.size), 0), starts)
        firsts, ends = np.maximum(highest, starts), np.append(starts[1:], is_held.size)
        above = firsts[firsts + 1 < ends] + 1
        return rows.take(pa.array(np.concatenate([firsts, above]))).select(list(_TRIAL))

    def write(self, out: str, *, has_spans: bool) -> None:
        """Write the rows from this process."""
        spans = {THROTTLE_SPANS.name: self._spans} if has_spans else {}
        write_tables(out, {ENTITIES.name: self._entities, WHATIF.name: self._whatif, **spans})


class SparkOutcomes:
    """The rows as a job left them with Spark's executors.

    `proposals` are the names in the plan's order.
    """

    def __init__(self, left: "LeftTables", proposals: Sequence[str]) -> None:
        self._left = left
        self._proposals = proposals

    def entities(self, entity_ids: Sequence[int] | None = None) -> pa.Table:
        """Filter the rows on the executors."""
        from pyspark.sql import functions  # noqa: PLC0415 - only Spark's engine has it

        rows = self._named()
        found = rows if entity_ids is None else rows.where(functions.col("entity_id").isin(list(entity_ids)))
        return found.orderBy("entity_id").toArrow().cast(ENTITIES.arrow_schema())

    def counts(self) -> tuple[int, int]:
        """Count the rows on the executors."""
        counted = self._frame(OUTCOMES, WHATIF).selectExpr("count(*) as n", "count_if(throttled_n > 0) as throttled")
        row = counted.toArrow().to_pylist()[0]
        return int(row["n"]), int(row["throttled"])

    def ranked(self, limit: int | None) -> pa.Table:
        """Sort the rows on the executors."""
        from pyspark.sql import functions  # noqa: PLC0415 - as above

        order = ("proposal", functions.desc("model"), functions.desc("throttle_ms"), "entity_id")
        rows = self._frame(OUTCOMES, WHATIF).orderBy(*order)
        found = (rows if limit is None else rows.limit(limit)).select(*WHATIF.column_names)
        return found.toArrow().cast(WHATIF.arrow_schema())

    def held(self) -> pa.Table:
        """Filter the rows on the executors."""
        return self._frame(OUTCOMES, WHATIF).where("throttled_n > 0").select(*_HELD).toArrow()

    def of(self, entity_ids: Sequence[int]) -> pa.Table:
        """Filter the rows on the executors."""
        from pyspark.sql import functions  # noqa: PLC0415 - as above

        is_own = functions.col("entity_id").isin(list(entity_ids))
        return self._frame(OUTCOMES, WHATIF).where(is_own).where("quota is not null").select(*_TRIAL).toArrow()

    def deciding(self, active_s: pa.Table, *, tolerated_share: float) -> pa.Table:
        """Compare the rows of each entity on the executors."""
        from pyspark.sql import Window, functions  # noqa: PLC0415 - as above

        rows = self._frame(OUTCOMES, WHATIF).where("quota is not null").select(*_TRIAL)
        known = functions.broadcast(arrow_frame(rows.sparkSession, active_s))
        held_share = functions.col("throttle_ms") / 1000 / functions.col("active_s")
        own = Window.partitionBy("entity_id")
        highest = functions.max(functions.when(held_share > tolerated_share, functions.col("quota"))).over(own)
        number = functions.row_number().over(own.orderBy("quota"))
        above = (
            rows.join(known, "entity_id").withColumn("highest", highest).where("highest is null or quota >= highest")
        )
        return above.withColumn("number", number).where("number <= 2").select(*_TRIAL).toArrow()

    def write(self, out: str, *, has_spans: bool) -> None:
        """Let the executors write the rows, each range of entities in a file of its own."""
        write_frame(self._named().repartitionByRange("entity_id").sortWithinPartitions("entity_id"), out, ENTITIES)
        for name, table in ((OUTCOMES, WHATIF), *(((THROTTLE_SPANS.name, THROTTLE_SPANS),) if has_spans else ())):
            ordered = self._frame(name, table).repartitionByRange("entity_id")
            times = ("start_ms",) if table is THROTTLE_SPANS else ()
            write_frame(ordered.sortWithinPartitions("proposal", "model", "entity_id", *times), out, table)

    def _named(self) -> "DataFrame":
        return nulls_for_shared(self._left.numbered(BUCKETS, by=NAMES)).select(*ENTITIES.column_names)

    def _frame(self, name: str, table: TableSchema) -> "DataFrame":
        from pyspark.sql import functions  # noqa: PLC0415 - as above

        columns = [each for each in table.column_names if each != "scenario"]
        names = functions.array(*map(functions.lit, self._proposals))
        entities = self._left.numbered(BUCKETS, by=NAMES)
        rows = self._left.with_buckets(name, entities, [*columns, "proposal"])
        return rows.withColumn("scenario", functions.element_at(names, functions.col("proposal") + 1))
