"""One pass over the bytes of request-log lines, in machine code: the figures of each line, and which lines are odd.

Contract: a line is taken only if `formats.request_log` gives the same event for it. The scan checks the whole JSON,
and calls odd what brokers do not write (`json_scan`), a field twice, a body before its header, and the APIs whose
charge depends on several topics. The caller hands odd lines to that parser.

Invariant: the bytes end with a line feed.
"""

from typing import Any, Final

import numpy as np

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.pipeline.formats.request_charge import CLASSIC_HEADER_BYTES, MUTATION_APIS
from kafka_quotas.pipeline.formats.request_log import BROKER_APIS
from kafka_quotas.pipeline.formats.task import AMOUNT_LIMIT, REQUEST_MARK
from kafka_quotas.pipeline.ingest.charge_scan import (
    CHARGE_FIGURES,
    read_fetch_request,
    read_fetch_response,
    read_produce_request,
)
from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.json_scan import (
    CLOSE,
    COMMA,
    FALSE,
    MINUS,
    NEWLINE,
    NINE,
    OPEN,
    TRUE,
    ZERO,
    T,
    is_text,
    read_decimal,
    read_key,
    read_literal,
    read_optional_string,
    read_string,
    read_whole,
    skip_value,
    text,
    text_number,
)

TEXTS: Final = 3
CLIENT_ID, PRINCIPAL, CONNECTION = range(TEXTS)
"""Texts of a line, each by its number among the different ones."""
OFFSET, MINUTE, MS, API_KEY, SIZE, THREAD_US, THROTTLE_MS, SENDING_MS, IS_EXEMPT = range(TEXTS, TEXTS + 9)
FIGURES: Final = TEXTS + 9
"""Figures of a line: its texts, where it begins, its timestamp as local minute and ms of it, and its charge."""
TAKEN, FORWARDED, BLANK, ODD = range(4)
RESULTS: Final = 4
"""How many lines were taken, are forwarded requests, are blank, are odd."""
ZONED: Final = 2**40
"""Added to minutes whose timestamp has an offset: they are UTC, and below this they are local."""

_PRODUCE: Final = int(ApiKey.PRODUCE)
_FETCH: Final = int(ApiKey.FETCH)
_KNOWN_APIS: Final = 128
_ODD_APIS: Final = np.array(
    [key in MUTATION_APIS or key == ApiKey.SHARE_FETCH for key in range(_KNOWN_APIS)], dtype=np.bool_
)
_OF_BROKERS: Final = np.array([key in BROKER_APIS for key in range(_KNOWN_APIS)], dtype=np.bool_)
_DAYS: Final = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_SPACE, _LETTER_T, _LETTER_Z, _PLUS, _COLON, _DOT, _BRACKET, _END_BRACKET = (ord(each) for each in " TZ+:.[]")
_SENDING_LIMIT: Final = 2**31
_MARK: Final = np.frombuffer(REQUEST_MARK, dtype=np.uint8)
_IS_FORWARDED, _HEADER = text("isForwarded"), text("requestHeader")
_REQUEST, _RESPONSE = text("request"), text("response")
_CONNECTION, _PRINCIPAL = text("connection"), text("principal")
_LOCAL, _THROTTLE, _SENDING, _QUEUED = (
    text(each) for each in ("localTimeMs", "throttleTimeMs", "sendTimeMs", "responseQueueTimeMs")
)
_KEY, _VERSION, _CLIENT_ID = text("requestApiKey"), text("requestApiVersion"), text("clientId")
_HAS_FORWARDED, _HAS_HEADER, _HAS_REQUEST, _HAS_RESPONSE, _HAS_CONNECTION = 1, 2, 4, 8, 16
_HAS_PRINCIPAL, _HAS_LOCAL, _HAS_THROTTLE, _HAS_SENDING, _HAS_QUEUED = 32, 64, 128, 256, 512
_NEEDED: Final = 1023


@compiled
def count_lines(buf: Any) -> int:
    """Return the number of line feeds."""
    count = 0
    for place in range(buf.size):
        count += buf[place] == NEWLINE
    return count


@compiled
def scan_lines(
    buf: Any, at: int, end: int, figures: Any, spans: Any, slots: Any, odd: Any, results: Any
) -> tuple[int, int]:
    """Scan the lines of `buf` from `at` on and before `end`.

    Args:
        buf: Bytes that end with a line feed.
        at: Where a line begins.
        end: After the last line feed to read.
        figures: Figures by line taken, int64 of shape (`FIGURES`, lines).
        spans: Begin and end in `buf` of each different text, int64 of shape (lines times `TEXTS`, 2).
        slots: Numbers of texts by hash, int32, -1 if free: a power of two, at least twice the texts.
        odd: Begin and end of each odd line, int64 of shape (lines, 2).
        results: Counts by result, int64 of shape (`RESULTS`,).

    Returns:
        The number of different texts, and `end`.
    """
    out = np.zeros(CHARGE_FIGURES, np.int64)
    row = np.zeros(FIGURES, np.int64)
    places = np.zeros((TEXTS, 2), np.int64)
    texts = 0
    while at < end:
        start = at
        if buf[at] == NEWLINE:
            results[BLANK] += 1
            at += 1
            continue
        result, at = _line(buf, at, row, places, out)
        has_brace = False
        while buf[at] != NEWLINE:
            has_brace |= buf[at] == CLOSE  # the JSON of a line ends at its last brace
            at += 1
        if result != ODD and has_brace:
            result = ODD
        if result == ODD:
            odd[results[ODD], 0], odd[results[ODD], 1] = start, at
        elif result == TAKEN:
            taken = results[TAKEN]
            row[OFFSET] = start
            for place in range(TEXTS):
                number = text_number(buf, places[place, 0], places[place, 1], spans, slots, texts)
                texts = max(texts, number + 1)
                row[place] = number
            for place in range(FIGURES):
                figures[place, taken] = row[place]
        results[result] += 1
        at += 1
    return texts, at


