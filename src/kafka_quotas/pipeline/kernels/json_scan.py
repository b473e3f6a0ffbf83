"""Steps over JSON text in machine code: names, texts, numbers, and values of any kind.

Invariants: a step checks all that it passes, and refuses what brokers do not write: blanks, escapes, bytes beyond
ASCII, exponents, figures of more than 12 digits. It returns -1 as the place after what it refuses. The bytes end with a
line feed. No step passes over one, which is why no step compares with the end.
"""

from typing import Any, Final

import numpy as np

from kafka_quotas.pipeline.kernels.compiled import compiled

NEWLINE, QUOTE, COLON, COMMA, MINUS, POINT = (ord(each) for each in '\n":,-.')
OPEN, CLOSE, OPEN_LIST, CLOSE_LIST = (ord(each) for each in "{}[]")
ZERO, NINE, T, F, N = (ord(each) for each in "09tfn")


def text(name: str) -> Any:
    """Return the bytes of a name, as `is_text` takes them."""
    return np.frombuffer(name.encode(), dtype=np.uint8)


TRUE, FALSE, NULL = text("true"), text("false"), text("null")
_PLAIN: Final = np.array([0x20 <= byte < 0x80 and byte not in b'"\\' for byte in range(256)], dtype=np.bool_)
_POWERS: Final = np.array([10.0**exponent for exponent in range(13)])
_DIGITS: Final = 12
_LONGEST_NUMBER: Final = 18
_DEEPEST: Final = 60
_FNV_PRIME: Final = 1_099_511_628_211


@compiled
def is_text(buf: Any, start: int, stop: int, name: Any) -> bool:
    """Check whether the bytes from `start` on and before `stop` are those of a name."""
    if stop - start != name.size:
        return False
    for place in range(name.size):  # noqa: SIM110 - compiled
        if buf[start + place] != name[place]:
            return False
    return True


@compiled
def _string_end(buf: Any, at: int) -> int:
    """Return where the closing quote of a text is, from its first byte on."""
    while _PLAIN[buf[at]]:
        at += 1
    return at if buf[at] == QUOTE else -1


@compiled
def read_string(buf: Any, at: int) -> tuple[int, int, int]:
    """Return the begin and end of a text, and the place after its quote."""
    if buf[at] != QUOTE:
        return 0, 0, -1
    stop = _string_end(buf, at + 1)
    return at + 1, stop, stop + 1 if stop >= 0 else -1


@compiled
def read_key(buf: Any, at: int) -> tuple[int, int, int]:
    """Return the begin and end of a member's name, and the place after its colon."""
    start, stop, at = read_string(buf, at)
    if at < 0 or buf[at] != COLON:
        return 0, 0, -1
    return start, stop, at + 1


@compiled
def read_literal(buf: Any, at: int, name: Any) -> int:
    """Return the place after the bytes of a name."""
    for place in range(name.size):
        if buf[at + place] != name[place]:
            return -1
    return at + int(name.size)


@compiled
def read_optional_string(buf: Any, at: int) -> tuple[int, int, int]:
    """Return the begin and end of a text, equal ones for null, and the place after it."""
    if buf[at] == N:
        return at, at, read_literal(buf, at, NULL)
    return read_string(buf, at)  # type: ignore[no-any-return]


@compiled
def read_whole(buf: Any, at: int, digits: int = _DIGITS) -> tuple[int, int]:
    """Return a whole number from 0 and the place after it, if it has at most `digits` digits."""
    first, value = at, 0
    while ZERO <= buf[at] <= NINE:
        value = value * 10 + (buf[at] - ZERO)
        at += 1
        if at - first > digits:
            return 0, -1
    if at == first or (buf[first] == ZERO and at > first + 1) or (buf[at] != COMMA and buf[at] != CLOSE):
        return 0, -1
    return value, at


@compiled
def read_decimal(buf: Any, at: int) -> tuple[float, int]:
    """Return a number from 0 and the place after it, rounded as `float` rounds it."""
    first, point, value = at, -1, 0
    while (ZERO <= buf[at] <= NINE) or (buf[at] == POINT and point < 0 and at > first):
        if buf[at] == POINT:
            point = at
        else:
            value = value * 10 + (buf[at] - ZERO)
        at += 1
        if at - first > _DIGITS:
            return 0.0, -1
    has_zero = buf[first] == ZERO and at > first + 1 and point != first + 1
    if at == first or point == at - 1 or has_zero or (buf[at] != COMMA and buf[at] != CLOSE):
        return 0.0, -1
    # both are exact below 2^53, and so their quotient is the nearest float
    return (value / _POWERS[at - point - 1] if point >= 0 else float(value)), at


@compiled
def _number_end(buf: Any, at: int) -> int:
    first = at
    if buf[at] == MINUS:
        at += 1
    digits = at
    while ZERO <= buf[at] <= NINE:
        at += 1
    if at == digits or (buf[digits] == ZERO and at > digits + 1):
        return -1
    if buf[at] == POINT:
        point = at
        at += 1
        while ZERO <= buf[at] <= NINE:
            at += 1
        if at == point + 1:
            return -1
    if at - first > _LONGEST_NUMBER:  # beyond 64 bits JSON libraries differ
        return -1
    return at


@compiled
def skip_value(buf: Any, at: int) -> int:
    """Return the place after a value of any kind."""
    depth, kinds = 0, 0  # a bit per level, 1 for an object
    while True:
        byte = buf[at]
        if byte == QUOTE:
            at = _string_end(buf, at + 1) + 1
            if at == 0:
                return -1
        elif byte == OPEN or byte == OPEN_LIST:
            is_object = byte == OPEN
            at += 1
            if buf[at] == (CLOSE if is_object else CLOSE_LIST):
                at += 1
            else:
                depth += 1
                if depth > _DEEPEST:
                    return -1
                kinds = kinds << 1 | is_object
                if is_object:
                    _, _, at = read_key(buf, at)
                    if at < 0:
                        return -1
                continue
        elif byte == T or byte == F or byte == N:
            at = read_literal(buf, at, TRUE if byte == T else FALSE if byte == F else NULL)
        else:
            at = _number_end(buf, at)
        if at < 0:
            return -1
        while depth > 0 and buf[at] == (CLOSE if kinds & 1 else CLOSE_LIST):
            at += 1
            kinds >>= 1
            depth -= 1
        if depth == 0:
            return at
        if buf[at] != COMMA:
            return -1
        at += 1
        if kinds & 1:
            _, _, at = read_key(buf, at)
            if at < 0:
                return -1


@compiled
def text_number(buf: Any, start: int, stop: int, spans: Any, slots: Any, texts: int) -> int:
    """Return the number of a text among the different ones, `texts` for a new one, which is added.

    Args:
        buf: The bytes.
        start: Where the text begins.
        stop: Where it ends.
        spans: Begin and end in `buf` of each different text, int64 of shape (texts, 2).
        slots: Numbers of texts by hash, int32, -1 if free: a power of two, at least twice the texts.
        texts: How many different ones there are.
    """
    code = 1469598103934665603
    for place in range(start, stop):
        code = (code ^ buf[place]) * _FNV_PRIME
    mask = slots.size - 1
    slot = (code ^ (code >> 29)) & mask
    while slots[slot] >= 0:
        number = slots[slot]
        first = spans[number, 0]
        if spans[number, 1] - first == stop - start:
            same = 0
            while same < stop - start and buf[first + same] == buf[start + same]:
                same += 1
            if same == stop - start:
                return int(number)
        slot = (slot + 1) & mask
    slots[slot] = texts
    spans[texts, 0], spans[texts, 1] = start, stop
    return texts
