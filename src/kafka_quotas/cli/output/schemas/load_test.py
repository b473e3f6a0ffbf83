"""Documents of load tests."""

import json
from functools import cache
from typing import Any, Final

from kafka_quotas.cli.output.schemas.catalogue import OutputSchema
from kafka_quotas.cli.output.schemas.forms import (
    FLAG,
    INTEGER,
    NUMBER,
    SENTENCES,
    TEXT,
    WORDS,
    described,
    nullable,
    record,
    rows,
)
from kafka_quotas.commands.examples import examples_folder

_RUN_SCHEMA: Final = "load-test-run.schema.json"
_COMMANDS: Final = ("run", "produce", "consume", "requests", "mutate", "connect", "report", "merge")

_COLUMNS: Final = (
    *("user", "client_id", "does", "unit", "ok", "verdict_kind", "verdict_achieved", "verdict_quota", "verdict_ratio"),
    *("verdict_cycles", "records_acked", "throttle_count", "throttle_sum_ms", "latency_response_p50_us"),
    "latency_response_p99_us",
)


@cache
def _run_schema() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((examples_folder() / _RUN_SCHEMA).read_text(encoding="utf-8"))
    return document


def _run() -> OutputSchema:
    fields = {name: each for name, each in _run_schema()["properties"].items() if name != "schema"}
    return OutputSchema(
        commands=("demo", *(f"load-test {name}" for name in _COMMANDS)),
        version=2,
        rows=("entities",),
        columns=_COLUMNS,
        fields=fields,
        definitions=_run_schema()["$defs"],
    )


_SIDE: Final = record(
    {
        "title": TEXT,
        "run_id": TEXT,
        "started_ms": described(INTEGER, "since 1970 UTC"),
        "elapsed_s": NUMBER,
        "state": TEXT,
        "runs": INTEGER,
    }
)
SCHEMAS: Final[dict[str, OutputSchema]] = {
    "load-test": _run(),
    "load-comparison": OutputSchema(
        commands=("load-test compare",),
        rows=("differences",),
        fields={
            "ok": FLAG,
            "first": _SIDE,
            "second": _SIDE,
            "notes": SENTENCES,
            "differences": rows(
                record(
                    {
                        "entity": described(TEXT, "the client's name in the run"),
                        "metric": TEXT,
                        "first": nullable(NUMBER),
                        "second": nullable(NUMBER),
                        "change": nullable(NUMBER, "as a share"),
                        "interval": nullable(
                            record({"low": NUMBER, "high": NUMBER}), "95 %, as shares; null without --repeat"
                        ),
                        "allowed": nullable(NUMBER, "as a share"),
                        "outcome": TEXT,
                    }
                )
            ),
        },
    ),
    "load-restore": OutputSchema(
        commands=("load-test restore",),
        rows=("runs",),
        fields={
            "runs": rows(
                record(
                    {
                        "run": TEXT,
                        "scenario": nullable(TEXT),
                        "store": nullable(TEXT, "where its quotas were set; null if the cluster ended with the run"),
                        "alive": FLAG,
                        "error": nullable(TEXT),
                        "quotas_restored": SENTENCES,
                        "quotas_as_before": SENTENCES,
                        "quotas_changed_by_others": SENTENCES,
                        "topics": WORDS,
                        "folders": WORDS,
                    }
                )
            )
        },
    ),
    "load-scenarios": OutputSchema(
        commands=("load-test list",),
        rows=("scenarios",),
        fields={
            "scenarios": rows(
                record(
                    {
                        "name": TEXT,
                        "title": TEXT,
                        "source": TEXT,
                        "needs_broker": FLAG,
                        "needs_daemon": FLAG,
                        "clients": INTEGER,
                        "seconds": described(NUMBER, "under load"),
                        "comparison_seconds": described(NUMBER, "of runs with and without quotas, at least"),
                        "comparison_most_seconds": described(NUMBER, "of these runs, at most"),
                        "scales": FLAG,
                    }
                )
            )
        },
    ),
    "load-validate": OutputSchema(
        commands=("load-test validate",),
        rows=("obstacles",),
        fields={
            "name": TEXT,
            "ok": FLAG,
            "scale": NUMBER,
            "largest_scale": NUMBER,
            "clients": INTEGER,
            "partitions": INTEGER,
            "seconds": described(nullable(NUMBER), "under load"),
            "limits": record({"open_files": nullable(INTEGER), "max_map_count": nullable(INTEGER)}),
            "obstacles": rows(record({"message": TEXT, "hint": nullable(TEXT)})),
        },
    ),
}
"""Each kind of document by its noun."""
