"""Figures and lengths of time with units, parsed exactly.

k/M/G/T and kB/MB/GB/TB are powers of 1000, Ki/Mi/Gi/Ti of 1024, with an optional B and an optional `/s` or `ps`.
A lower-case b is bits and needs `/s` or `ps` (`8Mbps` = 1,000,000 bytes/s). `%` belongs to request_percentage only.
A length of time needs a unit: `250us`, `100ms`, `1.5s`, `10min`, `2h`. Arithmetic is exact (fractions); of a quota the
result is the double that Kafka stores.
"""

import re
from fractions import Fraction
from typing import Final

from kafka_quotas.core.errors import InvalidQuotaError, UsageError
from kafka_quotas.core.model.quota_key import QuotaKey, Unit, ValueType

UNLIMITED = "unlimited"

_NUMBER = r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?)"
_QUANTITY = re.compile(_NUMBER + r"\s*(?P<prefix>[kKMGT]i?)?(?P<letter>[bB])?(?P<per>/s|ps)?", re.ASCII)
_PERCENT = re.compile(_NUMBER + r"\s*(?P<percent>%)?", re.ASCII)
_RATE = re.compile(_NUMBER + r"\s*(?P<per>/s)?", re.ASCII)
_POWERS = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4}
_BYTES_HINT = "examples: 1048576, 10MiB, 2M (2,000,000), 80Mbps (bits), unlimited"
_NON_FINITE = {"nan", "inf", "infinity", "+inf", "-inf", "+infinity", "-infinity"}
_DURATION_UNITS_MS: Final = {
    "us": Fraction(1, 1000),
    "ms": Fraction(1),
    "s": Fraction(1000),
    "min": Fraction(60_000),
    "h": Fraction(3_600_000),
}
_UNIT_NAMES: Final = {
    "ms": ("msec", "msecs", "millis", "millisecond", "milliseconds"),
    "s": ("s", "sec", "secs", "second", "seconds"),
    "min": ("m", "min", "mins", "minute", "minutes"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
}
"""How others spell the units of time."""
_OTHER_SIZE = re.compile(
    r"(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<prefix>[kmgt])(?P<binary>i?)b?(?P<per>/?s(?:ec)?|ps)?",
    re.ASCII | re.IGNORECASE,
)
_OTHER_DURATION = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>[a-z]+)", re.ASCII | re.IGNORECASE)
_DURATION = re.compile(r"(?P<number>\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})\s*(?P<unit>us|ms|s|min|h)", re.ASCII)


def parse_bytes(text: str) -> Fraction:
    """Return the exact bytes (or bytes per second) of a text such as `10MiB`, `1.5kB/s` or `80Mbps`.

    Raises:
        InvalidQuotaError: The text is no such figure, or bits lack `/s` or `ps`.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match["prefix"] == "K":
        raise InvalidQuotaError(f"not a size: {text!r}", hint=_meant_size(text) or _BYTES_HINT)
    prefix, letter, per = match["prefix"] or "", match["letter"], match["per"]
    base = Fraction(1024 if prefix.endswith("i") else 1000)
    value = Fraction(match["number"]) * Fraction(base ** (_POWERS[prefix[0]] if prefix else 0))
    if letter == "b":
        if per is None:
            raise InvalidQuotaError(
                f"a lower-case b is bits and needs a rate: {text!r}", hint=f"write {text.strip()}/s, or B for bytes"
            )
        return value / 8
    return value


def _meant_size(text: str) -> str | None:
    """Return a hint at a size as others spell it, such as `10mb`, `10KB/s` or `10MBs`."""
    match = _OTHER_SIZE.fullmatch(text.strip())
    if match is None:
        return None
    number, prefix, binary, per = match["number"], match["prefix"].upper(), match["binary"], match["per"]
    prefix = "k" if prefix == "K" and not binary else prefix
    meant = f"{number}{prefix}{'i' * bool(binary)}B{'/s' * bool(per)}"
    return f"did you mean {meant}?{' k is 1000, Ki is 1024' if prefix == 'k' else ''}"


def parse_duration_ms(text: str) -> Fraction:
    """Return the exact milliseconds of a text such as `100ms`, `1.5s` or `10min`.

    Raises:
        UsageError: Any other text, such as a negative figure or one without a unit.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        other = _OTHER_DURATION.fullmatch(text.strip())
        unit = next((unit for unit, names in _UNIT_NAMES.items() if other and other["unit"].lower() in names), None)
        hint = f"did you mean {other['number']}{unit}?" if other and unit else None
        raise UsageError(f"not a length of time: {text!r}", hint=hint or "examples: 250us, 100ms, 1.5s, 10min, 2h")
    return Fraction(match["number"]) * _DURATION_UNITS_MS[match["unit"]]


def parse_quota_value(key: QuotaKey, text: str) -> float:
    """Return the value that `text` means for `key`, as the double that Kafka stores.

    `unlimited` is the largest value of the key. `core.changes.validation` decides whether the figure is allowed (above
    0, whole, not too large).

    Raises:
        InvalidQuotaError: Anything that is not a finite figure in a unit of the key.
    """
    stripped = text.strip()
    if stripped.lower() == UNLIMITED:
        return float(key.unlimited)
    if stripped.lower() in _NON_FINITE:
        raise InvalidQuotaError(
            f"{key.name} must be a finite number, not {stripped}", hint=f"write {key.name}=unlimited for no limit"
        )
    try:
        return _checked_float(key, stripped, _exact(key, stripped))
    except OverflowError:
        raise InvalidQuotaError(f"{key.name} is too large: {stripped}", hint=f"write {key.name}=unlimited") from None


def _exact(key: QuotaKey, text: str) -> Fraction:
    if key.unit is Unit.BYTES_PER_SECOND:
        if text.endswith("%"):
            raise InvalidQuotaError(f"{key.name} takes bytes per second, not %: {text!r}", hint=_BYTES_HINT)
        return parse_bytes(text)
    pattern, example = (_PERCENT, "12.5%, 200") if key.unit is Unit.PERCENT else (_RATE, "5, 10/s")
    match = pattern.fullmatch(text)
    if match is None:
        raise InvalidQuotaError(
            f"not a value for {key.name}: {text!r}", hint=f"it takes {key.unit.value}; examples: {example}, unlimited"
        )
    return Fraction(match["number"])


def _in_units(text: str, exact: Fraction) -> str:
    """Return a value as it was written, with its value in the key's unit where that differs."""
    plain = f"{float(exact):.6g}"
    return text if text == plain else f"{text}, which is {plain}"


def _checked_float(key: QuotaKey, text: str, exact: Fraction) -> float:
    """Return the double of an exact value, refusing a fraction of a whole unit while it is still exact."""
    if key.value_type is not ValueType.DOUBLE and exact.denominator != 1:
        raise InvalidQuotaError(
            f"{key.name} must be a whole number of {key.unit.value}, not {_in_units(text, exact)}",
            hint="round it to a whole number",
        )
    return float(exact)
