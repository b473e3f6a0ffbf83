"""Lengths of time with units and instants in UTC.

Lengths are parsed exactly: `250us`, `100ms`, `1.5s`, `10min`, `2h`. Instants are as in journals:
`2026-11-21T15:15:42.123Z`, always UTC.
"""

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.units import format_number

_UNITS_MS: Final = {
    "us": Fraction(1, 1000),
    "ms": Fraction(1),
    "s": Fraction(1000),
    "min": Fraction(60_000),
    "h": Fraction(3_600_000),
}
_DURATION = re.compile(r"(?P<number>\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})\s*(?P<unit>us|ms|s|min|h)", re.ASCII)


def parse_duration_ms(text: str) -> Fraction:
    """Return the exact milliseconds of a text such as `100ms`, `1.5s` or `10min`.

    Raises:
        UsageError: Any other text, such as a negative figure or one without a unit.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"not a length of time: {text!r}", hint="examples: 250us, 100ms, 1.5s, 10min, 2h")
    return Fraction(match["number"]) * _UNITS_MS[match["unit"]]


def format_duration_ms(value_ms: float) -> str:
    """Return milliseconds for people, at most six digits: `100 ms` below a second, `12 s` from there on."""
    number, unit = (value_ms, "ms") if abs(value_ms) < 1000 else (value_ms / 1000, "s")
    return f"{format_number(float(f'{number:.6g}'))} {unit}"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_instant(time_ms: int) -> str:
    """Return milliseconds since the epoch as ISO 8601 text in UTC, to the millisecond."""
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_instant(text: str) -> int:
    """Return the milliseconds since the epoch that an ISO 8601 text with a zone means.

    Raises:
        ValueError: The text is no such instant.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no zone")
    return (moment - _EPOCH) // timedelta(milliseconds=1)
