"""What the texts in `daemon.toml` may be: for each a reader that refuses others, and a pattern for the JSON schema.

Invariants: a reader and its pattern refuse the same; a test drives both by one table of cases.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from kafka_quotas.cli.output.json_text import Json
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.units import parse_bytes
from kafka_quotas.enforcement.config.address import (
    parse_address,
    parse_addresses,
    parse_broker_addresses,
    parse_local_address,
)
from kafka_quotas.enforcement.config.listener_file import INTEGERS, PROPERTIES, SECURITY_PROTOCOLS, parse_port_range
from kafka_quotas.enforcement.config.topic_target import SCHEME, parse_topic

CONTROL_MODE: Final = re.compile("0?6[0246]{2}")
"""Modes of a control socket: its owner uses it, and a right to execute means nothing."""
_SIZE: Final = re.compile(r"\+?[0-9.]+\s*(?:[kMGT]i?|Ki)?B?")
_PORT: Final = "(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})"
_HOST: Final = r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/@\[\],]+)"
_ID: Final = "[0-9]{1,10}"


def parse_size(name: str, text: str) -> int:
    """Return the bytes that a size of memory or of a file means.

    Raises:
        UsageError: It is no size, a rate, or less than a byte.
    """
    size = int(parse_bytes(text)) if _SIZE.fullmatch(text.strip()) else 0
    if size < 1:
        raise UsageError(f"{name}: not a size of at least 1 byte: {text!r}", hint="for example 100MiB")
    return size


def _ascending() -> str:
    """Return a pattern of two ports of which the first is not above the second."""
    shorter = "|".join(f"[0-9]{{{digits}}}-[0-9]{{{digits + 1},5}}" for digits in range(1, 5))
    as_long = "|".join(f"[0-9]{{{digits}}}-[0-9]{{{digits}}}" for digits in range(1, 6))
    greater = "|".join(rf"{digit}[0-9]*-\1[{digit + 1}-9][0-9]*" for digit in range(9))
    return rf"^(?={_PORT}-{_PORT}$)(?:{shorter}|(?=(?:{as_long})$)(?:([0-9]*)(?:{greater})|([0-9]+)-\2))$"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextForm:
    """The form of a setting that is a text."""

    read: Callable[[str], object]
    """Reads the text and raises `UsageError` for one that can't be meant."""
    pattern: str
    """Pattern of the texts that it takes."""
    integers: tuple[int, int | None] | None = None
    """Least and greatest number that may stand for the text, None where none may."""

    def check(self, value: object) -> None:
        """Refuse a value that can't be meant.

        Raises:
            ValueError: It is a number where only a text is one.
            UsageError: It has not the form.
        """
        if isinstance(value, int | float) and (self.integers is None or isinstance(value, float)):
            raise ValueError(f"{value} is a number, not a text")
        self.read(str(value))

    def schema(self) -> dict[str, Json]:
        """Return the JSON schema of the setting's value."""
        text: dict[str, Json] = {"type": "string", "pattern": self.pattern}
        if self.integers is None:
            return text
        least, most = self.integers
        number: dict[str, Json] = {"type": "integer", "minimum": least}
        return {"anyOf": [text, number if most is None else {**number, "maximum": most}]}


def _named(text: str) -> str:
    if not text:
        raise UsageError("it is empty", hint="leave it out, or name one")
    return text


def _list_of(one: str) -> str:
    return rf"^\s*{one}\s*(?:,\s*{one}\s*)*$"


_ADDRESS: Final = f"{_HOST}:{_PORT}"
_ADDRESSES: Final = TextForm(read=lambda text: parse_addresses([text]), pattern=_list_of(_ADDRESS))
_LISTEN: Final = TextForm(
    read=lambda text: parse_address(text, may_be_zero=True), pattern=rf"^\s*{_HOST}:(?:{_PORT}|0)\s*$"
)
_PORT_RANGE: Final = TextForm(read=parse_port_range, pattern=_ascending())
_TOPIC: Final = rf"{SCHEME}[^/\s]+/[^/\s]+"
_NAME: Final = TextForm(read=_named, pattern=r"[\s\S]", integers=(0, None))
_BROKER_ADDRESSES: Final = TextForm(
    read=lambda text: parse_broker_addresses([text]),
    pattern=_list_of(f"{_ID}(?:-{_ID})?=(?:{_HOST}:)?{_PORT}"),
)


