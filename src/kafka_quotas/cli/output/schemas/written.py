"""The schemas of documents that no record says: rows of the pipeline's tables, and what commands put together."""

from typing import Final

from kafka_quotas.cli.output.schemas.forms import (
    ENTITY,
    FLAG,
    INTEGER,
    NUMBER,
    SEPARATOR,
    TEXT,
    WORDS,
    Schema,
    by_name,
    choice,
    described,
    nullable,
    of_record,
    record,
    rows,
)
from kafka_quotas.pipeline.jobs.recommend.advice import Advice, Override
from kafka_quotas.pipeline.tables.schemas import RECOMMENDATION, USAGE_PROFILE, WHATIF, ColumnType, TableSchema

_KINDS: Final = {
    ColumnType.BOOL: FLAG,
    ColumnType.INT16: INTEGER,
    ColumnType.INT32: INTEGER,
    ColumnType.INT64: INTEGER,
    ColumnType.FLOAT64: NUMBER,
    ColumnType.STRING: TEXT,
}
_EVENTS: Final = described(INTEGER, "events read")
_SECONDS: Final = described(INTEGER, "from the first event to the last")


def _of_table(table: TableSchema, *, until: str = "quotas") -> dict[str, Schema]:
    """Return the fields of rows that have the columns of a table, those about the run left out.

    Times are in ms since 1970. `until` is the first column that rows do not have.
    """
    found: dict[str, Schema] = {}
    for column in table.columns[1 : table.column_names.index(until)]:
        is_time = column.type is ColumnType.TIMESTAMP
        unit = "ms since 1970 UTC" if is_time else column.unit
        kind = described(INTEGER if is_time else _KINDS[column.type], f"{column.doc}{f' ({unit})' if unit else ''}")
        name = f"{column.name.removesuffix('_at')}_ms" if is_time else column.name
        found[name] = nullable(kind) if column.nullable else kind
    return found


PIPELINE_USAGE: Final[dict[str, Schema]] = {
    "events": _EVENTS,
    "seconds": _SECONDS,
    "quotas": described(TEXT, "whose limits are compared"),
    "buckets": rows(record(_of_table(USAGE_PROFILE, until="bytes"))),
}
PIPELINE_REPLAY: Final[dict[str, Schema]] = {
    "events": _EVENTS,
    "models": WORDS,
    "rows": rows(record({**_of_table(WHATIF), "group": nullable(TEXT, "of which the row is; null for a client's")})),
}
PIPELINE_RECOMMEND: Final[dict[str, Schema]] = {
    "events": _EVENTS,
    "seconds": _SECONDS,
    "cluster": TEXT,
    "default_of": TEXT,
    "enough_data": FLAG,
    "quotas": rows(
        record(
            {
                **_of_table(RECOMMENDATION),
                "evidence": {"oneOf": [record(of_record(each)) for each in (Advice, Override)], "type": "object"},
                "group": nullable(TEXT, "the client's group by --policy; null for none, and for a default"),
            }
        )
    ),
}
_COST: Final = record({"request_us": NUMBER, "request_byte_ns": NUMBER, "response_byte_ns": NUMBER})
DAEMON_CONFIG: Final[dict[str, Schema]] = {
    "settings": rows(
        record(
            {
                "section": TEXT,
                "setting": TEXT,
                "value": {
                    "type": ["string", "number", "boolean", "array", "null"],
                    "items": TEXT,
                    "description": "a list where the setting takes several; null where it is not set",
                    SEPARATOR: " ",
                },
                "origin": choice("option", "variable", "context", "file", "default"),
                "from": nullable(TEXT, "the option, variable or context, or the file and line"),
            }
        )
    )
}
DECISION: Final[dict[str, Schema]] = {
    "delay_ms": INTEGER,
    "quota": nullable(
        record(
            {
                "key": TEXT,
                "entity": ENTITY,
                "limit": NUMBER,
                "observed": NUMBER,
            }
        ),
        "null without a limit",
    ),
    "shadow": described(FLAG, "whether the daemon only counts"),
}
COST_MODEL: Final[dict[str, Schema]] = {
    "version": INTEGER,
    "source": TEXT,
    "other": _COST,
    "apis": by_name(_COST, "api", "cost", "the cost of a request by the name of its API"),
}
