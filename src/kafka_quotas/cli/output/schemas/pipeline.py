"""Documents of the pipeline, most of them rows of its tables."""

from typing import Final

from kafka_quotas.cli.output.schemas.catalogue import OutputSchema
from kafka_quotas.cli.output.schemas.forms import (
    FLAG,
    INTEGER,
    NUMBER,
    TEXT,
    WORDS,
    Schema,
    described,
    nullable,
    of_dataclass,
    record,
    rows,
)
from kafka_quotas.pipeline.formats.task import IngestCounts
from kafka_quotas.pipeline.tables.schemas import (
    ENTITIES,
    RECOMMENDATION,
    USAGE_PROFILE,
    WHATIF,
    ColumnType,
    TableSchema,
)

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


def of_tables(*tables: TableSchema, without: tuple[str, ...] = ("entity_id",)) -> dict[str, Schema]:
    """Return the fields of rows that have the columns of these tables."""
    found: dict[str, Schema] = {}
    for column in (each for table in tables for each in table.columns if each.name not in without):
        kind = described(_KINDS[column.type], f"{column.doc}{f' ({column.unit})' if column.unit else ''}")
        found[column.name] = nullable(kind) if column.nullable else kind
    return found


_LOAD: Final = record(
    {
        "broker_id": INTEGER,
        "limits": described(NUMBER, "sum of the limits of its clients"),
        "wanted": described(NUMBER, "what clients would take in the busiest minute before limits are cut"),
        "at_ms": nullable(INTEGER),
        "allowed": described(NUMBER, "what they would take under the limits"),
        "replication": NUMBER,
        "capacity": nullable(NUMBER),
        "fits": nullable(FLAG),
    }
)
_DEFAULT_EVIDENCE: Final = record(
    {
        "clients": INTEGER,
        "clients_with_overrides": INTEGER,
        "choices": rows(record({"overrides": INTEGER, "default": NUMBER})),
        "tolerated_time_share": NUMBER,
        "headroom": NUMBER,
        "wanted": NUMBER,
        "clients_held_back_while_recorded": INTEGER,
        "clients_under_default": record({"enough": INTEGER, "unknown": INTEGER, "throttled": INTEGER}),
        "brokers": rows(_LOAD),
    }
)
_IMPLIED: Final = record(
    {
        "rate": NUMBER,
        "low": nullable(NUMBER),
        "high": nullable(NUMBER),
        "growth": NUMBER,
        "busiest_hour": described(INTEGER, "of the week in UTC, 0 for Monday 0:00"),
        "days": INTEGER,
        "held_share": NUMBER,
        "is_unknown": FLAG,
        "declined_from": nullable(NUMBER),
        "incident_ms": nullable(INTEGER),
        "incident_s": nullable(INTEGER),
        "incident_rate": nullable(NUMBER),
    }
)
_OVERRIDE_EVIDENCE: Final = record(
    {
        "busiest_broker": INTEGER,
        "needed": NUMBER,
        "wanted": NUMBER,
        "is_lower_bound": FLAG,
        "confidence": nullable(TEXT),
        "implied": nullable(_IMPLIED),
        "p99": NUMBER,
        "peak": NUMBER,
        "skew": NUMBER,
        "throttled_share_at_default": NUMBER,
        "brokers": rows(record({"broker_id": INTEGER, "needed": NUMBER, "p99": NUMBER, "peak": NUMBER})),
        "can_be_set": FLAG,
    }
)
_TRIED: Final = rows(record({"limit": NUMBER, "held_back_share": NUMBER}))
SCHEMAS: Final[dict[str, OutputSchema]] = {
    "pipeline-ingest": OutputSchema(
        commands=("pipeline ingest",),
        fields={
            "out": TEXT,
            "change": nullable(INTEGER, "null where no line was new"),
            "engine": nullable(TEXT),
            "elapsed_s": NUMBER,
            "files": INTEGER,
            "unchanged": INTEGER,
            "empty": INTEGER,
            **of_dataclass(IngestCounts),
            "faults": rows(record({"file": TEXT, "reason": TEXT, "lines": INTEGER, "first_line": INTEGER})),
        },
    ),
    "pipeline-usage": OutputSchema(
        commands=("pipeline usage",),
        rows=("buckets",),
        fields={
            "events": _EVENTS,
            "seconds": _SECONDS,
            "quotas": described(TEXT, "whose limits are compared"),
            "buckets": rows(record(of_tables(ENTITIES, USAGE_PROFILE))),
        },
    ),
    "pipeline-replay": OutputSchema(
        commands=("pipeline replay",),
        rows=("rows",),
        fields={
            "events": _EVENTS,
            "models": WORDS,
            "rows": rows(record(of_tables(ENTITIES, WHATIF, without=("entity_id", "matched_level")))),
        },
    ),
    "pipeline-recommend": OutputSchema(
        commands=("pipeline recommend",),
        rows=("quotas",),
        fields={
            "events": _EVENTS,
            "seconds": _SECONDS,
            "cluster": TEXT,
            "default_of": TEXT,
            "enough_data": FLAG,
            "quotas": rows(
                record(
                    {
                        **of_tables(RECOMMENDATION),
                        "evidence": {"oneOf": [_DEFAULT_EVIDENCE, _OVERRIDE_EVIDENCE], "type": "object"},
                    }
                )
            ),
        },
    ),
    "pipeline-recommend-explain": OutputSchema(
        commands=("pipeline recommend --explain",),
        rows=("quotas", "brokers", "tried"),
        fields={
            "name": TEXT,
            "quotas": rows(
                record(
                    {
                        "quota_type": TEXT,
                        "default": NUMBER,
                        "override": nullable(NUMBER, "null where the default does"),
                        "why": TEXT,
                        "needed_most": NUMBER,
                        "brokers": rows(
                            record(
                                {
                                    "broker_id": INTEGER,
                                    "p50": NUMBER,
                                    "p99": NUMBER,
                                    "peak": NUMBER,
                                    "active_s": NUMBER,
                                    "needed": NUMBER,
                                    "tried": _TRIED,
                                }
                            )
                        ),
                    }
                )
            ),
        },
    ),
    "pipeline-validate": OutputSchema(
        commands=("pipeline validate",),
        rows=("buckets",),
        fields={
            "events": _EVENTS,
            "seconds": _SECONDS,
            "quotas": TEXT,
            "tolerance": NUMBER,
            "ok": FLAG,
            "buckets": rows(
                record(
                    {
                        "cluster": TEXT,
                        "broker_id": INTEGER,
                        "quota_type": TEXT,
                        "user": nullable(TEXT),
                        "client_id": nullable(TEXT),
                        "limit": nullable(NUMBER),
                        "peak": NUMBER,
                        "observed_throttle_ms": NUMBER,
                        "simulated_throttle_ms": nullable(NUMBER),
                        "simulated_at_most_ms": nullable(NUMBER),
                        "throttle_error": nullable(NUMBER),
                        "observed_throttled": INTEGER,
                        "simulated_throttled": nullable(INTEGER),
                        "simulated_throttled_at_most": nullable(INTEGER),
                        "scrapes": INTEGER,
                        "scraped_rate": nullable(NUMBER),
                        "reckoned_rate": nullable(NUMBER),
                        "rate_error": nullable(NUMBER),
                        "verdict": TEXT,
                    }
                )
            ),
        },
    ),
}
"""Each kind of document by its noun."""
