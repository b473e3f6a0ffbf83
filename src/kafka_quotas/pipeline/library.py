"""The jobs as functions of PySpark: DataFrame in, DataFrame out, session and paths outside.

    from kafka_quotas import EVERYTHING, Entity
    from kafka_quotas.pipeline import Proposal, read_request_logs, replay, usage

    events = read_request_logs(spark, "s3a://logs/{broker_id}/*.log", timeZone="UTC")
    usage(events).write.format("delta").save("s3a://tables/usage")
    replay(events, {"tight": {Entity.of(user=None): {"producer_byte_rate": 1e6}}}).show()
    replay(events, [Proposal(name="now", entries=store.describe(EVERYTHING), groups=store.groups())]).show()

Contract: events are packed rows, as `pack_events` and the table `events` of an ingest have them. Results have the
columns of the tables in `tables.schemas`, but for those about a run. Only `recommend` runs anything before its result
is used. Workers need the package and its libraries.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.events import recorded_time
from kafka_quotas.pipeline.engine.spark import run_job, spark_events
from kafka_quotas.pipeline.engine.spark_tasks import in_tasks
from kafka_quotas.pipeline.engine.sql import SparkTables, result_columns
from kafka_quotas.pipeline.ingest.log_source import KafkaRequestLog
from kafka_quotas.pipeline.jobs.recommend.job import recommend as recommend_quotas
from kafka_quotas.pipeline.jobs.recommend.job import recommendation_table
from kafka_quotas.pipeline.jobs.recommend.plan import RecommendPlan
from kafka_quotas.pipeline.jobs.replay import Model, ReplayPlan, replay_job
from kafka_quotas.pipeline.jobs.usage.job import UsagePlan, usage_job
from kafka_quotas.pipeline.tables.arrow import arrow_frame
from kafka_quotas.pipeline.tables.packed_events import client_numbers, pack
from kafka_quotas.pipeline.tables.schemas import (
    EVENTS,
    NAMES,
    PACKED_EVENTS,
    RECOMMENDATION,
    USAGE,
    USAGE_PROFILE,
    WHATIF,
    TableSchema,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Quotas = Mapping[Entity, Mapping[str, float]]
"""Values by entity and quota key."""
_USUAL: Final[Mapping[str, Any]] = {
    "cluster": "default",
    "broker_id": -1,
    "user": "",
    "client_id": "",
    "quota_type": "produce",
    "api_key": -1,
}
"""What loose events without such a column have; of figures 0, of other texts an empty one, of thread time none."""


def pack_events(events: "DataFrame") -> "DataFrame":
    """Return loose events as packed rows, each of one client, quota type and hour.

    Args:
        events: A row per request, with `ts_ms` and any other columns of `tables.schemas.EVENTS`.
    """
    schema = EVENTS.arrow_schema()
    given = [name for name in schema.names if name in events.columns and name != "client"]

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = {name: batch.column(name).cast(schema.field(name).type) for name in given}
            for field in schema:
                if field.name not in columns and field.name != "client":
                    usual = _USUAL.get(field.name, "" if field.type == pa.string() else 0)
                    value = pa.scalar(None if field.nullable else usual, field.type)
                    columns[field.name] = pa.repeat(value, batch.num_rows)
            loose = pa.table(columns).combine_chunks()
            if loose.num_rows:
                numbers = client_numbers(loose.to_batches()[0])
                yield pack(loose.append_column("client", numbers).select(schema.names))

    return in_tasks(events.select(*given), run, PACKED_EVENTS.spark_schema())


def read_request_logs(session: "SparkSession", path: str, **options: str) -> "DataFrame":
    """Return the events of brokers' request logs as packed rows, without lines that can't be read.

    Args:
        session: The session that reads them.
        path: A file, folder or pattern, with `{broker_id}` in place of the broker's.
        options: Those of the data source (`ingest.log_source`): `timeZone`, `cluster`, `brokerId`, `splitBytes`.
    """
    session.dataSource.register(KafkaRequestLog)
    rows = session.read.format(KafkaRequestLog.name()).options(**options).load(path)
    return pack_events(rows.where("odd_reason IS NULL"))


def usage(events: "DataFrame", quotas: Quotas | None = None, *, window: QuotaWindow = DEFAULT_WINDOW) -> "DataFrame":
    """Return what each quota bucket used in each minute and hour, with the busiest second.

    Args:
        events: Packed events.
        quotas: The quotas in force, None for a bucket of each client.
        window: The window of the brokers' rates.
    """
    windows = _used(events, quotas, window).selectExpr(*NAMES, SparkTables.dialect.inlined.format("windows"))
    return _result(windows, USAGE, day_of="window_start_ms")


def usage_profile(
    events: "DataFrame", quotas: Quotas | None = None, *, window: QuotaWindow = DEFAULT_WINDOW
) -> "DataFrame":
    """Return percentiles of Kafka's own rate, sums and the limit of each bucket, likewise.

    The events are read twice, the second time for the seconds that were recorded.
    """
    recorded = events.sparkSession.sql(recorded_time("SELECT explode(ts_ms) AS at_ms FROM {events}"), events=events)
    used = _used(events, quotas, window).crossJoin(recorded.select("seconds").hint("broadcast"))
    return _result(used.withColumn("active_share", used["active_share"] / used["seconds"]), USAGE_PROFILE)


def replay(
    events: "DataFrame",
    proposals: Mapping[str, Quotas] | Iterable[Proposal],
    *,
    models: tuple[str, ...] = ("open", "closed"),
    window: QuotaWindow = DEFAULT_WINDOW,
) -> "DataFrame":
    """Return what proposed quotas would have done to each quota bucket, and to each group of clients.

    Args:
        events: Packed events.
        proposals: The quotas of each proposal by its name, or proposals of different names, which may have groups.
        models: `open` for arrivals as recorded, `closed` for clients that wait out delays.
        window: The window of the brokers' rates.
    """
    plan = ReplayPlan(
        proposals=tuple(starmap(_proposal, proposals.items()) if isinstance(proposals, Mapping) else proposals),
        models=tuple(map(Model, models)),
        window=window,
    )
    return _result(run_job(events, replay_job(plan)), WHATIF)


def recommend(events: "DataFrame", plan: RecommendPlan | None = None) -> "DataFrame":
    """Return the quotas to set: a default for the many, and overrides for the few who need far more.

    This runs when it is called, job after job: which limits it tries depends on what clients used.

    Args:
        events: Packed events.
        plan: For whom, and what is tolerated. By default for each user.
    """
    asked, own = plan or RecommendPlan(), spark_events(events)
    found = recommend_quotas(own, asked, step=lambda _: None)
    own.tables.forget()  # the rows are in this process
    return _result(arrow_frame(events.sparkSession, recommendation_table(found)), RECOMMENDATION)


def _used(events: "DataFrame", quotas: Quotas | None, window: QuotaWindow) -> "DataFrame":
    return run_job(events, usage_job(UsagePlan(quotas=_proposal("quotas", quotas or {}), seconds=1, window=window)))


def _proposal(name: str, quotas: Quotas) -> Proposal:
    return Proposal(name=name, entries=tuple(quotas.items()))


def _result(rows: "DataFrame", table: TableSchema, *, day_of: str | None = None) -> "DataFrame":
    return rows.selectExpr(*result_columns(SparkTables.dialect, table, day_of=day_of).values())
