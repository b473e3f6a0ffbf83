"""One pass over the bytes of request-log lines, in machine code: the figures of each line, and which lines are odd.

Contract: a line is taken only if `formats.request_log` gives the same event for it. The scan checks the whole JSON,
and calls odd what brokers do not write (`json_scan`), a field twice, a body before its header, and the APIs whose
charge depends on several topics. The caller hands odd lines to that parser.

Invariant: the bytes end with a line feed.
"""

from collections.abc import Callable
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.pipeline.formats.request_log import (
    BROKER_APIS,
    CLASSIC_HEADER_BYTES,
    MUTATION_APIS,
    Charged,
    Field,
    LogOrigin,
    client_ip,
    fetch_response,
    is_compact,
    produce_request,
    user_name,
)
from kafka_quotas.pipeline.formats.task import AMOUNT_LIMIT, REQUEST_MARK, BadLineError
from kafka_quotas.pipeline.formats.timestamp import LocalClock, minute_of
from kafka_quotas.pipeline.ingest.json_scan import (
    BLANK,
    CHARGED,
    CHOSEN,
    CLOSE,
    COLON,
    COMMA,
    DECIMAL,
    DEEPEST,
    FLAG,
    FORWARDED,
    FREE,
    KEY,
    KEYS,
    LIST,
    MINUS,
    NEWLINE,
    NINE,
    OBJECT,
    ODD,
    RECORDS,
    SIGN,
    STRING,
    TAKEN,
    TEXT,
    VERSION,
    VERSIONS,
    WHOLE,
    ZERO,
    Member,
    Object,
    Scan,
    read_literal,
    reader_of,
    scan_of,
    take_row,
)
from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.order import starts_of
from kafka_quotas.pipeline.tables.packed_events import PARSED_EVENTS

TEXTS: Final = 5
CLIENT_ID, PRINCIPAL, CONNECTION, MINUTE, ZONE = range(TEXTS)
"""Texts of a line, each by its number among the different ones. A timestamp has those of its minute and its offset."""
OFFSET, MS, API_KEY, SIZE, THROTTLE_MS, SENDING_MS, IS_EXEMPT = range(TEXTS, TEXTS + 7)
FIGURES: Final = TEXTS + 7
"""Figures of a line: its texts, where it begins, the ms of its minute, and its charge."""

_PRODUCE, _FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
_ODD_APIS: Final = np.array([key in MUTATION_APIS or key == ApiKey.SHARE_FETCH for key in range(KEYS)])
_OF_BROKERS: Final = np.array([key in BROKER_APIS for key in range(KEYS)])
_LETTER_Z, _PLUS, _DOT, _BRACKET, _END_BRACKET = (ord(each) for each in "Z+.[]")
_LONGEST_OFFSET: Final = len("+05:30")
_SENDING_LIMIT: Final = 2**31
_RECORDS_LIMIT: Final = 2**31
_MARK: Final = np.frombuffer(REQUEST_MARK, dtype=np.uint8)
_IS_FORWARDED, _IS_FOLLOWER, _THROTTLED_MS, _TOPICS, _ITEMS = range(FREE, FREE + 5)
_LOCAL, _THROTTLE, _SENDING, _QUEUED = range(4)
_QUOTA_TYPES: Final = pa.array([QuotaType.REQUEST.value, QuotaType.PRODUCE.value, QuotaType.FETCH.value])
_TYPE_OF_API: Final = np.zeros(128, np.int32)
_TYPE_OF_API[[ApiKey.PRODUCE, ApiKey.FETCH]] = 1, 2


def _body(api_key: int, version: int, message: Charged, *others: Member) -> Object:
    """Return a message, or an object of one, with the fields that are charged and other members."""
    members = list(others)
    for name, field in message.fields.items():
        if field is Field.RECORDS:
            members.append(Member(name, RECORDS, below=_RECORDS_LIMIT))
        elif isinstance(field, Field):
            members.append(Member(name, TEXT, is_nullable=field is Field.NULLABLE_TEXT))
        else:
            target, child = _TOPICS if name == "responses" else _ITEMS, _body(api_key, version, field)
            members.append(Member(name, LIST, target, child, is_nullable=field.is_nullable))
    has_compact = is_compact(api_key, version)
    return Object(tuple(members), message.fixed_bytes + has_compact, has_compact)


