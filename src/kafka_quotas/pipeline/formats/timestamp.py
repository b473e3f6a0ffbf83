"""Timestamps of log lines as milliseconds since 1970.

Invariant: a timestamp without an offset is local time of the given zone.

**Source:** log4j's `%d`, ISO 8601.
"""

import math
import re
from contextlib import suppress
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final

from kafka_quotas.pipeline.formats.task import BadLineError

_TIMESTAMP: Final = re.compile(
    rb"\[?(?P<minute>\d{4}-\d\d-\d\d[ T]\d\d:\d\d):(?P<second>[0-5]\d)(?:[,.](?P<fraction>\d{1,9}))?"
    rb"(?P<offset>Z|[+-]\d\d:?\d\d)?"
)
_NO_STAMP: Final = "no time stamp at the beginning"
_MINUTES_PER_DAY: Final = 24 * 60
_REMEMBERED_MINUTES: Final = 4 * _MINUTES_PER_DAY
_MINUTE_MS: Final = 60_000
_NEAR_MS: Final = 2 * 60 * _MINUTE_MS
_JITTER_MS: Final = 5 * _MINUTE_MS
_EPOCH_MS_FROM: Final = 100_000_000_000
"""Numbers below this are seconds since 1970, others milliseconds: the border is March 1973 or the year 5138."""
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - local time of any zone


class LocalClock:
    """The times in UTC of a log's timestamps, read in the order of the log: local ones by a zone.

    If clocks go back, a local time has two meanings. It is the earlier one, unless the line before it is later by
    more than lines of a log are out of order: then the hour is being repeated.
    """

    def __init__(self, zone: tzinfo | None) -> None:
        self._zone = zone
        self._previous_ms: int | None = None
        self._stray_ms: int | None = None

    def read_ms(self, line: bytes) -> int:
        """Return the timestamp at the beginning of a line in ms since 1970.

        Raises:
            BadLineError: The line begins with no timestamp or an impossible one, or it needs a zone and none was given.
        """
        match = _TIMESTAMP.match(line)
        if match is None:
            raise BadLineError(_NO_STAMP)
        written, second, fraction, offset = match.groups(b"")
        ms = int((fraction + b"00")[:3]) if fraction else 0
        return self.minute_ms(written, offset) + int(second) * 1000 + ms

    def minute_ms(self, written: bytes, offset: bytes) -> int:
        """Return when a minute begins, in ms since 1970."""
        minute = minute_of(written, offset)
        if offset:
            return minute * _MINUTE_MS
        found_ms, later_ms = _meanings_ms(minute, self._zone)
        if later_ms != found_ms and self._previous_ms is not None:
            found_ms = later_ms if _JITTER_MS < self._previous_ms - found_ms < _NEAR_MS else found_ms
        self._follow(found_ms)
        return found_ms

    def _follow(self, found_ms: int) -> None:
        """Remember the time of the line, but not a single one that is far from its neighbours."""
        known_ms = (self._previous_ms, self._stray_ms)
        if self._previous_ms is None or any(each is not None and abs(found_ms - each) <= _NEAR_MS for each in known_ms):
            self._previous_ms, self._stray_ms = found_ms, None
        else:
            self._stray_ms = found_ms


@lru_cache(maxsize=_REMEMBERED_MINUTES)
def _meanings_ms(minute: int, zone: tzinfo | None) -> tuple[int, int]:
    """Return when a local minute begins in ms since 1970 UTC, for the first time and for the last."""
    if zone is None:
        raise BadLineError("the time stamp has no zone, and none was given")
    local = (_EPOCH + timedelta(minutes=minute)).replace(tzinfo=zone)
    first_ms, second_ms = (round(local.replace(fold=fold).timestamp()) * 1000 for fold in (0, 1))
    # where clocks go forward the two differ too, but there the second is the smaller one
    return first_ms, max(first_ms, second_ms)


@lru_cache(maxsize=_REMEMBERED_MINUTES)
def minute_of(written: bytes, offset: bytes) -> int:
    """Return minutes since 1970, in UTC if there is an offset, of `2026-11-21 12:00` as written."""
    if _TIMESTAMP.fullmatch(b"%b:00%b" % (written, offset)) is None:
        raise BadLineError(_NO_STAMP)
    try:
        local = datetime.strptime(written.decode().replace("T", " "), "%Y-%m-%d %H:%M")  # noqa: DTZ007 - local time
    except ValueError as error:
        raise BadLineError("the time stamp is not a time") from error
    return (local - _EPOCH) // timedelta(minutes=1) - _offset_minutes(offset)


def begins_ambiguously(line: bytes, zone: tzinfo) -> bool:
    """Check whether a line begins with a local time that has two meanings."""
    match = _TIMESTAMP.match(line)
    if match is None or match["offset"] is not None:
        return False
    with suppress(BadLineError):
        earlier_ms, later_ms = _meanings_ms(minute_of(match["minute"], b""), zone)
        return earlier_ms != later_ms
    return False


def needs_zone(head: bytes) -> bool:
    """Check whether the timestamps in a request log lack the zone, by its first bytes."""
    found = filter(None, map(_TIMESTAMP.match, head.splitlines()))
    return next((match["offset"] is None for match in found), False)


def _offset_minutes(offset: bytes) -> int:
    if offset in (b"", b"Z"):
        return 0
    hours, minutes = int(offset[1:3]), int(offset[-2:])
    if hours >= 24 or minutes >= 60:
        raise BadLineError("the time stamp's offset is none")
    distance = hours * 60 + minutes
    return -distance if offset[:1] == b"-" else distance


def epoch_ms(number: float) -> int:
    """Return a time in seconds or milliseconds since 1970 in milliseconds."""
    if not math.isfinite(number) or abs(number) > 10**15:
        raise ValueError(number)
    return round(number if abs(number) >= _EPOCH_MS_FROM else number * 1000)
