"""One pass over lines of the daemon's event log in machine code: the figures of each line, and which lines are odd.

Contract: a line is taken only if `formats.event_log` gives the same event for it. Odd are lines that the daemon does
not write (`json_scan`), those with a field twice or without one that is needed, and figures out of range. The caller
hands them to that parser.
"""

from typing import Any, Final

import numpy as np

from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.json_scan import (
    CLOSE,
    COMMA,
    FALSE,
    NULL,
    OPEN,
    QUOTE,
    TRUE,
    N,
    T,
    is_text,
    read_decimal,
    read_key,
    read_literal,
    read_string,
    read_whole,
    skip_value,
    text_number,
)

TEXTS: Final = 3
CLUSTER, USER, CLIENT_ID = range(TEXTS)
"""Texts of a line, each by its number among the different ones of its kind."""
BROKER_ID, TS_MS, QUOTA_TYPE, BYTES, MUTATIONS, THROTTLE_MS, IS_EXEMPT = range(TEXTS, TEXTS + 7)
FIGURES: Final = TEXTS + 7
"""Figures of a line: its texts, the broker, -1 if unknown, the place of its type in `QUOTA_TYPES`, its charge."""
QUOTA_TYPES: Final = tuple(each.value for each in QuotaType)

_REQUEST: Final = QUOTA_TYPES.index(QuotaType.REQUEST.value)
_TYPE_WIDTH: Final = max(map(len, QUOTA_TYPES))
_TYPE_LENGTHS: Final = np.array([len(each) for each in QUOTA_TYPES])
_TYPE_TEXTS: Final = np.array([list(each.ljust(_TYPE_WIDTH).encode()) for each in QUOTA_TYPES], dtype=np.uint8)
_FIELDS: Final = (
    *("v", "ts_ms", "cluster", "broker_id", "connection", "user", "client_id", "ip", "quota_type", "api_key"),
    *("bytes", "thread_ms", "mutations", "throttle_ms", "is_exempt"),
)
"""Names in the order in which the daemon writes them."""
_NAME_WIDTH: Final = max(map(len, _FIELDS))
_NAME_LENGTHS: Final = np.array([len(each) for each in _FIELDS])
_NAMES: Final = np.array([list(each.ljust(_NAME_WIDTH).encode()) for each in _FIELDS], dtype=np.uint8)
_MEMBERS: Final = np.array([list(f'"{each}":'.ljust(_NAME_WIDTH + 3).encode()) for each in _FIELDS], dtype=np.uint8)
"""Beginnings of members, each to be compared with in one step where it is expected."""
_V, _AT, _CLUSTER, _BROKER, _CONNECTION, _USER, _CLIENT_ID, _IP, _TYPE, _API = range(10)
_BYTES, _THREAD, _MUTATIONS, _THROTTLE, _EXEMPT = range(10, 15)
_ALL_SEEN: Final = (1 << len(_FIELDS)) - 1
_UNKNOWN: Final = len(_FIELDS)
_DIGITS: Final = 18
"""Digits of a number that surely fits a column."""
_LAST_MS: Final = 253_402_300_799_999
_INT_LIMIT: Final = 2**31 - 1
_SHORT_LIMIT: Final = 2**15


@compiled
def scan_events(
    buf: Any, ends: Any, figures: Any, threads: Any, spans: Any, slots: Any, counts: Any, odd: Any
) -> tuple[int, int]:
    """Scan lines that follow one another without a gap.

    Args:
        buf: Bytes of the lines, and a line feed after the last.
        ends: Where each line ends, after a first entry with where the first begins.
        figures: Figures by line taken, int64 of shape (`FIGURES`, lines).
        threads: Thread time in ms by line taken, NaN if the line is no charge of it.
        spans: Begin and end in `buf` of each different text, int64 of shape (`TEXTS`, lines, 2).
        slots: Numbers of texts by hash, int32 of shape (`TEXTS`, slots), -1: a power of two, at least twice the lines.
        counts: How many different texts there are, int64, 0 each.
        odd: Numbers of the odd lines, int64.

    Returns:
        The numbers of lines taken and of odd lines.
    """
    taken, odds = 0, 0
    row = np.zeros(FIGURES, np.int64)
    places = np.zeros((TEXTS, 2), np.int64)
    for line in range(ends.size - 1):
        at, thread_ms = _event(buf, ends[line], row, places)
        if at != ends[line + 1]:  # beyond it, where a cut line went on in the next
            odd[odds] = line
            odds += 1
            continue
        for place in range(TEXTS):
            start, stop = places[place, 0], places[place, 1]
            if taken > 0 and _is_same(buf, start, stop, spans[place, row[place]]):
                continue
            row[place] = text_number(buf, start, stop, spans[place], slots[place], counts[place])
            counts[place] = max(counts[place], row[place] + 1)
        for place in range(FIGURES):
            figures[place, taken] = row[place]
        threads[taken] = thread_ms if row[QUOTA_TYPE] == _REQUEST else np.nan
        taken += 1
    return taken, odds