_THROTTLED: Final = Member("throttleTimeMs", WHOLE, _THROTTLED_MS)
_REPLICA: Final = Member("replicaId", SIGN, _IS_FOLLOWER)
_STATE: Final = Member("replicaState", OBJECT, 0, Object((_REPLICA,)), is_needed=False)
_FETCH_REQUEST: Final = Object((_REPLICA._replace(is_needed=False), _STATE))
_BODIES: Final = (
    {
        (key, version): _FETCH_REQUEST if key == _FETCH else _body(key, version, produce_request(version))
        for key, version in product((_PRODUCE, _FETCH), range(VERSIONS))
    },
    {(_FETCH, version): _body(_FETCH, version, fetch_response(version), _THROTTLED) for version in range(VERSIONS)},
)
"""Objects of requests and of responses, by API key and version."""
_HEADER: Final = Object(
    (
        Member("requestApiKey", WHOLE, KEY, below=KEYS),
        Member("requestApiVersion", WHOLE, VERSION, below=VERSIONS),
        Member("correlationId"),
        Member("clientId", STRING, CLIENT_ID, is_nullable=True),
        Member("requestApiKeyName"),
    )
)
_read_entry = reader_of(
    Object(
        (
            Member("isForwarded", FLAG, _IS_FORWARDED),
            Member("requestHeader", OBJECT, 0, _HEADER),
            Member("request", CHOSEN, 0),
            Member("response", CHOSEN, 1),
            Member("connection", STRING, CONNECTION),
            Member("totalTimeMs"),
            Member("requestQueueTimeMs"),
            Member("localTimeMs", DECIMAL, _LOCAL),
            Member("remoteTimeMs"),
            Member("throttleTimeMs", DECIMAL, _THROTTLE),
            Member("responseQueueTimeMs", DECIMAL, _QUEUED),
            Member("sendTimeMs", DECIMAL, _SENDING),
            Member("securityProtocol"),
            Member("principal", STRING, PRINCIPAL),
            Member("listener"),
            Member("clientInformation"),
        )
    ),
    _BODIES,
)


@compiled
def line_count(buf: Any) -> int:
    """Return the number of line feeds."""
    count = 0
    for place in range(buf.size):
        count += buf[place] == NEWLINE
    return count


@compiled
def scan_lines(buf: Any, ends: Any, kinds: Any, figures: Any, threads: Any, spans: Any, slots: Any, counts: Any) -> int:
    """Scan lines, each of which ends before a line feed, and put where into `ends`.

    Thread time is rounded to whole us.
    """
    taken, at = 0, 0
    row = np.zeros(FIGURES, np.int64)
    numbers, reals = np.empty(FREE + 5, np.int64), np.empty(4)
    outer = np.empty((DEEPEST, 4), np.int64)
    places = np.zeros((TEXTS, 2), np.int64)
    for line in range(ends.size - 1):
        row[OFFSET], kind = at, BLANK
        if buf[at] != NEWLINE:
            kind, at = _line(buf, at, row, numbers, reals, places, outer)
            has_brace = False
            while buf[at] != NEWLINE:
                has_brace |= buf[at] == CLOSE  # the JSON of a line ends at its last brace
                at += 1
            if has_brace:
                kind = ODD
        ends[line + 1], kinds[line] = at, kind
        at += 1
        if kind == TAKEN:
            take_row(buf, row, places, figures, spans, slots, counts, taken)
            threads[taken] = np.rint(reals[_LOCAL] * 1000) / 1000
            taken += 1
    return taken


