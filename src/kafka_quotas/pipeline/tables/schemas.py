"""The pipeline's tables, each declared once for Arrow and for Spark.

Invariants: times are milliseconds since 1970 in UTC, amounts are whole bytes or partitions, thread time is milliseconds
of one thread. A missing user or client-id is the empty text, as for Kafka's quotas. All is per broker.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class ColumnType(StrEnum):
    """The types of columns by Arrow's names, those of arrays by the types of their elements."""

    BOOL = "bool_"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    STRING = "string"
    DATE = "date32"
    TIMESTAMP = "timestamp"


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
    is_array: bool = False
    """Whether a row has many values of the type."""

    def arrow_field(self) -> "pa.Field[Any]":
        """Return the column for Arrow, with its meaning and unit as Delta keeps comments."""
        import pyarrow as pa  # noqa: PLC0415 - the command's help must not load it

        kind = pa.timestamp("us", tz="UTC") if self.type is ColumnType.TIMESTAMP else getattr(pa, self.type)()
        if self.is_array:
            kind = pa.list_(pa.field("element", kind, nullable=self.nullable))
        comment = f"{self.doc} [{self.unit}]" if self.unit else self.doc
        return pa.field(self.name, kind, self.nullable and not self.is_array, {"comment": comment})


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
        """Return the schema for Arrow, Parquet files and Delta."""
        import pyarrow as pa  # noqa: PLC0415 - the command's help must not load it

        return pa.schema([each.arrow_field() for each in self.columns])

    def spark_schema(self) -> "StructType":
        """Return the schema for Spark."""
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - the command's help must not load it
        from pyspark.sql.types import ArrayType  # noqa: PLC0415

        found = from_arrow_schema(self.arrow_schema())
        for field, column in zip(found, self.columns, strict=True):
            if isinstance(field.dataType, ArrayType):  # which Arrow's converter has with nulls
                field.dataType.containsNull = column.nullable
        return found


def _column(kind: ColumnType, name: str, doc: str, *, unit: str = "", nullable: bool = False) -> TableColumn:
    return TableColumn(name=name, type=kind, doc=doc, unit=unit, nullable=nullable)


_flag, _short, _int, _long, _float, _text, _date, _clock = (partial(_column, each) for each in ColumnType)

_CLUSTER = _text("cluster", "the name the cluster was given at ingest")
_BROKER = _int("broker_id", "the broker, whose quotas are its own; -1 where unknown")
_SRC_FILE = _text("src_file", "the file that the row was read from")
_USER = _text("user", "the principal's name without its type; ANONYMOUS where nobody logged in")
_CLIENT_ID = _text("client_id", "the client-id; empty where the client sent none")
_IS_EXEMPT = _flag("is_exempt", "held against no quota: traffic of brokers, what they make for themselves included")
_CHARGED = _text(
    "quota_type",
    "produce, fetch or controller_mutation where that is charged; request where request time is all; "
    "request_rate for the daemon's own quota of requests, one per row",
)
_CLIENT = _long("client", "the client's number: `tables.client_number`, by which files are sorted")
_TYPE = _text("quota_type", "produce, fetch, request or controller_mutation: `core.quotas.quota_manager.QuotaType`")
_QUOTA = _float("quota", "the limit in the unit of its key; null for none", nullable=True)

EVENTS = TableSchema(
    name="events",
    doc="One loose row, as `unpack` gives it, is what one request of a client was charged with at one broker. It is "
    "charged to request time where `thread_ms` is not null, and to the quota that `quota_type` names where that is not "
    "request; to neither where it is exempt. Request logs give one row per request, the daemon's event log one per "
    "charge: counting rows by these two rules counts requests in both.",
    columns=(
        _CLUSTER,
        _BROKER,
        _long("ts_ms", "when the quota was charged", unit="ms since 1970 UTC"),
        _USER,
        _CLIENT_ID,
        _text("ip", "the client's address; empty where the source does not name it"),
        _CHARGED,
        _long("bytes", "the request's size for produce, the response's for fetch, else 0", unit="bytes"),
        _float("thread_ms", "time of broker threads; null where this row is no charge of it", unit="ms", nullable=True),
        _int("mutations", "partitions created, added or deleted", unit="partitions"),
        _long("throttle_ms", "the throttle time that the broker answered with", unit="ms"),
        _short("api_key", "Kafka's number of the request, -1 where unknown"),
        _IS_EXEMPT,
        _flag("is_estimated", "`bytes` is estimated"),
        _flag("is_thread_estimated", "`thread_ms` is estimated"),
        _text("connection", "the connection's name at the broker; a mute holds back this one"),
        _SRC_FILE,
        _long("src_offset", "where the line begins in the unpacked file; orders equal ts_ms", unit="bytes"),
        _CLIENT,
    ),
)

