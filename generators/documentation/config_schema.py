"""The JSON schema of `daemon.toml`, made from the options of `daemon run` and the properties of listeners."""

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from typer.core import TyperOption

from kafka_quotas.cli.daemon.run import LISTENER_PROPERTIES, TABLES, sections, value_kind
from kafka_quotas.cli.framework.option_groups import setting_of
from kafka_quotas.cli.output.listing import Json
from kafka_quotas.commands.examples import examples_folder
from kafka_quotas.core.model.setting import TextForm
from kafka_quotas.enforcement import PROPERTIES, SECURITY_PROTOCOLS


def config_schema(options: Mapping[str, TyperOption]) -> dict[str, Json]:
    """Return the JSON schema of the file, for editors and checks.

    Args:
        options: The options of `daemon run` by their names in the file.
    """
    found: dict[str, Json] = {}
    for section, names in sections(options).items():
        properties: dict[str, Json] = {name: _value_schema(options[name]) for name in names}
        if section == "listeners":
            text = "What a file of --listener-config holds, by Kafka's own names of properties."
            properties[LISTENER_PROPERTIES] = {"description": text, **_nested(_property_schemas(has_addresses=False))}
        found[section] = {"type": "object", "additionalProperties": False, "properties": properties}
    found["policy"] = {"description": TABLES["policy"], **_policy_schema()}
    found["listener"] = {
        "type": "object",
        "description": TABLES["listener"],
        "additionalProperties": _nested(_property_schemas(has_addresses=True), required=("listen", "upstream")),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The configuration of kafka-quotas daemon",
        "type": "object",
        "additionalProperties": False,
        "properties": found,
    }


def _policy_schema() -> dict[str, Json]:
    published = json.loads((examples_folder() / "daemon" / "policy.schema.json").read_text(encoding="utf-8"))
    return {name: value for name, value in published.items() if name not in ("$schema", "title")}


def _value_schema(option: TyperOption) -> dict[str, Json]:
    kind, several = value_kind(option)
    info, setting = option.type_descriptor.parameter_info, setting_of(option)
    described: dict[str, Json]
    if issubclass(kind, Enum):
        described = {"enum": [str(choice.value) for choice in kind]}
    elif kind is bool:
        described = {"type": "boolean"}
    elif kind in (int, float):
        described = {"type": "integer" if kind is int else "number"}
        described |= {"minimum": info.min} if info.min is not None else {}
        described |= {"maximum": info.max} if info.max is not None else {}
    elif setting is not None and setting.form is not None:
        described = _text_schema(setting.form)
    else:
        described = {"type": "string"} if kind is Path else {"type": ["string", "integer"]}
    if several:
        described = {"anyOf": [described, {"type": "array", "items": described}]}
    return {"description": " ".join((option.help or "").split()), **described}


def _text_schema(form: TextForm) -> dict[str, Json]:
    text: dict[str, Json] = {"type": "string", "pattern": form.pattern}
    if form.integers is None:
        return text
    least, most = form.integers
    number: dict[str, Json] = {"type": "integer", "minimum": least}
    endless: list[Json] = [] if form.endless is None else [{"enum": [form.endless]}]
    return {"anyOf": [text, number if most is None else {**number, "maximum": most}, *endless]}


def _property_schemas(*, has_addresses: bool) -> dict[str, Json]:
    """Return the JSON schemas of a listener's properties by their names.

    Args:
        has_addresses: Whether `listen` and `upstream` are among them.
    """
    text: dict[str, Json] = {"type": ["string", "integer", "boolean"]}
    texts: dict[str, Json] = {"anyOf": [text, {"type": "array", "items": {"type": "string"}}]}
    found: dict[str, Json] = {
        name: texts if form is None or not form.pattern else _text_schema(form) for name, form in PROPERTIES.items()
    }
    protocols = "|".join("".join(f"[{c}{c.lower()}]" if c != "_" else c for c in name) for name in SECURITY_PROTOCOLS)
    for name in ("security.protocol", "upstream.security.protocol"):
        found[name] = {"type": "string", "pattern": rf"^\s*(?:{protocols})\s*$"}
    for name, least in (("broker.addresses", {}), ("upstream", {"minItems": 1})):
        found[name] = {"anyOf": [found[name], {"type": "array", **least, "items": found[name]}]}
    return found if has_addresses else {name: found[name] for name in found if name not in ("listen", "upstream")}


def _nested(schemas: dict[str, Json], *, required: tuple[str, ...] = ()) -> dict[str, Json]:
    """Return the schema of a table of properties, whose unquoted names TOML reads as tables."""
    properties: dict[str, Json] = dict(schemas)
    for head in sorted({name.partition(".")[0] for name in schemas if "." in name}):
        inner = dict(_below(schemas, head))
        table = _nested(inner)
        properties[head] = {"anyOf": [schemas[head], table]} if head in schemas else table
    ssl: dict[str, Json] = {r"^(?:upstream\.)?ssl\.": {}}
    found: dict[str, Json] = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "patternProperties": ssl,
    }
    return found | ({"required": list(required)} if required else {})


def _below(schemas: dict[str, Json], head: str) -> Iterator[tuple[str, Json]]:
    for name, schema in schemas.items():
        first, _, rest = name.partition(".")
        if first == head and rest:
            yield rest, schema
