"""The sections of `daemon.toml`: one table that drives its parser, its JSON schema and its reference page.

A setting is an option of `daemon run`, by the option's name with `_` for `-`. Its type, limits and help are the
option's own, so that file and command line can't come apart.
"""

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from typer.core import TyperOption

from kafka_quotas.cli.daemon.setting_forms import FORMS, nested, property_schemas
from kafka_quotas.cli.output.json_text import Json
from kafka_quotas.commands.examples import examples_folder

SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "upstream": ("upstream", "connect_timeout"),
    "listeners": ("listen", "port_range", "broker_address", "advertised_host", "listener_config", "listener"),
    "store": ("store", "command_config", "static_quotas"),
    "enforcement": (
        "mode",
        "scope",
        "throttle_style",
        "max_throttle_ms",
        "on_violation",
        "fetch_over_quota",
        "mutations",
        "mutation_algorithm",
        "auto_create",
        "threshold_error",
        "policy",
        "cost_model",
        "window_file",
        "quota_window_num",
        "quota_window_size_seconds",
        "controller_quota_window_num",
        "controller_quota_window_size_seconds",
        "upstream_windows",
    ),
    "identity": ("principal", "unknown_principal", "internal_principal"),
    "limits": (
        "connection_rate",
        "max_connections",
        "unknown_apis",
        "max_request_bytes",
        "queued_max_request_bytes",
        "max_bucket_memory",
    ),
    "telemetry": (
        "metrics_port",
        "metrics_top",
        "metrics_user",
        "metrics_client",
        "log_format",
        "event_log",
        "event_log_rotate",
        "event_log_keep",
        "event_log_config",
        "cluster",
    ),
    "fleet": ("fleet", "fleet_name", "fleet_fallback", "fleet_config", "fleet_secret_file"),
    "operation": ("control", "control_mode", "control_user", "state_file", "drain_timeout", "workers"),
}
"""The settings of each section, in the order of the reference."""
TABLES: Final[Mapping[str, str]] = {
    "policy": "What a file of --policy holds: internal_principals, [[policy.entity]], [policy.thresholds].",
    "listener": "More listeners by name, [listener.NAME], each with what a file of --listener holds.",
}
"""Tables with a content of their own, in place of the files of the options of the same names."""
LISTENER_PROPERTIES: Final = "properties"
"""The table in `listeners` in place of the file of --listener-config."""


def setting_name(option: TyperOption) -> str:
    """Return the name of an option in the file: the longest of its spellings without the dashes in front."""
    return max(option.opts, key=len).removeprefix("--").replace("-", "_")


def settings_of(options: Mapping[str, TyperOption]) -> Iterator[tuple[str, str, TyperOption]]:
    """Yield section, name and option of every setting.

    Args:
        options: The options of `daemon run` by their names in the file.
    """
    for section, names in SECTIONS.items():
        for name in names:
            yield section, name, options[name]


def value_kind(option: TyperOption) -> tuple[type[Any], bool]:
    """Return the type of an option's value, and whether it takes several."""
    annotation: Any = option.type_descriptor.annotation
    several = get_origin(annotation) is list
    kind = get_args(annotation)[0] if several else annotation
    return (kind if isinstance(kind, type) else str), several


def schema(options: Mapping[str, TyperOption]) -> dict[str, Json]:
    """Return the JSON schema of the file, for editors and checks.

    Args:
        options: The options of `daemon run` by their names in the file.
    """
    sections: dict[str, Json] = {}
    for section, names in SECTIONS.items():
        properties: dict[str, Json] = {name: _value_schema(options[name]) for name in names}
        if section == "listeners":
            text = "What a file of --listener-config holds, by Kafka's own names of properties."
            properties[LISTENER_PROPERTIES] = {"description": text, **nested(property_schemas(has_addresses=False))}
        sections[section] = {"type": "object", "additionalProperties": False, "properties": properties}
    sections["policy"] = {"description": TABLES["policy"], **_policy_schema()}
    sections["listener"] = {
        "type": "object",
        "description": TABLES["listener"],
        "additionalProperties": nested(property_schemas(has_addresses=True), required=("listen", "upstream")),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The configuration of kafka-quotas daemon",
        "type": "object",
        "additionalProperties": False,
        "properties": sections,
    }


def _policy_schema() -> dict[str, Json]:
    published = json.loads((examples_folder() / "daemon" / "policy.schema.json").read_text(encoding="utf-8"))
    return {name: value for name, value in published.items() if name not in ("$schema", "title")}


def _value_schema(option: TyperOption) -> dict[str, Json]:
    kind, several = value_kind(option)
    info = option.type_descriptor.parameter_info
    described: dict[str, Json]
    if issubclass(kind, Enum):
        described = {"enum": [str(choice.value) for choice in kind]}
    elif kind is bool:
        described = {"type": "boolean"}
    elif kind in (int, float):
        described = {"type": "integer" if kind is int else "number"}
        described |= {"minimum": info.min} if info.min is not None else {}
        described |= {"maximum": info.max} if info.max is not None else {}
    elif setting_name(option) in FORMS:
        described = FORMS[setting_name(option)].schema()
    else:
        described = {"type": "string"} if kind is Path else {"type": ["string", "integer"]}
    if several:
        described = {"anyOf": [described, {"type": "array", "items": described}]}
    return {"description": " ".join((option.help or "").split()), **described}
