"""Rows of files that an ingest replaces, deleted by Spark's executors, at any URL that Spark writes.

Contract: the outcome is that of `change.remove_rows` on this machine. Spark's own errors pass through, but for those of
two changes that meet.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions

from kafka_quotas.pipeline.engine.spark_session import delta_conflicts
from kafka_quotas.pipeline.ingest.spark_engine import append
from kafka_quotas.pipeline.tables.lake import Lake, hadoop_url
from kafka_quotas.pipeline.tables.schemas import CHARGED_TYPES, CLIENTS, EVENTS, INGESTED_TABLES, TableSchema
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def remove_rows_on_spark(session: "SparkSession", before: FolderSnapshot, names: Iterable[str]) -> None:
    """Delete the rows of files that another ingest replaces, and count the clients of what is left.

    Args:
        session: The session.
        before: The folder without the ingest.
        names: Names of the files in `src_file`.

    Raises:
        ConflictError: Another change of the tables came first.
    """
    gone = sorted(names)
    with delta_conflicts():
        for table in INGESTED_TABLES:
            own = _rows(session, before.lake, table).where(functions.col("src_file").isin(gone))
            found = {row["ingest"] for row in own.select("ingest").distinct().collect()}
            if affected := sorted(found.intersection(before.ingests)):
                texts = ", ".join(map(_sql_text, gone))
                _delete_rows(session, before.lake, table, affected, f" AND src_file IN ({texts})")
                if table is EVENTS:
                    _count_clients(session, before.lake, affected)


def _delete_rows(
    session: "SparkSession", lake: Lake, table: TableSchema, ingests: Sequence[int], more: str = ""
) -> None:
    """Let executors delete rows of some ingests, those for which `more`, in SQL, holds as well."""
    numbers, place = ", ".join(map(str, ingests)), hadoop_url(lake.place(table)).replace("`", "``")
    session.sql(f"DELETE FROM delta.`{place}` WHERE ingest IN ({numbers}){more}").collect()  # noqa: S608 - ours


def _count_clients(session: "SparkSession", lake: Lake, ingests: Sequence[int]) -> None:
    """Count the clients of some ingests again, from the events that are left of them."""
    _delete_rows(session, lake, CLIENTS, ingests)
    append(clients_of(_rows(session, lake, EVENTS).where(functions.col("ingest").isin(ingests))), lake, CLIENTS)


def clients_of(events: "DataFrame") -> "DataFrame":
    """Return the rows of `clients` for events."""
    client = ["client", "cluster", "broker_id", "user", "client_id", "ingest"]
    seconds = events.groupBy(*client, functions.expr("ts_ms div 1000").alias("second")).agg(
        functions.count("*").alias("events"),
        functions.min("ts_ms").alias("first_ms"),
        functions.max("ts_ms").alias("last_ms"),
        functions.sum("bytes").alias("bytes"),
        *(functions.expr(f"{text} as {name}") for kind in CHARGED_TYPES for name, text in _charges_of(kind).items()),
    )
    merged = {"events": "sum", "amount": "sum", "peak": "max", "first_ms": "min", "last_ms": "max"}
    return seconds.groupBy(*client).agg(
        functions.sum("events").alias("events"),
        functions.min("first_ms").alias("first_ms"),
        functions.max("last_ms").alias("last_ms"),
        functions.max("bytes").alias("peak_bytes"),
        *(
            functions.expr(f"{function}({kind}_{name}) as {kind}_{name}")
            for kind in CHARGED_TYPES
            for name, function in merged.items()
        ),
    )


def _charges_of(kind: str) -> dict[str, str]:
    """Return the figures of a quota type's charges in a group of events, in SQL, by column."""
    column = {"request": "thread_ms * 0.1D * 1e7D", "controller_mutation": "mutations"}.get(kind, "bytes")
    is_own = "thread_ms is not null" if kind == "request" else f"quota_type = '{kind}'"
    is_charged = f"not is_exempt and {is_own}"
    return {
        f"{kind}_events": f"count_if({is_charged})",
        f"{kind}_amount": f"sum(if({is_charged}, cast(rint({column}) as bigint), 0L))",
        f"{kind}_peak": f"sum(if({is_charged}, greatest(ceil({column}), 0L), 0L))",
        f"{kind}_first_ms": f"min(if({is_charged}, ts_ms, null))",
        f"{kind}_last_ms": f"max(if({is_charged}, ts_ms, null))",
    }


def _rows(session: "SparkSession", lake: Lake, table: TableSchema) -> "DataFrame":
    return session.read.format("delta").load(hadoop_url(lake.place(table)))


def _sql_text(text: str) -> str:
    """Return a text as a literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")  # `${...}` is a variable
    return f"'{escaped}'"
