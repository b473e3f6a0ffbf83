"""The order of Java's hash maps, which decides the error that Kafka reports first.

**Source:** `java.lang.String.hashCode` and `java.util.HashMap` (JDK 17).
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeVar

_Key = TypeVar("_Key", str, str | None)
_Value = TypeVar("_Value")
_FULL = 0.75


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
