"""Rows of the ingested tables as parsers produce them, in the order of the declared columns."""

from typing import NamedTuple


class BadLineError(Exception):
    """The reason why a line can't be read, in words for the quarantine.

    The reader adds where the line is.
    """


AMOUNT_LIMIT = 2**62
"""Upper bound of figures: no broker counts that far, and columns could not hold sums of larger ones."""


_SHOWN_LETTERS = 4096
LAST_MS = 253_402_300_799_999
"""The end of the year 9999: later times have no date."""


class EventRow(NamedTuple):
    """A row of events, whose day follows from `ts_ms`."""

    cluster: str
    broker_id: int
    ts_ms: int
    user: str
    client_id: str
    ip: str
    quota_type: str
    bytes: int
    thread_ms: float | None
    mutations: int
    throttle_ms: int
    api_key: int
    is_exempt: bool
    is_estimated: bool
    is_thread_estimated: bool
    connection: str
    src_file: str
    src_offset: int


class QuarantineRow(NamedTuple):
    """A row of quarantine."""

    raw: str
    reason: str
    src_file: str
    line_no: int
    """The line's number in the file, from 1."""


class MetricRow(NamedTuple):
    """A row of metrics."""

    ts_ms: int
    cluster: str
    broker: str
    quota_type: str
    user: str
    client_id: str
    metric: str
    value: float
    src_file: str


class ClientThrottleRow(NamedTuple):
    """A row of client_throttle."""

    ts_ms: int
    cluster: str
    client_id: str
    broker: str
    throttle_ms: float
    max_throttle_ms: float
    samples: int | None
    source: str
    src_file: str


def shown_text(line: bytes) -> str:
    """Return the beginning of a line for the quarantine, with escapes for bytes that are no UTF-8."""
    return line[: 4 * _SHOWN_LETTERS].decode("utf-8", "backslashreplace")[:_SHOWN_LETTERS]
