"""Strings as Java has them: read from bytes, and ordered by a hash map.

Text from outside comes in under one rule, by which anything that is not valid UTF-8 is U+FFFD. A name that is read
differently in two places is two clients, and a lone surrogate can't be written anywhere. The order of a hash map
decides the error that Kafka reports first.

**Source:** `new String(bytes, UTF_8)`, which a broker uses for client-ids (`RequestHeader.parse`),
`java.lang.String.hashCode` and `java.util.HashMap` (JDK 17).
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeVar

_REPLACEMENT: Final = "\ufffd"
_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_Key = TypeVar("_Key", str, str | None)
_Value = TypeVar("_Value")
_FULL = 0.75


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


@lru_cache(maxsize=1024)  # the same few keys and types come again and again
def hash_code(text: str | None) -> int:
    """Return the hash of a text as an unsigned 32-bit figure, and 0 for None."""
    units = (text or "").encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8) + low) & 0xFFFFFFFF
    return code


def as_hash_map(items: Iterable[tuple[_Key, _Value]], expected: int) -> Mapping[_Key, _Value]:
    """Return the items in the order of a `new HashMap<>(expected)`, with the last value of each key."""
    latest = dict(items)
    if len(latest) < 2:
        return latest
    slots = 1
    while slots < expected or len(latest) > int(slots * _FULL):
        slots *= 2
    return dict(sorted(latest.items(), key=lambda item: _spread(hash_code(item[0])) % slots))


def _spread(code: int) -> int:
    return code ^ code >> 16