@compiled
def _line(buf: Any, at: int, row: Any, places: Any, out: Any) -> tuple[int, int]:
    """Read a line into `row` and `places`, and return its result and a place after its JSON."""
    start = at
    at = _timestamp(buf, at, row)
    if at < 0:
        return ODD, start
    while buf[at] != _MARK[0] or read_literal(buf, at, _MARK) < 0:
        if buf[at] == NEWLINE:
            return ODD, start
        at += 1
    is_forwarded, at = _entry(buf, at + _MARK.size, row, places, out)
    if at < 0:
        return ODD, start
    return FORWARDED if is_forwarded else TAKEN, at


@compiled
def _two(buf: Any, at: int) -> int:
    """Return the number that two digits write, -1 for others."""
    if not (ZERO <= buf[at] <= NINE and ZERO <= buf[at + 1] <= NINE):
        return -1
    return int((buf[at] - ZERO) * 10 + (buf[at + 1] - ZERO))


@compiled
def _timestamp(buf: Any, at: int, row: Any) -> int:
    """Read `[2026-11-21 12:00:00,000]`, with an offset or not, and return the place after it."""
    for place in range(24):
        if buf[at + place] == NEWLINE:
            return -1
    century, year, month, day = _two(buf, at + 1), _two(buf, at + 3), _two(buf, at + 6), _two(buf, at + 9)
    hour, minute, second, tenth = _two(buf, at + 12), _two(buf, at + 15), _two(buf, at + 18), _two(buf, at + 21)
    if (
        buf[at] != _BRACKET
        or (buf[at + 5] != MINUS or buf[at + 8] != MINUS)
        or (buf[at + 11] != _SPACE and buf[at + 11] != _LETTER_T)
        or (buf[at + 14] != _COLON or buf[at + 17] != _COLON)
        or (buf[at + 20] != COMMA and buf[at + 20] != _DOT)
        or (century < 0 or year < 0 or hour < 0 or minute < 0 or second < 0 or tenth < 0)
        or not ZERO <= buf[at + 23] <= NINE
        or (hour > 23 or minute > 59 or second > 59)
    ):
        return -1
    year += century * 100
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= _DAYS[month - 1] + (month == 2 and is_leap):
        return -1
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400 - 719_162
    for each in range(month - 1):
        days += _DAYS[each]
    days += day - 1 + (month > 2 and is_leap)
    row[MS] = second * 1000 + tenth * 10 + (buf[at + 23] - ZERO)
    offset_minutes, at = _offset(buf, at + 24)
    row[MINUTE] = (days * 24 + hour) * 60 + minute
    if at >= 0 and offset_minutes != ZONED:
        row[MINUTE] += ZONED - offset_minutes
    return at


@compiled
def _offset(buf: Any, at: int) -> tuple[int, int]:
    """Return the offset of a timestamp in minutes, `ZONED` for none, and the place after its bracket."""
    if buf[at] == _END_BRACKET:
        return ZONED, at + 1
    if buf[at] == _LETTER_Z:
        return 0, at + 2 if buf[at + 1] == _END_BRACKET else -1
    if buf[at] != _PLUS and buf[at] != MINUS:
        return 0, -1
    is_west = buf[at] == MINUS
    hours = _two(buf, at + 1)
    at += 3 if hours >= 0 else 0
    at += hours >= 0 and buf[at] == _COLON
    minutes = _two(buf, at) if hours >= 0 else -1
    if not 0 <= hours < 24 or not 0 <= minutes < 60 or buf[at + 2] != _END_BRACKET:
        return 0, -1
    minutes += hours * 60
    return -minutes if is_west else minutes, at + 3