@compiled
def _line(buf: Any, at: int, row: Any, numbers: Any, reals: Any, places: Any, outer: Any) -> tuple[int, int]:
    """Read a line into `row` and `places`, and return what becomes of it and a place after its JSON."""
    start = at
    at = _timestamp(buf, at, row, places)
    if at < 0:
        return ODD, start
    while buf[at] != _MARK[0] or read_literal(buf, at, _MARK) < 0:
        if buf[at] == NEWLINE:
            return ODD, start
        at += 1
    for place in range(numbers.size):
        numbers[place] = 0 if place == CHARGED else -1
    at = _read_entry(buf, at + _MARK.size, numbers, reals, places, outer)
    api_key, sending_ms = numbers[KEY], reals[_SENDING] + reals[_QUEUED]
    if at < 0 or _ODD_APIS[api_key]:
        return ODD, start
    size = numbers[CHARGED]
    if api_key == _PRODUCE:
        size += CLASSIC_HEADER_BYTES + places[CLIENT_ID, 1] - places[CLIENT_ID, 0]
    elif numbers[_TOPICS] == 0 and numbers[_THROTTLED_MS] > 0:  # the empty response to a throttled fetch
        size = 0
    row[API_KEY], row[SIZE] = api_key, size
    row[THROTTLE_MS], row[SENDING_MS] = np.rint(reals[_THROTTLE]), np.rint(sending_ms)
    row[IS_EXEMPT] = numbers[_IS_FOLLOWER] == 1 if api_key == _FETCH else _OF_BROKERS[api_key]
    if row[SENDING_MS] >= _SENDING_LIMIT or size >= AMOUNT_LIMIT:
        return ODD, start
    return FORWARDED if numbers[_IS_FORWARDED] else TAKEN, at


@compiled
def _two(buf: Any, at: int) -> int:
    """Return the number that two digits write, -1 for others."""
    if not (ZERO <= buf[at] <= NINE and ZERO <= buf[at + 1] <= NINE):
        return -1
    return int((buf[at] - ZERO) * 10 + (buf[at + 1] - ZERO))


@compiled
def _timestamp(buf: Any, at: int, row: Any, places: Any) -> int:
    """Read `[2026-11-21 12:00:00,000]`, with an offset or not, and return the place after it.

    The minute and the offset are texts, which `formats.timestamp` reads.
    """
    for place in range(24):
        if buf[at + place] == NEWLINE:
            return -1
    second, tenth, stop = _two(buf, at + 18), _two(buf, at + 21), at + 24
    if (
        (buf[at] != _BRACKET or buf[at + 17] != COLON)
        or (buf[at + 20] != COMMA and buf[at + 20] != _DOT)
        or (second < 0 or second > 59 or tenth < 0 or not ZERO <= buf[at + 23] <= NINE)
    ):
        return -1
    if buf[stop] == _LETTER_Z or buf[stop] == _PLUS or buf[stop] == MINUS:
        while buf[stop] != _END_BRACKET and buf[stop] != NEWLINE and stop < at + 24 + _LONGEST_OFFSET:
            stop += 1
    row[MS] = second * 1000 + tenth * 10 + (buf[at + 23] - ZERO)
    places[MINUTE, 0], places[MINUTE, 1] = at + 1, at + 17
    places[ZONE, 0], places[ZONE, 1] = at + 24, stop
    return stop + 1 if buf[stop] == _END_BRACKET else -1


class ScannedLines(NamedTuple):
    """The result of a scan."""

    events: pa.RecordBatch
    """Events of the lines that were taken, by the schema `PARSED_EVENTS`."""
    odd: tuple[tuple[int, int, bytes], ...]
    """Lines that are left to the line's parser, in order: their number from 1, where they begin, and their bytes."""
    lines: int
    forwarded: int
    """Requests that the forwarding broker logs as well."""
    blank: int
    """Lines without a byte."""


