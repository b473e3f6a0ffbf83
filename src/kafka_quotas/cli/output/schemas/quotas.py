"""Documents about quotas in stores, files and contexts."""

from typing import Final

from kafka_quotas.cli.output.schemas.catalogue import OutputSchema, of_contexts
from kafka_quotas.cli.output.schemas.forms import (
    ENTITY,
    FLAG,
    INSTANT,
    INTEGER,
    NUMBER,
    SENTENCES,
    SUBJECT,
    TEXT,
    WORDS,
    Schema,
    by_name,
    choice,
    described,
    nullable,
    of_dataclass,
    record,
    rows,
)
from kafka_quotas.commands.quotas.cluster import ClusterView

STORE: Final = described(TEXT, "the address of the store")
LEVEL: Final[Schema] = {"type": ["integer", "string", "null"], "description": "1 to 8 in Kafka's order, or ip"}
LIMIT: Final = nullable(NUMBER, "in the unit of the key; null for no limit")
_VALUE: Final = nullable(NUMBER, "in the unit of the key; null where it is not set")
_CHANGE: Final[dict[str, Schema]] = {"entity": SUBJECT, "key": TEXT, "old": _VALUE, "new": _VALUE}
FINDING: Final = record(
    {
        "severity": choice("error", "warning", "note"),
        "check": described(TEXT, "the kind of the finding"),
        "about": described(TEXT, "whom it is about, in words"),
        "entity": nullable(SUBJECT, "null where it is about no single entity"),
        "finding": TEXT,
        "remedy": TEXT,
    }
)
_SIDE: Final = record({"limit": LIMIT, "entity": nullable(ENTITY)})
_AFFECTED: Final = rows(
    record(
        {
            "client": {
                "type": "object",
                "description": "names by entity type; a type that is left out is any other name",
                "additionalProperties": TEXT,
            },
            "key": TEXT,
            "before": _SIDE,
            "after": _SIDE,
        }
    ),
    "the clients whose effective quota changes",
)
_LEFT_ALONE: Final = rows(
    record({"entity": ENTITY, "keys": WORDS, "declared": FLAG}), "what is stored and not declared, which stays"
)
_NOT_OWNED: Final = rows(ENTITY, "what is declared and left out by --selector")
_COUNT: Final[dict[str, Schema]] = {"entities": INTEGER, "quotas": INTEGER}
_DIFF: Final = OutputSchema(
    commands=("diff",),
    rows=("changes",),
    fields={
        "store": STORE,
        "changes": rows(record(_CHANGE)),
        "affected": _AFFECTED,
        "combinations_left_out": described(INTEGER, "pairs of a user and a client-id that were not looked at"),
        "left_alone": _LEFT_ALONE,
        "not_owned": _NOT_OWNED,
    },
)
_APPLY: Final = OutputSchema(
    commands=("apply",),
    rows=("changes",),
    fields={
        "store": STORE,
        "dry_run": FLAG,
        "changes": rows(record(_CHANGE), "those made, with --dry-run those to be made"),
        "failures": rows(record({"entity": ENTITY, "error": TEXT, "hint": nullable(TEXT)})),
        "affected": nullable(_AFFECTED, "null without --dry-run"),
        "left_alone": _LEFT_ALONE,
        "not_owned": _NOT_OWNED,
    },
)
_REVERTED: Final = choice("to undo", "undone", "failed", "changed since", "as before already")
_SETTING: Final[dict[str, Schema]] = {"setting": TEXT, "value": nullable(TEXT)}
_CLIENT: Final = record(
    {"user": nullable(TEXT), "client_id": nullable(TEXT), "ip": nullable(TEXT), "any_other": WORDS},
    prefix="",
    text="who is asked about; any_other names the types of which it has any name that nothing is stored for",
)
_MINUTE: Final = record(
    {
        "times": described(INTEGER, "throttle times"),
        "total_ms": described(NUMBER, "their sum"),
        "held_ms": described(NUMBER, "the part of the minute in which any client waited"),
        "share": described(NUMBER, "that part, from 0 to 1"),
    }
)
USAGE: Final[dict[str, Schema]] = {
    "broker": TEXT,
    "observed": described(NUMBER, "the rate, in the unit of the key"),
    "share": nullable(NUMBER, "of the limit; null without a limit"),
    "throttle_ms": nullable(NUMBER, "null where it is not known"),
    "last_minute": nullable(_MINUTE, "null where only averages are known"),
}
_EFFECTIVE: Final[dict[str, Schema]] = {
    "key": TEXT,
    "limit": LIMIT,
    "unit": TEXT,
    "scope": choice("per broker", "on the active controller"),
    "level": LEVEL,
    "entity": nullable(ENTITY, "whose quota it is; null for no limit"),
    "bucket": nullable(rows(TEXT), "the names by which clients share the limit"),
    "shared_with": described(TEXT, "who shares the limit, in words"),
    "overridden": rows(record({"level": LEVEL, "entity": ENTITY, "limit": LIMIT})),
    "cluster_total": nullable(NUMBER, "null without --brokers or a cluster"),
    "topic_total": nullable(NUMBER, "null without --topic"),
    "warnings": SENTENCES,
    "usage": nullable(rows(record(USAGE)), "null without --with-usage"),
}
SCHEMAS: Final[dict[str, OutputSchema]] = {
    "quotas": OutputSchema(
        commands=("describe",),
        rows=("entries", "quotas"),
        fields={
            "entries": rows(
                record({"entity": SUBJECT, "quotas": by_name(NUMBER, "key", "value", "values by quota key")})
            )
        },
    ),
    "effective": OutputSchema(
        commands=("describe --effective",),
        rows=("clients", "quotas"),
        fields={
            "store": STORE,
            "cluster": nullable(record(of_dataclass(ClusterView)), "null without --brokers or a cluster"),
            "warnings": SENTENCES,
            "notes": SENTENCES,
            "clients": rows(record({"client": _CLIENT, "quotas": rows(record(_EFFECTIVE))})),
        },
    ),
    "alter": OutputSchema(
        commands=("alter",),
        rows=("changes",),
        fields={
            "store": STORE,
            "dry_run": FLAG,
            "checked_by": WORDS,
            "entity": ENTITY,
            "changes": rows(record(_CHANGE)),
            "findings": rows(FINDING),
            "affected": nullable(_AFFECTED, "null without --dry-run"),
        },
    ),
    "journal": OutputSchema(
        commands=("revert --list",),
        rows=("entries", "changes"),
        fields={
            "entries": rows(
                record(
                    {
                        "id": TEXT,
                        "time": INSTANT,
                        "command": TEXT,
                        "by": described(TEXT, "who made the change"),
                        "store": STORE,
                        "changes": rows(record(_CHANGE)),
                        "reason": nullable(TEXT),
                        "undo_at": nullable(INSTANT, "when it is to be undone; null for never"),
                        "reverts": nullable(TEXT, "the id of the entry that it undid"),
                        "reverted": FLAG,
                        "confirmed": FLAG,
                    }
                )
            )
        },
    ),
    "revert": OutputSchema(
        commands=("revert",),
        rows=("changes",),
        fields={
            "entry": TEXT,
            "store": STORE,
            "time": INSTANT,
            "command": TEXT,
            "by": described(TEXT, "who made the change"),
            "reason": nullable(TEXT),
            "changes": rows(record({**_CHANGE, "state": _REVERTED})),
        },
    ),
    "undone": OutputSchema(
        commands=("revert --due",),
        rows=("changes",),
        fields={"changes": rows(record({"store": STORE, **_CHANGE}))},
    ),
    "diff": _DIFF,
    "diff-contexts": of_contexts(_DIFF),
    "apply": _APPLY,
    "apply-contexts": of_contexts(_APPLY),
    "validate": OutputSchema(
        commands=("validate",),
        rows=("problems",),
        fields={
            "files": INTEGER,
            "entities": INTEGER,
            "invalid_entries": described(INTEGER, "entries marked invalid"),
            "problems": rows(
                record(
                    {
                        "file": TEXT,
                        "line": nullable(INTEGER),
                        "entry": nullable(INTEGER, "its number in the file, from 1"),
                        "message": TEXT,
                        "hint": nullable(TEXT),
                    }
                )
            ),
        },
    ),
    "change": OutputSchema(commands=("watch",), fields={"time": INSTANT, "store": STORE, **_CHANGE}),
    "migration": OutputSchema(
        commands=("migrate",),
        rows=("quotas",),
        fields={
            "from": record({"store": STORE, **_COUNT}),
            "to": record({"store": STORE, "before": record(_COUNT), "after": record(_COUNT)}),
            "dry_run": FLAG,
            "complete": FLAG,
            "warnings": SENTENCES,
            "quotas": rows(
                record(
                    {
                        "entity": SUBJECT,
                        "key": TEXT,
                        "from": _VALUE,
                        "to": _VALUE,
                        "outcome": TEXT,
                        "reason": nullable(TEXT),
                    }
                )
            ),
        },
    ),
    "contexts": OutputSchema(
        commands=("context list",),
        rows=("contexts",),
        fields={
            "file": TEXT,
            "contexts": rows(record({"name": TEXT, "store": STORE, "current": FLAG, "protected": FLAG})),
        },
    ),
    "context": OutputSchema(
        commands=("context show NAME",),
        rows=("settings",),
        fields={"name": TEXT, "settings": rows(record({"setting": TEXT, "value": TEXT}))},
    ),
    "settings": OutputSchema(
        commands=("context show",),
        rows=("settings",),
        fields={
            "settings": rows(
                record(
                    {
                        **_SETTING,
                        "origin": choice("option", "variable", "context", "default"),
                        "from": nullable(TEXT, "the option, variable or context"),
                    }
                )
            )
        },
    ),
    "context-test": OutputSchema(
        commands=("context test",),
        rows=("addresses",),
        fields={
            "addresses": rows(
                record(
                    {
                        "context": TEXT,
                        "part": TEXT,
                        "address": TEXT,
                        "reached": FLAG,
                        "answer": nullable(TEXT),
                        "took_ms": INTEGER,
                    }
                )
            )
        },
    ),
}
"""Each kind of document by its noun."""
