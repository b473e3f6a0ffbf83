"""Java behaviour that Python lacks: texts of doubles, strings from bytes, order of hash maps, property files.

Kafka's figures and texts depend on these to the last digit. `double_text` writes the digits of Java 17. They always
read back as the same double, but sometimes include one more than needed (2^-44 ends in one digit too many), so `repr`
would differ. Text from outside comes in under one rule, by which anything that is not valid UTF-8 is U+FFFD: a name
that is read differently in two places is two clients, and a lone surrogate can't be written anywhere. The order of a
hash map decides the error that Kafka reports first.

**Source:** `java.lang.Double.toString` and `parseDouble` as of JDK 17 (free-format digit generation after Steele and
White, with an estimated decimal exponent and margins compared in 64 bits where they fit); `new String(bytes, UTF_8)`,
which a broker uses for client-ids (`RequestHeader.parse`); `String.hashCode`, `HashMap` and `Properties.load`.
"""

import math
import re
import sys
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.errors import InvalidQuotaError

_TRIMMED = "".join(map(chr, range(0x21)))  # what Java's String.trim cuts off
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_NAMED = re.compile(r"[+-]?(?:NaN|Infinity)")

_MANTISSA_BITS = sys.float_info.mant_dig
_SMALLEST_EXPONENT = sys.float_info.min_exp - _MANTISSA_BITS
_PLAIN_LOW, _PLAIN_HIGH = -3, 7
"""Figures below 10^-3 and from 10^7 on are written with an exponent."""


def parse_double(text: str) -> float:
    """Return the double that `Double.parseDouble` reads from a text: `1e3`, `5.`, `1d`, `0x1p3`, `NaN`.

    Blanks around the text are ignored.

    Raises:
        InvalidQuotaError: Anything else, such as `1_000`, `0x10`, `inf` or an empty text.
    """
    trimmed = text.strip(_TRIMMED)
    if match := _DECIMAL.fullmatch(trimmed):
        return float(match[1])
    if match := _HEXADECIMAL.fullmatch(trimmed):
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return -math.inf if trimmed.startswith("-") else math.inf
    if _NAMED.fullmatch(trimmed):
        return float(trimmed)
    raise InvalidQuotaError(f"not a number: {text!r}")


def double_text(value: float) -> str:
    """Return a double as `Double.toString` writes it: `100.0`, `1.0E7`, `1.0E-4`, `NaN`, `-Infinity`."""
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if math.isinf(value):
        return f"{sign}Infinity"
    digits, point = _digits(abs(value)) if value else ("0", 1)
    if 0 < point <= _PLAIN_HIGH:
        padded = digits.ljust(point, "0")
        return f"{sign}{padded[:point]}.{padded[point:] or '0'}"
    if _PLAIN_LOW < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _digits(value: float) -> tuple[str, int]:
    """Return the significant digits of a positive double, and the number of them before the decimal point."""
    if value < 2**63 and value == int(value):
        return _whole_digits(int(value))
    return _generated_digits(_scaled(value))


