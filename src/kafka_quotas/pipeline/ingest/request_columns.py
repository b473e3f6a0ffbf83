"""The lines of a request log as columns of events, and the lines that the line's parser has to read.

The function behind both engines: it takes the bytes of lines, from a file or from a column of Spark's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.formats.request_log import LocalClock, LogOrigin, client_ip, user_name
from kafka_quotas.pipeline.ingest.ingested_tables import PARSED_EVENTS
from kafka_quotas.pipeline.ingest.request_scan import (
    API_KEY,
    BLANK,
    CLIENT_ID,
    CONNECTION,
    FIGURES,
    FORWARDED,
    IS_EXEMPT,
    MINUTE,
    MS,
    ODD,
    OFFSET,
    PRINCIPAL,
    RESULTS,
    SENDING_MS,
    SIZE,
    TAKEN,
    TEXTS,
    THREAD_US,
    THROTTLE_MS,
    ZONED,
    count_lines,
    scan_lines,
)

_Integers = npt.NDArray[np.int64]
_MINUTE_MS: Final = 60_000
_OFFSETS: Final = ZONED // 2
"""Minutes from here on are UTC."""
_QUOTA_TYPES: Final = pa.array([QuotaType.REQUEST.value, QuotaType.PRODUCE.value, QuotaType.FETCH.value])
_TYPE_OF_API: Final = np.zeros(128, np.int32)
_TYPE_OF_API[[ApiKey.PRODUCE, ApiKey.FETCH]] = 1, 2


class OddLine(NamedTuple):
    """A line that the scan leaves to the line's parser, and where it is in the scanned bytes."""

    start: int
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedLines:
    """The result of a scan."""

    events: pa.RecordBatch
    """Events of the lines that were taken, by the schema `PARSED_EVENTS`."""
    odd: tuple[OddLine, ...]
    """Lines that are left, in order."""
    lines: int
    forwarded: int
    """Requests that the forwarding broker logs as well."""
    blank: int
    """Lines without a byte."""


def scan_request_lines(
    content: bytes | memoryview, *, offset: int, clock: LocalClock, origin: LogOrigin
) -> ScannedLines:
    """Scan lines of a request log.

    Args:
        content: Lines that end with a line feed each.
        offset: Offset of the first line in its file.
        clock: Clock of timestamps without an offset, which follows the lines.
        origin: What the log does not record about itself.

    Raises:
        BadLineError: A timestamp needs a zone and none was given.
    """
    buf = np.frombuffer(content, np.uint8)
    buf.flags.writeable = False  # machine code is compiled for each kind of array, in some twenty seconds
    lines = count_lines(buf)
    figures = np.empty((FIGURES, lines), np.int64)
    spans = np.empty((lines * TEXTS, 2), np.int64)
    slots = np.full(1 << (2 * TEXTS * lines).bit_length(), -1, np.int32)
    odd = np.empty((lines, 2), np.int64)
    results = np.zeros(RESULTS, np.int64)
    texts, _ = scan_lines(buf, 0, len(content), figures, spans, slots, odd, results)
    names = [str(content[start:stop], "ascii") for start, stop in spans[:texts].tolist()]
    return ScannedLines(
        events=_events(figures[:, : results[TAKEN]], names, offset=offset, clock=clock, origin=origin),
        odd=tuple(OddLine(start, bytes(content[start:stop])) for start, stop in odd[: results[ODD]].tolist()),
        lines=lines,
        forwarded=int(results[FORWARDED]),
        blank=int(results[BLANK]),
    )


def _events(
    figures: _Integers, names: list[str], *, offset: int, clock: LocalClock, origin: LogOrigin
) -> pa.RecordBatch:
    count = figures.shape[1]
    ts_ms = pa.array(_utc_minutes_ms(figures[MINUTE], clock) + figures[MS] - figures[SENDING_MS])
    quota_types = _TYPE_OF_API[figures[API_KEY]]
    columns = {
        "cluster": _repeated(origin.cluster, count),
        "broker_id": np.full(count, origin.broker_id, np.int32),
        "ts_ms": ts_ms,
        "user": _texts(figures[PRINCIPAL], names, user_name),
        "client_id": _texts(figures[CLIENT_ID], names, str),
        "ip": _texts(figures[CONNECTION], names, client_ip),
        "quota_type": _QUOTA_TYPES.take(pa.array(quota_types)),
        "bytes": figures[SIZE],
        "thread_ms": figures[THREAD_US] / 1000,
        "mutations": np.zeros(count, np.int32),
        "throttle_ms": figures[THROTTLE_MS],
        "api_key": figures[API_KEY].astype(np.int16),
        "is_exempt": figures[IS_EXEMPT].astype(np.bool_),
        "is_estimated": quota_types > 0,
        "is_thread_estimated": np.ones(count, np.bool_),
        "connection": _texts(figures[CONNECTION], names, str),
        "src_file": _repeated(origin.src_file, count),
        "src_offset": figures[OFFSET] + offset,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in PARSED_EVENTS], schema=PARSED_EVENTS
    )


def _utc_minutes_ms(minutes: _Integers, clock: LocalClock) -> _Integers:
    """Return when each line's minute begins, in ms since 1970 UTC."""
    if minutes.size == 0:
        return minutes
    # the clock sees each change of minute in the order of the log
    firsts = np.concatenate(([0], np.flatnonzero(np.diff(minutes)) + 1))
    found = [
        (each - ZONED) * _MINUTE_MS if each >= _OFFSETS else clock.utc_ms(each) for each in minutes[firsts].tolist()
    ]
    return np.repeat(np.array(found, np.int64), np.diff(np.append(firsts, minutes.size)))


def _texts(numbers: _Integers, names: Sequence[str], read: Callable[[str], str]) -> pa.Array:
    """Return a column of texts, each read once from the name with its number."""
    is_used = np.zeros(len(names), np.bool_)
    is_used[numbers] = True
    values = pa.array(
        [read(name) if used else "" for name, used in zip(names, is_used.tolist(), strict=True)], pa.string()
    )
    return values.take(pa.array(numbers))


def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)
