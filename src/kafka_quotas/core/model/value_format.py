"""Values with units as text: parsed exactly, and shown as people read them.

k/M/G/T and kB/MB/GB/TB are powers of 1000, Ki/Mi/Gi/Ti of 1024, with an optional B and an optional `/s` or `ps`.
A lower-case b is bits and needs `/s` or `ps` (`8Mbps` = 1,000,000 bytes/s). `%` belongs to request_percentage only.
A length of time needs a unit: `250us`, `100ms`, `1.5s`, `10min`, `2h`. Arithmetic is exact (fractions); of a quota the
result is the double that Kafka stores.

Numbers are shown plain, without an exponent, with decimal prefixes. What only machines read has its own format: Java's
doubles in `core.java`, ZooKeeper's values in `core.formats.zookeeper`.
"""

import re
from fractions import Fraction
from typing import Final

from kafka_quotas.core.errors import InvalidQuotaError, UsageError
from kafka_quotas.core.model.quota_key import MEASURED_KEYS, STORED_KEYS, QuotaKey, QuotaType, Unit, ValueType

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
    exact = _exact(key, stripped)
    try:
        value = float(exact)
    except OverflowError:
        raise InvalidQuotaError(f"{key.name} is too large: {stripped}", hint=f"write {key.name}=unlimited") from None
    # A fraction of a whole unit is refused while it is still exact.
    if key.value_type is not ValueType.DOUBLE and exact.denominator != 1:
        plain = f"{value:.6g}"
        meant = stripped if stripped == plain else f"{stripped}, which is {plain}"
        raise InvalidQuotaError(
            f"{key.name} must be a whole number of {key.unit.value}, not {meant}", hint="round it to a whole number"
        )
    return value


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


MS: Final = "ms"
BYTES: Final = "bytes"
BYTES_PER_SECOND: Final = "bytes/s"
PERCENT: Final = "%"


def format_number(value: float) -> str:
    """Return a double as a plain number without exponent or trailing `.0`, not-finite ones as in Java."""
    if value != value:  # noqa: PLR0124 - NaN is the one value unlike itself
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == int(value):
        return str(int(value))
    from decimal import Decimal  # noqa: PLC0415 - only fractions pay for it

    return format(Decimal(repr(value)), "f")  # repr is the shortest decimal that reads back as the same double


def format_rounded(value: float, digits: int) -> str:
    """Return a plain number of at most `digits` significant digits."""
    return format_number(float(f"{value:.{digits}g}"))


def format_bytes(value: float) -> str:
    """Return bytes with up to four digits, in the unit in which they are exact: `10.5 MB`, `10 MiB`.

    Where both kinds of unit are exact it is the one with fewer digits, where neither is a decimal one, rounded.
    """
    decimal, binary = _scaled(value, 1000, _DECIMAL_UNITS), _scaled(value, 1024, _BINARY_UNITS)
    decimal_digits, binary_digits = (len(text.partition(" ")[0]) for text, _ in (decimal, binary))
    return binary[0] if binary[1] and not (decimal[1] and decimal_digits <= binary_digits) else decimal[0]


_DECIMAL_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_BINARY_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def _scaled(value: float, base: int, units: tuple[str, ...]) -> tuple[str, bool]:
    rounded = float(f"{value:.4g}")
    power = next((each for each in range(len(units) - 1, 0, -1) if abs(rounded) >= base**each), 0)
    number = float(f"{value / base**power:.4g}")
    return f"{number:.15g} {units[power]}", number * base**power == value


def format_byte_rate(value: float) -> str:
    """Return bytes per second, such as `10.5 MB/s`."""
    return f"{format_bytes(value)}/s"


def format_amount(value: float, unit: str) -> str:
    """Return a value with its unit and at most six digits: `60 MB`, `2 s`, `0.1 %`, `500 partitions`."""
    if unit == MS:
        return format_duration_ms(value)
    if names_itself(unit):
        return format_bytes(value) + unit.removeprefix(BYTES)
    return f"{format_rounded(value, 6)} {unit}"


def format_duration_ms(value_ms: float) -> str:
    """Return a length of time with at most six digits: `100 ms` below a second, `12 s` from there on."""
    number, unit = (value_ms, "ms") if abs(value_ms) < 1000 else (value_ms / 1000, "s")
    return f"{format_rounded(number, 6)} {unit}"


