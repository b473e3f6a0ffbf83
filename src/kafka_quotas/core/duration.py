"""Lengths of time with units, parsed exactly: `250us`, `100ms`, `1.5s`, `10min`, `2h`."""

import re
from fractions import Fraction
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.units import format_number

_UNITS_MS: Final = {
    "us": Fraction(1, 1000),
    "ms": Fraction(1),
    "s": Fraction(1000),
    "min": Fraction(60_000),
    "h": Fraction(3_600_000),
}
_DURATION = re.compile(r"(?P<number>\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})\s*(?P<unit>us|ms|s|min|h)", re.ASCII)


def parse_duration_ms(text: str) -> Fraction:
    """The milliseconds that a text such as `100ms`, `1.5s` or `10min` means, exact.

    Raises `UsageError` where the text is no such figure; a figure without a unit is none, negative ones neither.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"not a length of time: {text!r}", hint="examples: 250us, 100ms, 1.5s, 10min, 2h")
    return Fraction(match["number"]) * _UNITS_MS[match["unit"]]


def format_duration_ms(value_ms: float) -> str:
    """Milliseconds for people, at most six digits: `100 ms` below a second, `12 s` from there on."""
    number, unit = (value_ms, "ms") if abs(value_ms) < 1000 else (value_ms / 1000, "s")
    return f"{format_number(float(f'{number:.6g}'))} {unit}"
