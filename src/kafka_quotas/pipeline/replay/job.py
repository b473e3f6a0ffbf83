"""The job `replay`: the tables `entities`, `whatif` and `throttle_spans` of open events under a plan.

Contract: the rows are in this process, or with Spark's executors. Only counts and as many rows as are asked for come to
the process that asks. The process that holds the rows writes them.

Events of clients that reach no limit of a plan, by their figures, need not be read. A measured rate exceeds the most in
one second only so far. Its samples have amounts of the closed interval from the start of the oldest sample to now, of E
seconds. Such an interval touches at most `ceil(E) + 1` whole seconds of the clock, and the sum is divided by at least
`max(E, k)` seconds, where `k = (n - 1) W` is a whole number. The ratio is at most `(k + 1) / k` up to `E = k`, below
`(k + 2) / k` from there to the next second, and lower after that. A bucket whose clients' peaks add up to P therefore
never measures `P (k + 2) / k` or more: `12 / 10` of P with Kafka's defaults.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.charges import amount_of
from kafka_quotas.pipeline.buckets.entities import (
    NAMES,
    SortKey,
    bucket_schema,
    columns_table,
    entities_of,
    joined,
    nulls_for_shared,
    task_schema,
    without_nulls,
)
from kafka_quotas.pipeline.engine.client_parts import ClientParts, LocalParts
from kafka_quotas.pipeline.engine.job import Job, Tables
from kafka_quotas.pipeline.engine.runner import OpenEvents
from kafka_quotas.pipeline.replay.task import ReplayPlan, clients_of_figures, counted_task, passes_of, replay_task
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.arrow import write_frame, write_tables
from kafka_quotas.pipeline.tables.schemas import CHARGED_TYPES, ENTITIES, THROTTLE_SPANS, WHATIF, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kafka_quotas.pipeline.engine.spark import LeftTables

_ROUNDING: Final = 1 - 1e-9
"""More than sums of doubles in the order of events are off."""


def are_unreached(figures: pa.Table, plan: ReplayPlan) -> NDArray[np.bool_]:
    """Check of each client whether all buckets that its events are charged to stay below all their limits.

    So do the buckets of every client that shares one of these. Clients without charges are among them.

    Args:
        figures: Figures of all clients (`client_figures`).
        plan: The plan, none of whose clients is unreached where its quotas change with time.
    """
    passes = passes_of(plan)
    is_needed = np.zeros(figures.num_rows, dtype=bool)
    if any(each.later for each in plan.proposals) or any(each.value not in CHARGED_TYPES for each in passes):
        return is_needed
    clients, buckets = clients_of_figures(figures), []
    for quota_type, of_type in passes.items():
        highest = _highest_rates(figures, quota_type, plan)
        for each in of_type:
            rows, limits = each.rows_and_limits(clients)
            sums = np.bincount(rows, weights=highest, minlength=limits.size)
            is_needed |= ~(sums < limits * _ROUNDING)[rows]
            buckets.append(rows)
    return ~_with_sharers(is_needed, buckets)


def highest_of_peak(window: QuotaWindow) -> float:
    """Return how many times the most in one second a rate stays below, infinity for a single sample."""
    least_s = (window.samples - 1) * window.window_s
    return (least_s + 2) / least_s if least_s else math.inf


def _highest_rates(figures: pa.Table, quota_type: QuotaType, plan: ReplayPlan) -> NDArray[np.float64]:
    """Return the rate that each client can't exceed, in the unit of the quota, 0 without charges."""
    kind = quota_type.value
    peaks = amount_of(figures[f"{kind}_peak"].to_numpy(), quota_type)
    # tokens are judged one by one: who changed any topic is replayed
    factor = math.inf if quota_type is QuotaType.CONTROLLER_MUTATION else highest_of_peak(plan.window)
    found = np.zeros(peaks.size)
    is_charged = figures[f"{kind}_events"].to_numpy() > 0
    found[is_charged] = np.maximum(peaks[is_charged], np.finfo(np.float64).tiny) * factor
    return found


def _with_sharers(is_needed: NDArray[np.bool_], buckets: list[NDArray[np.int32]]) -> NDArray[np.bool_]:
    """Add all clients that share a bucket with a needed one, over all quota types."""
    while True:
        found = is_needed
        for rows in buckets:
            found = found | (np.bincount(rows, weights=found) > 0)[rows]
        if (found == is_needed).all():
            return found
        is_needed = found


