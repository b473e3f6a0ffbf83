"""One pass over lines of the daemon's event log in machine code: the figures of each line, and which lines are odd.

Contract: a line is taken only if `formats.event_log` gives the same event for it. Odd are lines that the daemon does
not write (`json_scan`), those with a field twice or without one that is needed, and figures out of range. The caller
hands them to that parser.
"""

from typing import Any, Final

import numpy as np

from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.pipeline.formats.event_log import API_LIMIT, INT_LIMIT, VERSION
from kafka_quotas.pipeline.formats.task import LAST_MS
from kafka_quotas.pipeline.ingest.json_scan import (
    DECIMAL,
    DEEPEST,
    FLAG,
    FREE,
    KEY,
    NAME,
    ODD,
    STRING,
    WHOLE,
    Member,
    Object,
    reader_of,
    take_row,
)
from kafka_quotas.pipeline.kernels.compiled import compiled

TEXTS: Final = 3
CLUSTER, USER, CLIENT_ID = range(TEXTS)
"""Texts of a line, each by its number among the different ones of its kind."""
BROKER_ID, TS_MS, QUOTA_TYPE, BYTES, MUTATIONS, THROTTLE_MS, IS_EXEMPT = range(TEXTS, TEXTS + 7)
FIGURES: Final = TEXTS + 7
"""Figures of a line: its texts, the broker, -1 if unknown, the place of its type in `QUOTA_TYPES`, its charge."""
QUOTA_TYPES: Final = tuple(each.value for each in QuotaType)

_TYPE_WIDTH: Final = max(map(len, QUOTA_TYPES))
_TYPE_LENGTHS: Final = np.array([len(each) for each in QUOTA_TYPES])
_TYPE_TEXTS: Final = np.array([list(each.ljust(_TYPE_WIDTH).encode()) for each in QUOTA_TYPES], dtype=np.uint8)
_read_event = reader_of(
    Object(
        (
            Member("v", WHOLE, KEY, below=VERSION + 1),
            Member("ts_ms", WHOLE, FREE + TS_MS, below=LAST_MS),
            Member("cluster", STRING, CLUSTER),
            Member("broker_id", WHOLE, FREE + BROKER_ID, below=INT_LIMIT, is_nullable=True),
            Member("connection", NAME),
            Member("user", STRING, USER),
            Member("client_id", STRING, CLIENT_ID),
            Member("ip", STRING, TEXTS),
            Member("quota_type", STRING, TEXTS + 1),
            Member("api_key", WHOLE, FREE, below=API_LIMIT),
            Member("bytes", WHOLE, FREE + BYTES),
            Member("thread_ms", DECIMAL),
            Member("mutations", WHOLE, FREE + MUTATIONS, below=INT_LIMIT),
            Member("throttle_ms", WHOLE, FREE + THROTTLE_MS),
            Member("is_exempt", FLAG, FREE + IS_EXEMPT),
        )
    )
)


@compiled
def scan_events(
    buf: Any, ends: Any, kinds: Any, figures: Any, threads: Any, spans: Any, slots: Any, counts: Any
) -> int:
    """Scan lines that follow one another without a gap.

    Thread time is that of each line, charged or not.
    """
    taken = 0
    row = np.zeros(FIGURES, np.int64)
    numbers, reals = np.zeros(FREE + FIGURES, np.int64), np.zeros(1)
    places = np.zeros((TEXTS + 2, 2), np.int64)
    outer = np.empty((DEEPEST, 4), np.int64)
    for line in range(ends.size - 1):
        at = _read_event(buf, ends[line], numbers, reals, places, outer)
        quota_type = _quota_type(buf, places[TEXTS + 1, 0], places[TEXTS + 1, 1]) if at == ends[line + 1] else -1
        if quota_type < 0 or numbers[KEY] != VERSION:  # or beyond it, where a cut line went on in the next
            kinds[line] = ODD
            continue
        numbers[FREE + QUOTA_TYPE] = quota_type
        for place in range(TEXTS, FIGURES):
            row[place] = numbers[FREE + place]
        take_row(buf, row, places, figures, spans, slots, counts, taken)
        threads[taken] = reals[0]
        taken += 1
    return taken


@compiled
def _quota_type(buf: Any, start: int, stop: int) -> int:
    """Return the place of a text in `QUOTA_TYPES`, -1 for another."""
    for number in range(_TYPE_LENGTHS.size):
        size, place = _TYPE_LENGTHS[number], 0
        while place < size and buf[start + place] == _TYPE_TEXTS[number, place]:
            place += 1
        if place == size == stop - start:
            return number
    return -1
