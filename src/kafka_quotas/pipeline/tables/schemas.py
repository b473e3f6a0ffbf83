"""The pipeline's tables, each declared once for Arrow and for Spark.

Invariants: times are milliseconds since 1970 in UTC, amounts are whole bytes or partitions, thread time is milliseconds
of one thread. A missing user or client-id is the empty text, as for Kafka's quotas. All is per broker.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class ColumnType(Enum):
    """The types of columns: the names of Arrow's function and of Spark's class for each."""

    BOOL = ("bool_", "BooleanType")
    INT16 = ("int16", "ShortType")
    INT32 = ("int32", "IntegerType")
    INT64 = ("int64", "LongType")
    FLOAT64 = ("float64", "DoubleType")
    STRING = ("string", "StringType")
    DATE = ("date32", "DateType")

    def __init__(self, arrow: str, spark: str) -> None:
        self.arrow = arrow
        self.spark = spark


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column of a table."""

    name: str
    type: ColumnType
    doc: str
    """Meaning of the column."""
    unit: str = ""
    """Unit of the figures, empty for names and flags."""
    nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """One table and its columns."""

    name: str
    doc: str
    """Meaning of a row."""
    columns: tuple[TableColumn, ...]
    """Columns in the order of the files."""

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    def arrow_schema(self) -> "pa.Schema":
        """Return the schema for Arrow and Parquet files."""
        import pyarrow as pa  # noqa: PLC0415 - the command's help must not load it

        kinds = ((each, getattr(pa, each.type.arrow)()) for each in self.columns)
        return pa.schema([pa.field(each.name, kind, nullable=each.nullable) for each, kind in kinds])

    def spark_schema(self) -> "StructType":
        """Return the schema for Spark."""
        from pyspark.sql import types  # noqa: PLC0415 - the command's help must not load it

        kinds = ((each, getattr(types, each.type.spark)()) for each in self.columns)
        return types.StructType([types.StructField(each.name, kind, nullable=each.nullable) for each, kind in kinds])


def _columns_of(kind: ColumnType) -> Callable[..., TableColumn]:
    def column(name: str, doc: str, *, unit: str = "", nullable: bool = False) -> TableColumn:
        return TableColumn(name=name, type=kind, doc=doc, unit=unit, nullable=nullable)

    return column


_text, _flag, _date = (_columns_of(each) for each in (ColumnType.STRING, ColumnType.BOOL, ColumnType.DATE))
_short, _int, _long = (_columns_of(each) for each in (ColumnType.INT16, ColumnType.INT32, ColumnType.INT64))
_float = _columns_of(ColumnType.FLOAT64)

_CLUSTER = _text("cluster", "the name the cluster was given at ingest")
_BROKER = _int("broker_id", "the broker, whose quotas are its own; -1 where unknown")
_SRC_FILE = _text("src_file", "the file that the row was read from")
_INGEST = _long("ingest", "the ingest that wrote the row; its rows count once the table ingests has it")
_CLIENT = _long("client", "the client's number: `tables.client_number`; the table clients has its names")
_TYPE = _text("quota_type", "produce, fetch, request or controller_mutation: `core.quotas.quota_manager.QuotaType`")

EVENTS = TableSchema(
    name="events",
    doc="One row is what one request of a client was charged with at one broker. It is charged to request time where "
    "`thread_ms` is not null, and to the quota that `quota_type` names where that is not request; to neither where it "
    "is exempt. Request logs give one row per request, the daemon's event log one per charge: counting rows by these "
    "two rules counts requests in both.",
    columns=(
        _date("dt", "the day of ts_ms in UTC, by which the table is partitioned"),
        _CLUSTER,
        _BROKER,
        _long("ts_ms", "when the quota was charged", unit="ms since 1970 UTC"),
        _text("user", "the principal's name without its type; ANONYMOUS where nobody logged in"),
        _text("client_id", "the client-id; empty where the client sent none"),
        _text("ip", "the client's address; empty where the source does not name it"),
        _text(
            "quota_type",
            "produce, fetch or controller_mutation where that is charged; request where request time is all; "
            "request_rate for the daemon's own quota of requests, one per row",
        ),
        _long("bytes", "the request's size for produce, the response's for fetch, else 0", unit="bytes"),
        _float("thread_ms", "time of broker threads; null where this row is no charge of it", unit="ms", nullable=True),
        _int("mutations", "partitions created, added or deleted", unit="partitions"),
        _long("throttle_ms", "the throttle time that the broker answered with", unit="ms"),
        _short("api_key", "Kafka's number of the request, -1 where unknown"),
        _flag("is_exempt", "held against no quota: traffic of brokers, what they make for themselves included"),
        _flag("is_estimated", "`bytes` is estimated"),
        _flag("is_thread_estimated", "`thread_ms` is estimated"),
        _text("connection", "the connection's name at the broker; a mute holds back this one"),
        _SRC_FILE,
        _long("src_offset", "where the line begins in the unpacked file; orders equal ts_ms", unit="bytes"),
        _CLIENT,
        _INGEST,
    ),
)

