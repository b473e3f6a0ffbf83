"""Documents of the calculator."""

from typing import Final

from kafka_quotas.cli.output.schemas.catalogue import OutputSchema
from kafka_quotas.cli.output.schemas.forms import (
    FLAG,
    INTEGER,
    NUMBER,
    SENTENCES,
    TEXT,
    Schema,
    by_name,
    choice,
    nullable,
    of_dataclass,
    record,
    rows,
)
from kafka_quotas.commands.throttle.simulate import SimulationSummary

_WINDOW: Final = record({"num": INTEGER, "size_seconds": INTEGER, "origin": TEXT})
_STEP: Final[dict[str, Schema]] = {"figure": TEXT, "arithmetic": TEXT, "value": NUMBER, "unit": TEXT}
_ANSWER: Final[dict[str, Schema]] = {
    "given": rows(record({"name": TEXT, "value": NUMBER, "unit": TEXT})),
    "window": _WINDOW,
    "delay_ms": by_name(NUMBER, "method", "delay_ms", "by method"),
    "calculations": rows(
        record(
            {
                "method": TEXT,
                "title": TEXT,
                "source": TEXT,
                "delay_ms": nullable(NUMBER, "null for a method that yields no delay"),
                "steps": rows(record(_STEP)),
            }
        )
    ),
    "notes": SENTENCES,
}
_COLUMNS: Final = ("method", "figure", "arithmetic", "value", "unit")
_PLACE: Final = ("calculations", "steps")
DECISION: Final[dict[str, Schema]] = {
    "t_ms": INTEGER,
    "due_ms": INTEGER,
    "amount": NUMBER,
    "op": choice("record", "record_nocheck", "unrecord", "strict", "check"),
    "attempt": INTEGER,
    "verdict": choice("admitted", "delayed", "refused"),
    "level": NUMBER,
    "after": NUMBER,
    "window_ms": nullable(INTEGER),
    "throttle_ms": INTEGER,
}
"""One decision of a replay."""
SCHEMAS: Final[dict[str, OutputSchema]] = {
    "throttle-rate": OutputSchema(commands=("throttle rate",), rows=_PLACE, columns=_COLUMNS, fields=_ANSWER),
    "throttle-request": OutputSchema(commands=("throttle request",), rows=_PLACE, columns=_COLUMNS, fields=_ANSWER),
    "throttle-mutation": OutputSchema(commands=("throttle mutation",), rows=_PLACE, columns=_COLUMNS, fields=_ANSWER),
    "throttle-compare": OutputSchema(
        commands=("throttle compare",),
        rows=("algorithms",),
        fields={
            "quota": NUMBER,
            "burst": NUMBER,
            "window": _WINDOW,
            "algorithms": rows(
                record(
                    {
                        "algorithm": TEXT,
                        "source": TEXT,
                        "admits_iff": TEXT,
                        "level": NUMBER,
                        "unit": TEXT,
                        "formula": TEXT,
                        "delay_ms": NUMBER,
                        "admitted_after_ms": NUMBER,
                        "retries": INTEGER,
                        "retried_ms": nullable(NUMBER, "null for never"),
                    }
                )
            ),
            "states": rows(
                record(
                    {
                        "after_ms": NUMBER,
                        "levels": by_name(NUMBER, "algorithm", "level", "by algorithm"),
                        "admits": by_name(FLAG, "algorithm", "admits", "by algorithm"),
                    }
                )
            ),
        },
    ),
    "throttle-simulate": OutputSchema(
        commands=("throttle simulate",),
        rows=("decisions",),
        fields={
            "algorithm": TEXT,
            "quota": NUMBER,
            "unit": TEXT,
            "window": _WINDOW,
            "operation": TEXT,
            "closed_loop": FLAG,
            "decisions": nullable(rows(record(DECISION)), "null with --summary"),
            "summary": nullable(record(of_dataclass(SimulationSummary)), "null where a bad line ended the replay"),
        },
    ),
}
"""Each kind of document by its noun."""
