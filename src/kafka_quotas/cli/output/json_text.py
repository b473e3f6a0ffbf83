"""JSON text with plain numbers, which `json.dumps` has no option for (`1e-05`, `10485760.0`)."""

import json
from collections.abc import Iterator, Mapping, Sequence

from kafka_quotas.core.model.value_format import format_number

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
"""What JSON can hold. Infinities and NaN, which it can't, are written as the texts Java uses."""


def json_text(value: Json, *, ascii_only: bool = False) -> str:
    """Format the value as JSON, indented by two, keys in the order given.

    `ascii_only` escapes other letters.
    """
    return "".join(_pieces(value, "\n", ascii_only))


def json_line(value: Json, *, ascii_only: bool = False) -> str:
    """Format the value like `json_text`, but on one line."""
    return "".join(line.lstrip(" ") for line in json_text(value, ascii_only=ascii_only).split("\n"))


def _pieces(value: Json, newline: str, ascii_only: bool) -> Iterator[str]:
    """Yield the text of a value in pieces.

    `newline` is a line end with the indentation of the value's line.
    """
    if isinstance(value, Mapping):
        items = ((f"{json.dumps(key, ensure_ascii=ascii_only)}: ", item) for key, item in value.items())
        yield from _block("{", items, "}", newline, ascii_only)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from _block("[", (("", item) for item in value), "]", newline, ascii_only)
    elif isinstance(value, float):
        text = format_number(value)
        yield text if text[-1].isdigit() else json.dumps(text)
    else:
        yield json.dumps(value, ensure_ascii=ascii_only)


def _block(
    opening: str, items: Iterator[tuple[str, Json]], closing: str, newline: str, ascii_only: bool
) -> Iterator[str]:
    inner, separator = newline + "  ", opening
    for prefix, item in items:
        yield separator + inner + prefix
        yield from _pieces(item, inner, ascii_only)
        separator = ","
    yield opening + closing if separator == opening else newline + closing