CHARGE_COLUMNS = (
    *("cluster", "broker_id", "ts_ms", "user", "client_id", "quota_type"),
    *("bytes", "thread_ms", "mutations", "throttle_ms", "is_exempt"),
)
"""Columns of events that the charges of quotas follow from."""

QUARANTINE = TableSchema(
    name="quarantine",
    doc="One row is one line that could not be read.",
    columns=(
        _text("raw", "the line, cut after 4096 letters; bytes that are no UTF-8 are shown as escapes"),
        _text("reason", "why it could not be read"),
        _SRC_FILE,
        _long("line_no", "the line's number in the file, from 1"),
        _INGEST,
    ),
)

METRICS = TableSchema(
    name="metrics",
    doc="One row is one figure of a quota metric at one scrape. Rates are the broker's own average over its window.",
    columns=(
        _long("ts_ms", "when it was scraped", unit="ms since 1970 UTC"),
        _CLUSTER,
        _text("broker", "the broker's id or address, as the scrape names it"),
        _TYPE,
        _text("user", "the user of the quota that matched; empty where the quota is not per user"),
        _text("client_id", "the client-id of the quota that matched; empty where it is not per client-id"),
        _text("metric", "byte_rate, request_time, mutation_rate, throttle_time, or such a rate's _limit"),
        _float("value", "bytes/s, % of one thread, partitions/s or ms, by the metric"),
        _SRC_FILE,
        _INGEST,
    ),
)

CLIENT_THROTTLE = TableSchema(
    name="client_throttle",
    doc="One row is what one client saw of one broker's throttling in one interval of its statistics.",
    columns=(
        _long("ts_ms", "the interval's end", unit="ms since 1970 UTC"),
        _CLUSTER,
        _text("client_id", "the client-id"),
        _text("broker", "the broker's id or address; empty where the statistics are over all brokers"),
        _float("throttle_ms", "average throttle time; the largest where there is no average", unit="ms"),
        _float("max_throttle_ms", "largest throttle time", unit="ms"),
        _long("samples", "responses it is an average of; null where the source does not count them", nullable=True),
        _text("source", "librdkafka, java or load-test"),
        _SRC_FILE,
        _INGEST,
    ),
)

CHARGED_TYPES = ("produce", "fetch", "request", "controller_mutation")
"""Quota types whose charges are counted for each client. Their unit is bytes, bytes, ns of thread time, partitions."""


def _charges_of(kind: str) -> tuple[TableColumn, ...]:
    return (
        _long(f"{kind}_events", f"charges of {kind}", nullable=True),
        _long(f"{kind}_amount", "what these took", nullable=True),
        _long(f"{kind}_peak", "most that these took in one second", nullable=True),
        _long(f"{kind}_first_ms", "the first of them; null for none", unit="ms since 1970 UTC", nullable=True),
        _long(f"{kind}_last_ms", "the last of them; null for none", unit="ms since 1970 UTC", nullable=True),
    )


CLIENTS = TableSchema(
    name="clients",
    doc="One row is one client at one broker in one ingest. Clients that share a user have neighbouring numbers.",
    columns=(
        _CLIENT,
        _CLUSTER,
        _BROKER,
        _text("user", "the principal's name without its type"),
        _text("client_id", "the client-id; empty where the client sent none"),
        _long("events", "the client's rows in events"),
        _long("first_ms", "the first of them", unit="ms since 1970 UTC"),
        _long("last_ms", "the last of them", unit="ms since 1970 UTC"),
        _long("peak_bytes", "most bytes in one second, produced and fetched together", unit="bytes/s"),
        _INGEST,
        *(column for kind in CHARGED_TYPES for column in _charges_of(kind)),
    ),
)