CHARGE_COLUMNS = (
    *("cluster", "broker_id", "ts_ms", "user", "client_id", "quota_type"),
    *("bytes", "thread_ms", "mutations", "throttle_ms", "is_exempt"),
)
"""Columns of events that the charges of quotas follow from."""

ARRAYS = (
    *("ts_ms", "bytes", "thread_ms", "mutations", "throttle_ms", "api_key"),
    *("is_estimated", "is_thread_estimated", "ip", "connection", "src_offset"),
)
"""Columns of packed events with one value per event."""
ROW_NAMES = ("quota_type", "is_exempt", "src_file")
"""Columns beside the client that all events of a packed row have in common."""
_OF_EVENT = {each.name: each for each in EVENTS.columns}

PACKED_EVENTS = TableSchema(
    name="events",
    doc="One row is what the requests of one client were charged with at one broker in one hour, by quota type and by "
    "the file that they were read from: arrays with an element per event, by time. Hours of many events are in several "
    "rows. Rows without a day say which files an ingest read, and have no events.",
    columns=(
        _date(
            "dt", "the day of `hour`, by which the table is partitioned; null for what an ingest read", nullable=True
        ),
        _CLUSTER,
        _BROKER,
        _USER,
        _CLIENT_ID,
        _CLIENT,
        _CHARGED,
        _IS_EXEMPT,
        _SRC_FILE,
        _clock("hour", "begin of the hour"),
        _clock("first_at", "when the first event was charged"),
        _clock("last_at", "when the last event was charged"),
        _int("events", "how many events the row has"),
        _long("total_bytes", "sum of `bytes`", unit="bytes"),
        _float("total_thread_ms", "sum of `thread_ms`", unit="ms"),
        _long("total_mutations", "sum of `mutations`", unit="partitions"),
        _long("total_throttle_ms", "sum of `throttle_ms`", unit="ms"),
        _int("throttled", "events that were answered with a throttle time"),
        _long("peak_bytes", "most bytes in one second", unit="bytes/s"),
        _float("peak_thread_ms", "most thread time in one second", unit="ms/s"),
        _long("peak_mutations", "most partitions in one second", unit="partitions/s"),
        *(replace(_OF_EVENT[each], doc=f"of each event: {_OF_EVENT[each].doc}", is_array=True) for each in ARRAYS),
        _text("sources", "what an ingest read, as JSON; null in rows of events", nullable=True),
    ),
)

QUARANTINE = TableSchema(
    name="quarantine",
    doc="One row is one line that could not be read.",
    columns=(
        _text("raw", "the line, cut after 4096 letters; bytes that are no UTF-8 are shown as escapes"),
        _text("reason", "why it could not be read"),
        _SRC_FILE,
        _long("line_no", "the line's number in the file, from 1"),
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
    ),
)

DERIVED_TABLES = (QUARANTINE, METRICS, CLIENT_THROTTLE)
"""Tables that ingests fill beside `events`."""

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
        _QUOTA,
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

_DAY = _date("dt", "the day of the rows, by which the table is partitioned and its rows replaced")
_KEY = (
    _CLUSTER,
    _BROKER,
    _TYPE,
    _text("user", "the user; null where the bucket is not per user", nullable=True),
    _text("client_id", "the client-id; null where the bucket is not per client-id", nullable=True),
)
NAMES: Final = tuple(each.name for each in _KEY)
"""The key of a bucket between jobs; user and client-id are empty where clients share it."""
KEY: Final = ", ".join(NAMES)
"""The same as SQL."""
_TOTALS = (
    _long("bytes", "bytes charged", unit="bytes"),
    _long("requests", "requests"),
    _float("thread_ms", "thread time charged", unit="ms"),
    _long("mutations", "partitions created, added or deleted", unit="partitions"),
    _long("throttle_ms", "sum of throttle times", unit="ms"),
    _long("throttled", "requests that were answered with a throttle time"),
)
_SCENARIO = _text("scenario", "the file or the step of a sweep")
_RUN = (
    _text("quotas", "the quotas in force, or proposed, by the name of their file or store"),
    _text("run_id", "the run that wrote the row"),
)

USAGE = TableSchema(
    name="usage",
    doc="One row is what one quota bucket used in one window of a minute or an hour.",
    columns=(
        _DAY,
        *_KEY,
        _clock("window_start", "the window's begin, a multiple of its length"),
        _int("window_s", "the window's length: 60 or 3600", unit="s"),
        *_TOTALS,
        _float("peak_rate", "the rate of its busiest second, in the unit of the quota key"),
        *_RUN,
    ),
)

