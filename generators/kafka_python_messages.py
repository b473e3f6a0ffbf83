"""Message definitions out of kafka-python's schemas: fewer APIs, but every field back to version 0."""

import importlib.resources
import re
from collections.abc import Mapping, Sequence
from functools import cache

from kafka.protocol.schemas import load_json

from generators.message import Field, Message

_NONE = range(0)
_OPEN_END = 0x7FFF


@cache
def _responses() -> Mapping[int, Mapping[str, object]]:
    folder = importlib.resources.files("kafka.protocol.schemas.resources")
    names = [entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith("Response.json")]
    return {definition["apiKey"]: definition for definition in map(load_json, names)}


def versions(api_key: int) -> range:
    """Return the versions of one API whose fields kafka-python knows, from 0 on, empty if it lacks the API."""
    definition = _responses().get(api_key)
    return range(_range(definition["validVersions"]).stop) if definition else _NONE


def response(api_key: int, version: int) -> Message:
    """Return the definition of one response."""
    definition = _responses()[api_key]
    name = definition["name"]
    if not isinstance(name, str):
        raise TypeError(f"API {api_key} has the name {name!r}")
    return Message(
        name=name.removesuffix("Response"),
        is_flexible=version in _range(definition["flexibleVersions"]),
        fields=_fields(definition["fields"], version),
    )


def flexible_since(api_key: int) -> int | None:
    """Return the first version of one API with tag sections, or None if there is none or kafka-python lacks the API."""
    flexible = _range(_responses().get(api_key, {}).get("flexibleVersions"))
    return flexible.start if flexible else None


def _range(text: object) -> range:
    """Return the versions that the notation "3", "3-5", "3+" or "none" stands for."""
    if text is None or text == "none":
        return _NONE
    first, dash, last = re.sub(r"\+$", f"-{_OPEN_END}", str(text)).partition("-")
    return range(int(first), int(last if dash else first) + 1)


def _fields(definitions: object, version: int) -> tuple[Field, ...]:
    if not isinstance(definitions, Sequence):
        raise TypeError(f"fields are a list, not {definitions!r}")
    return tuple(_field(entry, version) for entry in definitions if version in _range(entry["versions"]))


def _field(entry: Mapping[str, object], version: int) -> Field:
    kind = str(entry["type"])
    element = kind.removeprefix("[]")
    is_struct = element[0].isupper()
    tag = entry["tag"] if version in _range(entry.get("taggedVersions")) else None
    return Field(
        name=re.sub(r"(?<!^)(?=[A-Z])", "_", str(entry["name"])).lower(),
        kind="struct" if is_struct else element,
        is_array=kind.startswith("[]"),
        is_nullable=version in _range(entry.get("nullableVersions")),
        tag=tag if isinstance(tag, int) else None,
        fields=_fields(entry["fields"], version) if is_struct else (),
    )