INGESTS = TableSchema(
    name="ingests",
    doc="One row is one file that an ingest read. A change counts once it is here, "
    "and the versions of the other tables that belong to it are in its rows.",
    columns=(
        _INGEST,
        _long("sequence", "the number of the change, from 1 on"),
        _long("at_ms", "when it was made", unit="ms since 1970 UTC"),
        _text("operation", "ingest or replace"),
        _text("path", "the file"),
        _text("form", "the file's format"),
        _CLUSTER,
        _int("broker_id", "the broker of the file; null where its lines name it", nullable=True),
        _text("zone", "the time zone of its stamps; null where they name it", nullable=True),
        _int("parser", "the version of the parser"),
        _long("head_bytes", "length of the beginning by which the file is recognised", unit="bytes"),
        _text("head_sha256", "digest of this beginning"),
        _long("size", "size of the file, compressed or not", unit="bytes"),
        _long("read_to", "end of the last line processed, in the uncompressed file", unit="bytes"),
        _long("events", "events of the change, all files together"),
        _long("events_version", "version of the table events with this change"),
        _long("quarantine_version", "version of quarantine"),
        _long("metrics_version", "version of metrics"),
        _long("client_throttle_version", "version of client_throttle"),
        _long("clients_version", "version of clients"),
    ),
)

INGESTED_TABLES = (EVENTS, QUARANTINE, METRICS, CLIENT_THROTTLE)
"""Tables that parsers fill."""

LIVE = TableSchema(
    name="live",
    doc="One row is one quota bucket at one broker at the end of one batch of the stream that had events of it. A "
    "bucket that is not per user or per client-id has the empty text there.",
    columns=(
        _long("batch_id", "the batch, from 0"),
        _long("ts_ms", "the bucket's latest event so far", unit="ms since 1970 UTC"),
        _CLUSTER,
        _BROKER,
        _TYPE,
        _text("user", "the user"),
        _text("client_id", "the client-id"),
        _long("events", "events in this batch, late ones left out"),
        _float("amount", "what they took: bytes, % of a thread times seconds, or partitions"),
        _float("rate", "Kafka's own rate at ts_ms, in the unit of the quota key; for mutations the tokens"),
        _float("quota", "the limit in the unit of its key; null for none", nullable=True),
        _long("throttled_events", "events in this batch that the quota throttles"),
        _long("throttle_ms", "sum of their throttle times, computed", unit="ms"),
        _long("throttled_until_ms", "until when the bucket is held back; null if it isn't at ts_ms", nullable=True),
        _long("observed_throttle_ms", "sum of the throttle times that the events carry", unit="ms"),
        _long("late_events", "events in this batch that came too late for the rate"),
        _float("late_amount", "what these took"),
        _long("total_events", "events since the stream began, late ones included"),
        _float("total_amount", "what all of them took"),
    ),
)

ENTITIES = TableSchema(
    name="entities",
    doc="One row is one quota bucket at one broker: clients that share a limit there, or one client without any.",
    columns=(
        _int("entity_id", "dense number for the kernels, from 0"),
        _CLUSTER,
        _BROKER,
        _TYPE,
        _text("user", "the user; null where the bucket is not per user", nullable=True),
        _text("client_id", "the client-id; null where the bucket is not per client-id", nullable=True),
        _int("matched_level", "1 to 8 in Kafka's order, 9 and 10 static; null where nothing is set", nullable=True),
        _float("quota", "the limit in the unit of its key; null for none", nullable=True),
    ),
)

USAGE = TableSchema(
    name="usage",
    doc="One row is what one entity used in one window of 1 s, 1 min or 1 h.",
    columns=(
        _int("entity_id", "the row of entities"),
        _long("window_start_ms", "the window's begin, a multiple of its length", unit="ms since 1970 UTC"),
        _int("window_s", "the window's length: 1, 60 or 3600", unit="s"),
        _long("bytes", "bytes charged", unit="bytes"),
        _long("requests", "requests"),
        _float("thread_ms", "thread time charged", unit="ms"),
        _long("mutations", "partitions created, added or deleted", unit="partitions"),
        _float("peak_rate", "largest 1 s rate within the window, in the unit of the quota key"),
        _long("throttle_ms", "sum of throttle times", unit="ms"),
        _long("throttled", "requests that were answered with a throttle time"),
    ),
)