USAGE_PROFILE = TableSchema(
    name="usage_profile",
    doc="One row is how one quota bucket was used over all that was recorded, up to its day, and what it would have "
    "used if nobody had held it back.",
    columns=(
        _DAY,
        *_KEY,
        _int("matched_level", "1 to 8 in Kafka's order, 9 and 10 static; null where nothing is set", nullable=True),
        _QUOTA,
        _float("p50", "median of Kafka's own rate (11 x 1 s), in the unit of the quota key"),
        _float("p95", "its 95th percentile"),
        _float("p99", "its 99th percentile"),
        _float("max", "its maximum"),
        _float("active_share", "share of seconds with traffic, 0 to 1"),
        _float("burst_ratio", "largest 1 s rate by the mean over active seconds, from 1"),
        _float("throttled_share", "share of active seconds with a throttle time, 0 to 1"),
        *_TOTALS,
        _float(
            "demand",
            "99th percentile of its busiest hour of the week, in the unit of the quota key; this and all below are "
            "null where no demand was asked for",
            nullable=True,
        ),
        _float("low", "5th percentile of the demand over days drawn again; null below three days", nullable=True),
        _float("high", "95th percentile, likewise", nullable=True),
        _float("growth", "factor until the horizon that the demand has in it, from 1", nullable=True),
        _int("busiest_hour", "the hour of the week, 0 for Monday 0:00 to 1:00 UTC", nullable=True),
        _int("days", "days with traffic", nullable=True),
        _float("held_share", "share of its time for which its connections were held back, 0 to 1", nullable=True),
        _flag(
            "is_unknown",
            "it was held back so long that its throttle times imply no demand; what it got counts",
            nullable=True,
        ),
        _float("declined_from", "its usual level before it declined; null if it did not", nullable=True),
        _clock("incident_at", "begin of its largest incident; null for none", nullable=True),
        _long("incident_s", "how long that lasted", unit="s", nullable=True),
        _float("incident_rate", "the rate that it reached", nullable=True),
        *_RUN,
    ),
)

WHATIF = TableSchema(
    name="whatif",
    doc="One row is what one proposed quota would have done to one quota bucket, over all that was recorded. The "
    "bucket of a group of clients has the user :group and the group's name as its client_id.",
    columns=(
        _DAY,
        *_KEY,
        _QUOTA,
        _SCENARIO,
        _text("algorithm", "rate or token-bucket"),
        _text("model", "open: arrivals as recorded; closed: a bucket is one client that waits out delays"),
        _long("n", "events"),
        _long("throttled_n", "events answered with a throttle time"),
        _long("refused_n", "refusals of fetches and mutations; in the closed model each attempt counts"),
        _long("throttle_ms", "sum of throttle times", unit="ms"),
        _long("max_ms", "largest throttle time", unit="ms"),
        _clock("first_at", "when the first was; null for never", nullable=True),
        _long("delay_ms", "sum of what events were late by; 0 in the open model", unit="ms"),
        _float("p50_ms", "median of the throttle times above 0, at most 1/32 off; 0 for none", unit="ms"),
        _float("p95_ms", "their 95th percentile, likewise", unit="ms"),
        _float("p99_ms", "their 99th percentile, likewise", unit="ms"),
        _float("achieved_rate", "admitted amount by time, in the unit of the quota key"),
        *_RUN,
    ),
)

THROTTLE_SPANS = TableSchema(
    name="throttle_spans",
    doc="One row is one time during which a proposed quota would have held a bucket back: from the first event that "
    "is throttled until no delay is left. Spans of one bucket neither overlap nor touch.",
    columns=(
        _DAY,
        _SCENARIO,
        *_KEY,
        _text("model", "open or closed, as in whatif"),
        _clock("start_at", "begin"),
        _clock("end_at", "end"),
        _long("events", "events that were held back; one that is repeated counts once"),
        _long("delay_ms", "the longest that one of them was held back for, repetitions included", unit="ms"),
        *_RUN,
    ),
)

RECOMMENDATION = TableSchema(
    name="recommendation",
    doc="One row is one quota to set.",
    columns=(
        _DAY,
        _CLUSTER,
        _TYPE,
        _text("kind", "default or override"),
        _text("user", "the user; null where the quota is not per user", nullable=True),
        _text("client_id", "the client-id; null where the quota is not per client-id", nullable=True),
        _float("value", "the limit in the unit of its key"),
        _text("evidence", "why, as JSON"),
        _float("throttled_share", "share of active time that would be throttled, 0 to 1"),
        _float("headroom", "limit by observed peak"),
        *_RUN,
    ),
)