@compiled
def _entry(buf: Any, at: int, row: Any, places: Any, out: Any) -> tuple[bool, int]:
    """Read the JSON of a line, and return whether it was forwarded, and the place after it."""
    if buf[at] != OPEN or buf[at + 1] == CLOSE:
        return False, -1
    seen, is_forwarded, api_key, version = 0, False, -1, -1
    sending_ms, local_ms, throttle_ms, value = 0.0, 0.0, 0.0, 0.0
    while buf[at] != CLOSE:
        start, stop, at = read_key(buf, at + 1)
        if at < 0:
            return False, -1
        field = _field(buf, start, stop)
        if seen & field:
            return False, -1
        seen |= field
        if field == 0:
            at = skip_value(buf, at)
        elif field == _HAS_REQUEST or field == _HAS_RESPONSE:
            if api_key < 0:
                return False, -1
            at = _body(buf, at, field, api_key, version, row, out)
        elif field == _HAS_HEADER:
            api_key, version, at = _header(buf, at, places)
        elif field == _HAS_FORWARDED:
            is_forwarded = buf[at] == T
            at = read_literal(buf, at, TRUE if is_forwarded else FALSE)
        elif field == _HAS_CONNECTION or field == _HAS_PRINCIPAL:
            start, stop, at = read_string(buf, at)
            place = CONNECTION if field == _HAS_CONNECTION else PRINCIPAL
            places[place, 0], places[place, 1] = start, stop
        else:
            value, at = read_decimal(buf, at)
            if field == _HAS_LOCAL:
                local_ms = value
            elif field == _HAS_THROTTLE:
                throttle_ms = value
            else:
                sending_ms += value
        if at < 0 or (buf[at] != COMMA and buf[at] != CLOSE):
            return False, -1
    if seen & _NEEDED != _NEEDED:
        return False, -1
    row[API_KEY], row[THROTTLE_MS], row[SENDING_MS] = api_key, np.rint(throttle_ms), np.rint(sending_ms)
    row[THREAD_US] = np.rint(local_ms * 1000)
    if api_key == _PRODUCE:
        row[SIZE] += CLASSIC_HEADER_BYTES + places[CLIENT_ID, 1] - places[CLIENT_ID, 0]
    elif api_key != _FETCH:
        row[SIZE], row[IS_EXEMPT] = 0, _OF_BROKERS[api_key]
    if row[SENDING_MS] >= _SENDING_LIMIT or row[SIZE] >= AMOUNT_LIMIT:
        return False, -1
    return is_forwarded, at + 1


@compiled
def _field(buf: Any, start: int, stop: int) -> int:
    """Return the flag of a member of the entry, 0 for one that no event follows from."""
    length = stop - start
    if length == 7:
        return _HAS_REQUEST if is_text(buf, start, stop, _REQUEST) else 0
    if length == 8:
        return _HAS_RESPONSE if is_text(buf, start, stop, _RESPONSE) else 0
    if length == 9:
        return _HAS_PRINCIPAL if is_text(buf, start, stop, _PRINCIPAL) else 0
    if length == 10:
        if is_text(buf, start, stop, _SENDING):
            return _HAS_SENDING
        return _HAS_CONNECTION if is_text(buf, start, stop, _CONNECTION) else 0
    if length == 11:
        if is_text(buf, start, stop, _LOCAL):
            return _HAS_LOCAL
        return _HAS_FORWARDED if is_text(buf, start, stop, _IS_FORWARDED) else 0
    if is_text(buf, start, stop, _HEADER):
        return _HAS_HEADER
    if is_text(buf, start, stop, _THROTTLE):
        return _HAS_THROTTLE
    return _HAS_QUEUED if is_text(buf, start, stop, _QUEUED) else 0


@compiled
def _body(buf: Any, at: int, field: int, api_key: int, version: int, row: Any, out: Any) -> int:
    """Read a request or response with what is charged for it, and return the place after it."""
    if api_key == _PRODUCE and field == _HAS_REQUEST:
        at = read_produce_request(buf, at, version, out)
        row[SIZE], row[IS_EXEMPT] = out[0], 0
    elif api_key == _FETCH and field == _HAS_REQUEST:
        is_follower, at = read_fetch_request(buf, at)
        row[IS_EXEMPT] = is_follower
    elif api_key == _FETCH:
        at = read_fetch_response(buf, at, version, out)
        row[SIZE] = out[0]
    else:
        at = skip_value(buf, at)
    return at


@compiled
def _header(buf: Any, at: int, places: Any) -> tuple[int, int, int]:
    """Return API key and version of a request, and the place after its header."""
    if buf[at] != OPEN or buf[at + 1] == CLOSE:
        return 0, 0, -1
    api_key, version, has_client_id = -1, -1, False
    while buf[at] != CLOSE:
        start, stop, at = read_key(buf, at + 1)
        if at < 0:
            return 0, 0, -1
        if is_text(buf, start, stop, _KEY):
            if api_key >= 0:
                return 0, 0, -1
            api_key, at = read_whole(buf, at)
        elif is_text(buf, start, stop, _VERSION):
            if version >= 0:
                return 0, 0, -1
            version, at = read_whole(buf, at)
        elif is_text(buf, start, stop, _CLIENT_ID):
            if has_client_id:
                return 0, 0, -1
            has_client_id = True
            start, stop, at = read_optional_string(buf, at)
            places[CLIENT_ID, 0], places[CLIENT_ID, 1] = start, stop
        else:
            at = skip_value(buf, at)
        if at < 0 or (buf[at] != COMMA and buf[at] != CLOSE):
            return 0, 0, -1
    if not 0 <= api_key < _KNOWN_APIS or version < 0 or not has_client_id or _ODD_APIS[api_key]:
        return 0, 0, -1
    return api_key, version, at + 1
