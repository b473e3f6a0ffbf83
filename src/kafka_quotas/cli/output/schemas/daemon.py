"""Documents of the daemon."""

from typing import Final

from kafka_quotas.cli.output.schemas.catalogue import OutputSchema
from kafka_quotas.cli.output.schemas.forms import (
    ENTITY,
    FLAG,
    INTEGER,
    NUMBER,
    SEPARATOR,
    TEXT,
    by_name,
    choice,
    described,
    nullable,
    of_dataclass,
    record,
    rows,
)
from kafka_quotas.enforcement.proxy.unmuting import Unmuted
from kafka_quotas.enforcement.quotas.reload import Reloaded
from kafka_quotas.enforcement.telemetry.status import DaemonStatus, ThrottledClient

_WHOSE: Final = nullable(ENTITY, "whose quota it is; null for no limit any more")
_COST: Final = record({"request_us": NUMBER, "request_byte_ns": NUMBER, "response_byte_ns": NUMBER})
SCHEMAS: Final[dict[str, OutputSchema]] = {
    "daemon-status": OutputSchema(
        commands=("daemon status",),
        rows=("throttled",),
        fields={
            **of_dataclass(DaemonStatus),
            "throttled": rows(record({**of_dataclass(ThrottledClient), "entity": _WHOSE})),
        },
    ),
    "daemon-reload": OutputSchema(commands=("daemon reload",), fields=of_dataclass(Reloaded)),
    "daemon-unmute": OutputSchema(commands=("daemon unmute",), rows=("unmuted",), fields=of_dataclass(Unmuted)),
    "daemon-config": OutputSchema(
        commands=("daemon check",),
        rows=("settings",),
        fields={
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
        },
    ),
    "decision": OutputSchema(
        commands=("daemon decide",),
        fields={
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
        },
    ),
    "cost-model": OutputSchema(
        commands=("daemon calibrate",),
        rows=("apis",),
        fields={
            "version": INTEGER,
            "source": TEXT,
            "other": _COST,
            "apis": by_name(_COST, "api", "cost", "the cost of a request by the name of its API"),
        },
    ),
}
"""Each kind of document by its noun."""
