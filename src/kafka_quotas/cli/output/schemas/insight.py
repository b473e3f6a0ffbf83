"""Documents about what a store's quotas and measured rates mean, and about the program itself."""

from typing import Final

from kafka_quotas.cli.output.schemas.catalogue import OutputSchema
from kafka_quotas.cli.output.schemas.forms import (
    ENTITY,
    FLAG,
    INTEGER,
    NUMBER,
    SENTENCES,
    SUBJECT,
    TEXT,
    WORDS,
    choice,
    described,
    nullable,
    record,
    rows,
)
from kafka_quotas.cli.output.schemas.quotas import FINDING, LEVEL, LIMIT, STORE, USAGE

_SOURCE: Final = described(TEXT, "where the rates come from")
_PARAMETER: Final = record(
    {
        "heading": TEXT,
        "kind": choice("option", "argument"),
        "names": WORDS,
        "value": nullable(TEXT, "how help names it; null for a switch"),
        "required": FLAG,
        "repeatable": FLAG,
        "default": {"description": "null where there is none, or where each run finds it"},
        "variable": nullable(TEXT, "its environment variable"),
        "help": TEXT,
    }
)
SCHEMAS: Final[dict[str, OutputSchema]] = {
    "tree": OutputSchema(
        commands=("tree",),
        rows=("quotas",),
        fields={
            "store": STORE,
            "quotas": rows(
                record(
                    {
                        "key": TEXT,
                        "level": LEVEL,
                        "entity": SUBJECT,
                        "value": NUMBER,
                        "status": described(TEXT, "whether it wins, wins partly, is shadowed or ignored"),
                        "shadowed_by": nullable(ENTITY),
                    }
                )
            ),
        },
    ),
    "doctor": OutputSchema(
        commands=("doctor",),
        rows=("findings",),
        fields={"store": STORE, "entities": INTEGER, "not_looked_at": SENTENCES, "findings": rows(FINDING)},
    ),
    "why": OutputSchema(
        commands=("why",),
        rows=("answers", "brokers"),
        fields={
            "store": STORE,
            "source": _SOURCE,
            "client": record({"user": TEXT, "client_id": TEXT}, text="an empty text for a part that it lacks"),
            "throttled_by": nullable(TEXT, "the quota key that holds the client back"),
            "answers": rows(
                record(
                    {
                        "key": TEXT,
                        "limit": LIMIT,
                        "level": LEVEL,
                        "entity": nullable(ENTITY),
                        "shared_with": TEXT,
                        "brokers": rows(record(USAGE)),
                        "ends_at": nullable(NUMBER, "the value that would end the throttling"),
                    }
                )
            ),
            "verdict": SENTENCES,
            "notes": SENTENCES,
        },
    ),
    "top": OutputSchema(
        commands=("top",),
        rows=("rows",),
        fields={
            "store": STORE,
            "source": _SOURCE,
            "rows": rows(
                record(
                    {
                        "user": described(TEXT, "empty where the limit is not per user"),
                        "client_id": described(TEXT, "empty where the limit is not per client-id"),
                        "key": TEXT,
                        "limit": LIMIT,
                        "level": LEVEL,
                        "entity": nullable(ENTITY),
                        "throttled": FLAG,
                        **USAGE,
                    }
                )
            ),
            "left_out": INTEGER,
            "notes": SENTENCES,
        },
    ),
    "examples": OutputSchema(
        commands=("examples list",),
        rows=("examples",),
        fields={"folder": TEXT, "examples": rows(record({"name": TEXT, "about": TEXT}))},
    ),
    "help": OutputSchema(
        commands=("--help-json",),
        rows=("commands",),
        fields={
            "commands": rows(
                record(
                    {
                        "path": TEXT,
                        "help": TEXT,
                        "usage": TEXT,
                        "parameters": rows(_PARAMETER),
                        "examples": rows(record({"purpose": TEXT, "commands": SENTENCES})),
                        "commands": WORDS,
                        "documents": described(WORDS, "the schemas of what it prints with --output json"),
                    }
                )
            )
        },
    ),
}
"""Each kind of document by its noun."""