def _whole_digits(value: int) -> tuple[str, int]:
    """Return the digits of a whole number, rounded to what the double can distinguish."""
    beyond = value.bit_length() - 1 - _MANTISSA_BITS - 1
    dropped = len(str(1 << beyond)) - 1 if beyond > 1 else 0
    kept = str((value + 10**dropped // 2) // 10**dropped)
    return kept.rstrip("0"), len(kept) + dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scaled:
    """A double as `value / unit * 10**power`, and the margin within which its digits may end, all exact."""

    value: int
    unit: int
    margin: int
    power: int
    width: int
    """The bits of Java's figures, 32 or 64 with overflow; 0 for unbounded."""


def _scaled(value: float) -> _Scaled:
    """Return the scaled form of a positive double, its power of ten estimated (at most one too high)."""
    fraction, exponent = math.frexp(value)
    power = math.floor((fraction * 2 - 1.5) * 0.289529654 + 0.176091259 + (exponent - 1) * 0.301029995663981)
    mantissa = int(math.ldexp(fraction, _MANTISSA_BITS))
    bits = _MANTISSA_BITS - ((mantissa & -mantissa).bit_length() - 1)
    precision = min(_MANTISSA_BITS, exponent - _SMALLEST_EXPONENT)  # fewer bits where the double is subnormal
    fives, unit_fives = max(0, -power), max(0, power)
    # Powers of two, counted from the last bit of the value; a power of two has the smaller neighbour closer by.
    twos, unit_twos = fives + max(0, exponent - bits), unit_fives + max(0, bits - exponent)
    margin_twos = twos + bits - 1 - precision - (bits == 1)
    common = min(twos, unit_twos, margin_twos)
    twos, unit_twos, margin_twos = twos - common, unit_twos - common, margin_twos - common
    widest = max(bits + twos + _bits_of_5(fives), unit_twos + 1 + _bits_of_5(unit_fives + 1))
    return _Scaled(
        value=(mantissa >> (_MANTISSA_BITS - bits)) * 5**fives << twos,
        unit=5**unit_fives << unit_twos,
        margin=5**fives << margin_twos,
        power=power,
        width=32 if widest < 32 else 64 if widest < 64 else 0,
    )


def _bits_of_5(power: int) -> int:
    """Return Java's bit count of a power of five: exact while it fits 64 bits, then three for each factor."""
    if power == 0:
        return 0
    return (5**power).bit_length() if power < 27 else 3 * power


def _signed(value: int, width: int) -> int:
    """Return the value after an overflow of `width` bits, or the value itself for a width of 0."""
    half = 1 << width >> 1
    return (value + half) % (2 * half) - half if width else value


def _generated_digits(number: _Scaled) -> tuple[str, int]:
    value, margin, power, width = number.value, number.margin, number.power, number.width
    ten_units = number.unit * 10
    digits: list[int] = []
    first = True
    low = high = False
    while first or not (low or high):
        digit, rest = divmod(value, number.unit)
        value, margin = rest * 10, _signed(margin * 10, width)
        low = value < margin
        high = _signed(value + margin, width) >= ten_units + (width > 0)  # a border counts where nothing overflows
        if margin <= 0 and not first:
            low = high = True
        if first and digit == 0 and not high:
            power -= 1  # the estimate was one too high
        else:
            digits.append(digit)
        if first and not _PLAIN_LOW <= power <= _PLAIN_HIGH:
            low = high = False  # with an exponent, a second digit is looked for
        first = False
    nearer = _signed(2 * value, width) - ten_units
    text = "".join(map(str, digits))
    if high and (not low or _signed(nearer, width) > 0 or (nearer == 0 and digits[-1] % 2)):
        raised = str(int(text) + 1)
        return (raised, power + 1) if len(raised) == len(text) else (raised[:-1], power + 2)
    return text, power + 1


_REPLACEMENT: Final = "\ufffd"
_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def decode_utf8(data: bytes) -> str:
    """Return the text of some bytes as Java reads them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        # Java replaces an encoded surrogate once, Python each of its bytes.
        return _ENCODED_SURROGATE.sub(_REPLACEMENT.encode(), data).decode("utf-8", "replace")


def well_formed(text: str) -> str:
    """Return a text without surrogates, which JSON and command lines can bring in.

    Those that Python makes of bytes it can't decode are read as these bytes, all others are replaced.
    """
    if text.isascii():
        return text
    try:
        return decode_utf8(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return _SURROGATE.sub(_REPLACEMENT, text)


_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_KEY_END = re.compile(r"(?<!\\)(?:\\\\)*(?P<end>[=:\s])")
_ESCAPE = re.compile(r"\\(?:u(?P<code>[0-9A-Fa-f]{4})|(?P<letter>.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Return every key of the file with its value, in the order of the file.

    **Source:** `java.util.Properties.load`, Java 17.
    """
    result: dict[str, str] = {}
    for key, value in property_pairs(text):
        result.pop(key, None)
        result[key] = value
    return result


def property_pairs(text: str) -> list[tuple[str, str]]:
    """Return every key with its value as often as it occurs, for callers that report repeated keys."""
    return [_key_and_value(line) for line in _logical_lines(text)]


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending = ""
    for physical in re.split(r"\r\n|\r|\n", text):
        stripped = physical.lstrip(" \t\f")
        if not pending and (not stripped or stripped[0] in "#!"):
            continue
        pending += stripped
        if _CONTINUED.search(pending):
            pending = pending[:-1]
            continue
        lines.append(pending)
        pending = ""
    return [*lines, pending] if pending else lines


def _key_and_value(line: str) -> tuple[str, str]:
    match = _KEY_END.search(line)
    if match is None:
        return _unescape(line), ""
    end = match.start("end")
    value = line[end:].lstrip(" \t\f")
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(" \t\f")
    return _unescape(line[:end]), _unescape(value)


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        return chr(int(match["code"], 16)) if match["code"] else _LETTERS.get(match["letter"], match["letter"])

    return _ESCAPE.sub(plain, text)