def format_duration_us(value_us: float) -> str:
    """Return a latency with at most three digits below 1000 s: `820 us`, `12.3 ms`, `4.56 s`, `49950 s`."""
    if value_us >= 1e9:
        return f"{value_us / 1e6:.0f} s"
    for scale, unit in ((1e6, "s"), (1e3, "ms")):
        if value_us >= scale:
            return f"{value_us / scale:.3g} {unit}"
    return f"{value_us:.0f} us"


def format_duration_s(value_s: int) -> str:
    """Return a length of time in words: `40 seconds`, `25 minutes`, `7.5 hours`, `12 days`."""
    for name, length_s in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if value_s >= 2 * length_s:
            return f"{float(f'{value_s / length_s:.2g}'):g} {name}"
    return format_count(value_s, "second")


def format_count(count: int, noun: str, *, separator: str = "") -> str:
    """Return a number of things, such as `1 entity` or, with a comma as separator, `1,200 clients`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:{separator}} {noun if count == 1 else plural}"


def format_share(share: float | None) -> str:
    """Return a share of a limit, such as `87%`, None as an empty text."""
    return "" if share is None else f"{share * 100:.0f}%"


def format_throttle_time(throttle_ms: float | None) -> str:
    """Return a throttle time, such as `1200 ms`, None as an empty text."""
    return "" if throttle_ms is None else f"{format_number(round(throttle_ms))} ms"


def format_quota_value(key: QuotaKey | None, value: float) -> str:
    """Return a stored value without its unit, with `unlimited (explicit)` for the key's largest value."""
    if key is not None and value >= key.unlimited:
        return "unlimited (explicit)"
    return format_number(value)


def format_quota(key_name: str, value: float | None) -> str:
    """Return a stored value: `10 MiB/s`, `50%`, `5/s`, `unlimited (explicit)`, or `not set` for None."""
    if value is None:
        return "not set"
    key = STORED_KEYS.get(key_name) or MEASURED_KEYS.get(key_name)
    if key is None:
        return format_number(value)
    if value >= key.unlimited:
        return format_quota_value(key, value)
    if key.unit is Unit.BYTES_PER_SECOND:
        return format_byte_rate(value)
    return format_number(value) + ("%" if key.unit is Unit.PERCENT else "/s")


def format_limit(key_name: str, limit: float | None) -> str:
    """Return a limit for a column, where a stored "unlimited" reads like no limit."""
    return "unlimited" if limit is None or limit >= MEASURED_KEYS[key_name].unlimited else format_quota(key_name, limit)


def format_rate(key_name: str, rate: float) -> str:
    """Return a measured rate, of anything but bytes to three digits: `10 MiB/s`, `12.3%`, `4.1/s`."""
    if MEASURED_KEYS[key_name].unit is Unit.BYTES_PER_SECOND:
        return format_byte_rate(rate)
    return format_quota(key_name, float(f"{rate:.3g}"))


def format_typed_rate(quota_type: str, value: float | None) -> str:
    """Return a rate or limit of a quota type by its name: `1.5 MB/s`, `12%`, `3/s`, None as an empty text."""
    if value is None:
        return ""
    key_name = QuotaType(quota_type).key.name
    return format_quota(key_name, value if value >= 1000 else float(f"{value:.4g}"))


def format_axis_value(value: float, unit: str) -> str:
    """Return a value for an axis or a legend with three or four digits, bytes with a prefix."""
    if unit in (BYTES, BYTES_PER_SECOND):
        return format_bytes(value) + unit.removeprefix(BYTES)
    rounded = float(f"{value:.4g}")
    return f"{rounded:.4g}" if abs(rounded) >= 1e6 else format_number(rounded)


def format_value_with_unit(value: float, unit: str) -> str:
    """Return a value as `format_axis_value` does, with its unit where the prefix does not show it."""
    text = format_axis_value(value, unit)
    return text if names_itself(unit) else f"{text} {unit}"


def names_itself(unit: str) -> bool:
    """Return whether the text of a value of this unit shows the unit, as that of bytes does."""
    return unit in (BYTES, BYTES_PER_SECOND)