def scan_request_lines(
    content: bytes | memoryview, *, offset: int, clock: LocalClock, origin: LogOrigin
) -> ScannedLines:
    """Scan lines of a request log, each with its line feed, given the offset of the first one in its file.

    The clock is that of timestamps without an offset, and follows the lines.
    """
    buf = np.frombuffer(content, np.uint8)
    buf.flags.writeable = False  # machine code is compiled for each kind of array, in some twenty seconds
    ends = np.full(line_count(buf) + 1, -1, np.int64)
    scan = scan_of(scan_lines, buf, ends, texts=TEXTS, figures=FIGURES)
    kinds = scan.kinds
    try:
        events = _events(scan, offset=offset, clock=clock, origin=origin)
    except BadLineError:  # of a timestamp: the parser finds the line
        events = pa.RecordBatch.from_pylist([], PARSED_EVENTS)
        kinds = np.where(kinds == BLANK, BLANK, ODD)
    odd = np.flatnonzero(kinds == ODD)
    bounds = zip(odd.tolist(), (ends[odd] + 1).tolist(), ends[odd + 1].tolist(), strict=True)
    return ScannedLines(
        events=events,
        odd=tuple((line + 1, start, bytes(content[start:stop])) for line, start, stop in bounds),
        lines=kinds.size,
        forwarded=int((kinds == FORWARDED).sum()),
        blank=int((kinds == BLANK).sum()),
    )


def _events(scan: Scan, *, offset: int, clock: LocalClock, origin: LogOrigin) -> pa.RecordBatch:
    figures, count = scan.figures, scan.figures.shape[1]
    ts_ms = pa.array(_utc_minutes_ms(scan, clock) + figures[MS] - figures[SENDING_MS])
    quota_types = _TYPE_OF_API[figures[API_KEY]]
    columns = {
        "cluster": origin.cluster,
        "broker_id": origin.broker_id,
        "ts_ms": ts_ms,
        "user": _texts(scan, PRINCIPAL, user_name),
        "client_id": _texts(scan, CLIENT_ID, str),
        "ip": _texts(scan, CONNECTION, client_ip),
        "quota_type": _QUOTA_TYPES.take(pa.array(quota_types)),
        "bytes": figures[SIZE],
        "thread_ms": scan.reals,
        "mutations": 0,
        "throttle_ms": figures[THROTTLE_MS],
        "api_key": figures[API_KEY].astype(np.int16),
        "is_exempt": figures[IS_EXEMPT].astype(np.bool_),
        "is_estimated": quota_types > 0,
        "is_thread_estimated": True,
        "connection": _texts(scan, CONNECTION, str),
        "src_file": origin.src_file,
        "src_offset": figures[OFFSET] + offset,
    }
    arrays = [
        pa.repeat(pa.scalar(value, each.type), count)
        if isinstance(value := columns[each.name], int | str)
        else pa.array(value, each.type)
        for each in PARSED_EVENTS
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=PARSED_EVENTS)


def _utc_minutes_ms(scan: Scan, clock: LocalClock) -> NDArray[np.int64]:
    """Return when each line's minute begins, in ms since 1970 UTC."""
    zones = scan.texts[ZONE]
    minutes: NDArray[np.int64] = scan.figures[MINUTE] * len(zones) + scan.figures[ZONE]
    if minutes.size == 0:
        return minutes
    # the clock sees each change of minute in the order of the log
    firsts = starts_of(minutes)
    written = [(scan.texts[MINUTE][each // len(zones)], zones[each % len(zones)]) for each in minutes[firsts].tolist()]
    for each in set(written):
        minute_of(*each)  # which finds times that are none before the clock sees others
    found = [clock.minute_ms(*each) for each in written]
    minutes_ms: NDArray[np.int64] = np.repeat(np.array(found, np.int64), np.diff(np.append(firsts, minutes.size)))
    return minutes_ms


def _texts(scan: Scan, kind: int, read: Callable[[str], str]) -> pa.Array:
    """Return a column of texts, each read once."""
    values = pa.array([read(str(each, "ascii")) for each in scan.texts[kind]], pa.string())
    return values.take(pa.array(scan.figures[kind]))