OUTCOMES: Final = "outcomes"
"""What tasks call the rows of `whatif`."""
BUCKETS: Final = "buckets"
"""What tasks call the rows of `entities`."""
HELD: Final = pa.schema(
    [
        *(bucket_schema().field(name) for name in NAMES),
        *(pa.field(name, WHATIF.arrow_schema().field(name).type) for name in ("throttled_n", "throttle_ms")),
    ]
)
"""Names of buckets, empty if clients share them, and how many throttle times they have, and how long in ms."""


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

    def held(self) -> ClientParts:
        """Return the buckets with a throttle time, with how many and how long these are, as in `HELD`.

        Of several proposals and models there is a row for each.
        """
        ...

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

    def held(self) -> LocalParts:
        """Filter the rows."""
        held = self._whatif.filter(pc.greater(self._whatif["throttled_n"], 0))
        names = without_nulls(self._entities.select(NAMES).take(held["entity_id"]))  # which are by number
        return LocalParts(columns_table([*names.columns, *held.select(HELD.names[len(NAMES) :]).columns], HELD))

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

    def held(self) -> ClientParts:
        """Filter the rows on the executors."""
        from kafka_quotas.pipeline.engine.spark_parts import SparkParts  # noqa: PLC0415 - as above

        rows = self._left.with_buckets(OUTCOMES, self._left.rows(BUCKETS), HELD.names)
        return SparkParts.of_rows(rows.where("throttled_n > 0"), HELD)

    def write(self, out: str, *, has_spans: bool) -> None:
        """Let the executors write the rows."""
        write_frame(self._named(), out, ENTITIES, order=["entity_id"])
        for name, table in ((OUTCOMES, WHATIF), *(((THROTTLE_SPANS.name, THROTTLE_SPANS),) if has_spans else ())):
            times = ("start_ms",) if table is THROTTLE_SPANS else ()
            write_frame(self._frame(name, table), out, table, order=["proposal", "model", "entity_id", *times])

    def _named(self) -> "DataFrame":
        return nulls_for_shared(self._left.numbered(BUCKETS, by=NAMES)).select(*ENTITIES.column_names)

    def _frame(self, name: str, table: TableSchema) -> "DataFrame":
        from pyspark.sql import functions  # noqa: PLC0415 - as above

        columns = [each for each in table.column_names if each != "scenario"]
        names = functions.array(*map(functions.lit, self._proposals))
        entities = self._left.numbered(BUCKETS, by=NAMES)
        rows = self._left.with_buckets(name, entities, [*columns, "proposal"])
        return rows.withColumn("scenario", functions.element_at(names, functions.col("proposal") + 1))


_ORDER: Final[tuple[SortKey, ...]] = (("proposal", "ascending"), ("model", "descending"), ("entity_id", "ascending"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTables:
    """The tables of a replay."""

    entities: pa.Table
    """Table `entities` without limits, which differ by proposal."""
    whatif: pa.Table
    throttle_spans: pa.Table
    """Table `throttle_spans`, empty unless the plan asks for it."""


def replay(events: OpenEvents, plan: ReplayPlan) -> ReplayOutcomes:
    """Replay open events under every proposal of a plan, and return the outcomes.

    They are where the engine has them: with Spark's executors, as long as the events are open, or here.

    Raises:
        KafkaQuotasError: A file can't be read, or Spark does not start or fails.
    """
    tasks, left = events.run_leaving(replay_job(plan), (BUCKETS, OUTCOMES, THROTTLE_SPANS.name))
    if left is not None:
        return SparkOutcomes(left, [each.name for each in plan.proposals])
    tables = replay_tables(tasks, plan)
    return LocalOutcomes(tables.entities, tables.whatif, tables.throttle_spans)


def replay_job(plan: ReplayPlan) -> Job:
    """Return the job that replays a plan."""
    return Job(
        name="replay",
        partition_columns=plan.partition_columns(),
        columns=plan.columns(),
        task=partial(replay_task, plan=plan),
        schemas={
            BUCKETS: bucket_schema(),
            OUTCOMES: task_schema(WHATIF),
            "throttle_spans": task_schema(THROTTLE_SPANS),
        },
        suffices=partial(are_unreached, plan=plan),
        counted=partial(counted_task, plan=plan),
    )


def replay_tables(tasks: Sequence[Tables], plan: ReplayPlan) -> ReplayTables:
    """Build the tables, sorted by proposals in the plan's order, then models, then entities."""
    entities, ids = entities_of([each[BUCKETS] for each in tasks])
    names = [each.name for each in plan.proposals]
    spans = [each["throttle_spans"] for each in tasks]
    span_order: tuple[SortKey, ...] = (*_ORDER, ("start_ms", "ascending"))
    return ReplayTables(
        entities=entities,
        whatif=joined([each["outcomes"] for each in tasks], ids, WHATIF, order=_ORDER, proposals=names),
        throttle_spans=joined(spans, ids, THROTTLE_SPANS, order=span_order, proposals=names),
    )