@compiled
def _is_same(buf: Any, start: int, stop: int, span: Any) -> bool:
    """Check whether two texts are equal, as those of neighbouring lines often are."""
    if span[1] - span[0] != stop - start:
        return False
    for place in range(stop - start):  # noqa: SIM110 - compiled
        if buf[start + place] != buf[span[0] + place]:
            return False
    return True


@compiled
def _event(buf: Any, at: int, row: Any, places: Any) -> tuple[int, float]:
    """Read the JSON of a line, and return the place after it and its thread time."""
    if buf[at] != OPEN or buf[at + 1] == CLOSE:
        return -1, 0.0
    seen, thread_ms, expected = 0, 0.0, 0
    while buf[at] != CLOSE:
        field, at = _member(buf, at + 1, expected)
        if at < 0:
            return -1, 0.0
        if field == _UNKNOWN:
            at = skip_value(buf, at)
        else:
            if seen >> field & 1:
                return -1, 0.0
            seen |= 1 << field
            expected = field + 1
            if field == _THREAD:
                thread_ms, at = read_decimal(buf, at)
            elif field == _CLUSTER or field == _USER or field == _CLIENT_ID:
                start, stop, at = read_string(buf, at)
                place = CLUSTER if field == _CLUSTER else USER if field == _USER else CLIENT_ID
                places[place, 0], places[place, 1] = start, stop
            else:
                at = _value(buf, at, field, row)
        if at < 0 or (buf[at] != COMMA and buf[at] != CLOSE):
            return -1, 0.0
    return (at + 1 if seen == _ALL_SEEN else -1), thread_ms


@compiled
def _member(buf: Any, at: int, expected: int) -> tuple[int, int]:
    """Return the number of the member that begins here, and the place after its colon."""
    if expected < _UNKNOWN:
        size, place = _NAME_LENGTHS[expected] + 3, 0
        while place < size and buf[at + place] == _MEMBERS[expected, place]:
            place += 1
        if place == size:
            return expected, int(at + size)
    start, stop, at = read_key(buf, at)
    return (_field(buf, start, stop, expected) if at >= 0 else _UNKNOWN), at


@compiled
def _field(buf: Any, start: int, stop: int, expected: int) -> int:
    """Return the number of a member by its name, where most come in the order of the daemon's."""
    for step in range(_UNKNOWN):
        field = (expected + step) % _UNKNOWN
        if _NAME_LENGTHS[field] == stop - start and is_text(buf, start, stop, _NAMES[field, : stop - start]):
            return field
    return _UNKNOWN


@compiled
def _value(buf: Any, at: int, field: int, row: Any) -> int:
    """Read a value into `row` and return the place after it."""
    if field == _IP:
        return int(read_string(buf, at)[2])
    if field == _CONNECTION and buf[at] == QUOTE:
        return int(read_string(buf, at)[2])
    if field == _TYPE:
        return int(_quota_type(buf, at, row))
    if field == _EXEMPT:
        row[IS_EXEMPT] = buf[at] == T
        return int(read_literal(buf, at, TRUE if buf[at] == T else FALSE))
    if field == _BROKER and buf[at] == N:
        row[BROKER_ID] = -1
        return int(read_literal(buf, at, NULL))
    value, at = read_whole(buf, at, _DIGITS)
    if field == _V and value != 1:
        return -1
    if field == _AT:
        row[TS_MS] = value
    if field == _BROKER:
        row[BROKER_ID] = value
    elif field == _BYTES:
        row[BYTES] = value
    elif field == _MUTATIONS:
        row[MUTATIONS] = value
    elif field == _THROTTLE:
        row[THROTTLE_MS] = value
    is_too_large = (
        ((field == _BROKER or field == _MUTATIONS) and value >= _INT_LIMIT)
        or (field == _API and value >= _SHORT_LIMIT)
        or (field == _AT and value >= _LAST_MS)
    )
    return -1 if is_too_large else int(at)


@compiled
def _quota_type(buf: Any, at: int, row: Any) -> int:
    start, stop, at = read_string(buf, at)
    if at < 0:
        return -1
    for place in range(_TYPE_LENGTHS.size):
        if _TYPE_LENGTHS[place] == stop - start and is_text(buf, start, stop, _TYPE_TEXTS[place, : stop - start]):
            row[QUOTA_TYPE] = place
            return at
    return -1