def _size_form(name: str) -> TextForm:
    number = r"\+?(?=[0-9.]*[1-9])(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    return TextForm(
        read=lambda text: parse_size(name, text), pattern=rf"^\s*{number}\s*(?:[kMGT]i?|Ki)?B?\s*$", integers=(1, None)
    )


def control_mode(text: str) -> int:
    """Return the mode of the control socket's file.

    Raises:
        UsageError: It is no mode of a socket that its owner uses.
    """
    if not CONTROL_MODE.fullmatch(text):
        raise UsageError(
            f"not a mode of a socket: {text!r}", hint="0600, 0660 for the daemon's group, 0666 for --control-user"
        )
    return int(text, 8)


def _event_log(text: str) -> object:
    return parse_topic(text) if text.startswith(SCHEME) else _named(text)


_SIZES: Final = ("max_request_bytes", "queued_max_request_bytes", "max_bucket_memory", "event_log_keep")
_NAMES: Final = (
    *("principal", "unknown_principal", "internal_principal", "metrics_user", "metrics_client"),
    *("advertised_host", "fleet_name", "cluster", "control_user"),
)
FORMS: Final[dict[str, TextForm]] = {
    "upstream": _ADDRESSES,
    "listen": _LISTEN,
    "port_range": _PORT_RANGE,
    "broker_address": _BROKER_ADDRESSES,
    "metrics_port": TextForm(
        read=parse_local_address, pattern=rf"^\s*(?:{_HOST}:)?(?:{_PORT}|0)\s*$", integers=(0, 65_535)
    ),
    "control_mode": TextForm(read=control_mode, pattern=f"^{CONTROL_MODE.pattern}$"),
    "event_log": TextForm(read=_event_log, pattern=rf"^(?:{_TOPIC}|(?!{SCHEME})[\s\S]+)$"),
    "fleet": TextForm(read=parse_topic, pattern=f"^{_TOPIC}$"),
    **{name: _size_form(name) for name in _SIZES},
    **dict.fromkeys(_NAMES, _NAME),
}
"""Forms of the settings that are texts, but for files, by the name of the setting."""


def property_schemas(*, has_addresses: bool) -> dict[str, Json]:
    """Return the JSON schemas of a listener's properties by their names.

    Args:
        has_addresses: Whether `listen` and `upstream` are among them.
    """
    text: dict[str, Json] = {"type": ["string", "integer", "boolean"]}
    texts: dict[str, Json] = {"anyOf": [text, {"type": "array", "items": {"type": "string"}}]}
    found: dict[str, Json] = dict.fromkeys(PROPERTIES, texts)
    found |= {
        name: _integer_schema(least, most, is_endless=name in _ENDLESS) for name, (least, most) in INTEGERS.items()
    }
    protocols = "|".join("".join(f"[{c}{c.lower()}]" if c != "_" else c for c in name) for name in SECURITY_PROTOCOLS)
    for name in ("security.protocol", "upstream.security.protocol"):
        found[name] = {"type": "string", "pattern": rf"^\s*(?:{protocols})\s*$"}
    found["port.range"] = _PORT_RANGE.schema()
    found["broker.addresses"] = {
        "anyOf": [_BROKER_ADDRESSES.schema(), {"type": "array", "items": _BROKER_ADDRESSES.schema()}]
    }
    if has_addresses:
        several: dict[str, Json] = {"type": "array", "minItems": 1, "items": _ADDRESSES.schema()}
        found |= {"listen": _LISTEN.schema(), "upstream": {"anyOf": [_ADDRESSES.schema(), several]}}
    return found


_ENDLESS: Final = ("connections.max.idle.ms",)
"""Properties of which -1 means no limit."""


def _integer_schema(least: int, most: int, *, is_endless: bool) -> Json:
    number = "[0-9]+" if least == 0 else "0*[1-9][0-9]*"
    text: dict[str, Any] = {"type": "string", "pattern": rf"^\s*{number}\s*$"}
    endless: list[Json] = [{"enum": [-1, "-1"]}] if is_endless else []
    return {"anyOf": [{"type": "integer", "minimum": least, "maximum": most}, text, *endless]}


def nested(schemas: dict[str, Json], *, required: tuple[str, ...] = ()) -> dict[str, Json]:
    """Return the schema of a table of properties, whose unquoted names TOML reads as tables."""
    properties: dict[str, Json] = dict(schemas)
    for head in sorted({name.partition(".")[0] for name in schemas if "." in name}):
        inner = dict(_below(schemas, head))
        table = nested(inner)
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