USAGE_PROFILE = TableSchema(
    name="usage_profile",
    doc="One row is how one entity used its quota over all that was recorded.",
    columns=(
        _int("entity_id", "the row of entities"),
        _float("p50", "median of Kafka's own rate (11 x 1 s), in the unit of the quota key"),
        _float("p95", "its 95th percentile"),
        _float("p99", "its 99th percentile"),
        _float("max", "its maximum"),
        _float("active_share", "share of seconds with traffic, 0 to 1"),
        _float("burst_ratio", "largest 1 s rate by the mean over active seconds, from 1"),
        _float("throttled_share", "share of active seconds with a throttle time, 0 to 1"),
    ),
)

USAGE_DEMAND = TableSchema(
    name="usage_demand",
    doc="One row is what one entity would have used if nobody had held it back, until the horizon.",
    columns=(
        _int("entity_id", "the row of entities"),
        _float("demand", "99th percentile of its busiest hour of the week, in the unit of the quota key"),
        _float("low", "5th percentile of the demand over days drawn again; null below three days", nullable=True),
        _float("high", "95th percentile, likewise", nullable=True),
        _float("growth", "factor until the horizon that the demand has in it, from 1"),
        _int("busiest_hour", "the hour of the week, 0 for Monday 0:00 to 1:00 UTC"),
        _int("days", "days with traffic"),
        _float("held_share", "share of its time for which its connections were held back, 0 to 1"),
        _flag("is_unknown", "it was held back so long that its throttle times imply no demand; what it got counts"),
        _float("declined_from", "its usual level before it declined; null if it did not", nullable=True),
        _long("incident_ms", "begin of its largest incident; null for none", unit="ms since 1970 UTC", nullable=True),
        _long("incident_s", "how long that lasted", unit="s", nullable=True),
        _float("incident_rate", "the rate that it reached", nullable=True),
    ),
)

WHATIF = TableSchema(
    name="whatif",
    doc="One row is what one proposed quota would have done to one entity.",
    columns=(
        _text("scenario", "the file or the step of a sweep"),
        _int("entity_id", "the row of entities"),
        _float("quota", "the limit in the unit of its key; null for none", nullable=True),
        _text("algorithm", "rate or token-bucket"),
        _text("model", "open: arrivals as recorded; closed: a bucket is one client that waits out delays"),
        _long("n", "events"),
        _long("throttled_n", "events answered with a throttle time"),
        _long("refused_n", "refusals of fetches and mutations; in the closed model each attempt counts"),
        _long("throttle_ms", "sum of throttle times", unit="ms"),
        _long("max_ms", "largest throttle time", unit="ms"),
        _long("first_ms", "when the first was; null for never", unit="ms since 1970 UTC", nullable=True),
        _long("delay_ms", "sum of what events were late by; 0 in the open model", unit="ms"),
        _float("p50_ms", "median of the throttle times above 0, at most 1/32 off; 0 for none", unit="ms"),
        _float("p95_ms", "their 95th percentile, likewise", unit="ms"),
        _float("p99_ms", "their 99th percentile, likewise", unit="ms"),
        _float("achieved_rate", "admitted amount by time, in the unit of the quota key"),
    ),
)

THROTTLE_SPANS = TableSchema(
    name="throttle_spans",
    doc="One row is one time during which a proposed quota would have held an entity back: from the first event that "
    "is throttled until no delay is left. Spans of one entity neither overlap nor touch.",
    columns=(
        _text("scenario", "the file or the step of a sweep"),
        _int("entity_id", "the row of entities"),
        _text("model", "open or closed, as in whatif"),
        _long("start_ms", "begin", unit="ms since 1970 UTC"),
        _long("end_ms", "end", unit="ms since 1970 UTC"),
        _long("events", "events that were held back; one that is repeated counts once"),
        _long("delay_ms", "the longest that one of them was held back for, repetitions included", unit="ms"),
        _text("reason", "the quota type that held it back"),
    ),
)

RECOMMENDATION = TableSchema(
    name="recommendation",
    doc="One row is one quota to set.",
    columns=(
        _CLUSTER,
        _TYPE,
        _text("kind", "default or override"),
        _text("user", "the user; null where the quota is not per user", nullable=True),
        _text("client_id", "the client-id; null where the quota is not per client-id", nullable=True),
        _float("value", "the limit in the unit of its key"),
        _text("evidence", "why, as JSON"),
        _float("throttled_share", "share of active time that would be throttled, 0 to 1"),
        _float("headroom", "limit by observed peak"),
    ),
)
