"""Timestamps of log lines as milliseconds since 1970.

Invariant: a timestamp without an offset is local time of the given zone.

**Source:** log4j's `%d`, ISO 8601.
"""

import re
from datetime import datetime, timedelta, tzinfo
from typing import Final

from kafka_quotas.pipeline.formats.task import BadLineError

_TIMESTAMP: Final = re.compile(
    rb"\[?(?P<minute>\d{4}-\d\d-\d\d[ T]\d\d:\d\d):(?P<second>[0-5]\d)(?:[,.](?P<fraction>\d{1,9}))?"
    rb"(?P<offset>Z|[+-]\d\d:?\d\d)?"
)
_MINUTES_PER_DAY: Final = 24 * 60
_REMEMBERED_MINUTES: Final = 4 * _MINUTES_PER_DAY
_MINUTE_MS: Final = 60_000
_NEAR_MS: Final = 2 * 60 * _MINUTE_MS
_JITTER_MS: Final = 5 * _MINUTE_MS
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - local time of any zone


class LocalClock:
    """The times in UTC of a log's local times, read in the order of the log.

    If clocks go back, a local time has two meanings. It is the earlier one, unless the line before it is later by
    more than lines of a log are out of order: then the hour is being repeated.
    """

    def __init__(self, zone: tzinfo | None) -> None:
        self._zone = zone
        self._meanings: dict[int, tuple[int, int]] = {}
        self._previous_ms: int | None = None
        self._stray_ms: int | None = None

    def utc_ms(self, minute: int) -> int:
        """Return when a local minute begins, in ms since 1970 UTC.

        Args:
            minute: Minutes since 1970 as the log writes them.

        Raises:
            BadLineError: It needs a zone and none was given.
        """
        earlier_ms, later_ms = self._meanings.get(minute) or self._add(minute)
        found_ms = earlier_ms
        if later_ms != earlier_ms and self._previous_ms is not None:
            ahead_ms = self._previous_ms - earlier_ms
            found_ms = later_ms if _JITTER_MS < ahead_ms < _NEAR_MS else earlier_ms
        self._follow(found_ms)
        return found_ms

    def is_ambiguous(self, minute: int) -> bool:
        """Check whether a local minute has two meanings.

        Raises:
            BadLineError: It needs a zone and none was given.
        """
        earlier_ms, later_ms = self._meanings.get(minute) or self._add(minute)
        return earlier_ms != later_ms

    def _follow(self, found_ms: int) -> None:
        """Remember the time of the line, but not a single one that is far from its neighbours."""
        known_ms = (self._previous_ms, self._stray_ms)
        if self._previous_ms is None or any(each is not None and abs(found_ms - each) <= _NEAR_MS for each in known_ms):
            self._previous_ms, self._stray_ms = found_ms, None
        else:
            self._stray_ms = found_ms

    def _add(self, minute: int) -> tuple[int, int]:
        if self._zone is None:
            raise BadLineError("the time stamp has no zone, and none was given")
        local = (_EPOCH + timedelta(minutes=minute)).replace(tzinfo=self._zone)
        first_ms, second_ms = (round(local.replace(fold=fold).timestamp()) * 1000 for fold in (0, 1))
        if len(self._meanings) >= _REMEMBERED_MINUTES:
            self._meanings.clear()
        # where clocks go forward the two differ too, but there the second is the smaller one
        meanings = self._meanings[minute] = (first_ms, max(first_ms, second_ms))
        return meanings


class TimestampReader:
    """Reads the timestamp at the beginning of a line, by a clock where it has no offset."""

    def __init__(self, clock: LocalClock) -> None:
        self._clock = clock
        self._minutes: dict[bytes, int] = {}

    def read_ms(self, line: bytes) -> int:
        """Return the timestamp in ms since 1970.

        Raises:
            BadLineError: The line begins with no timestamp or an impossible one, or it needs a zone and none was given.
        """
        match = _TIMESTAMP.match(line)
        if match is None:
            raise BadLineError("no time stamp at the beginning")
        written, second, fraction, offset = match.groups()
        minute = self._minutes.get(written)
        if minute is None:
            minute = _local_minute(written)
            if len(self._minutes) >= _REMEMBERED_MINUTES:
                self._minutes.clear()
            self._minutes[written] = minute
        base_ms = self._clock.utc_ms(minute) if offset is None else (minute - _offset_minutes(offset)) * _MINUTE_MS
        return base_ms + int(second) * 1000 + (int((fraction + b"00")[:3]) if fraction else 0)


def _local_minute(written: bytes) -> int:
    """Return minutes since 1970 of `2026-11-21 12:00`, as written."""
    try:
        local = datetime.strptime(written.decode().replace("T", " "), "%Y-%m-%d %H:%M")  # noqa: DTZ007 - local time
    except ValueError as error:
        raise BadLineError("the time stamp is not a time") from error
    return (local - _EPOCH) // timedelta(minutes=1)


def local_minute(line: bytes) -> int | None:
    """Return minutes since 1970 of a timestamp without an offset, as written, None for another line."""
    match = _TIMESTAMP.match(line)
    if match is None or match["offset"] is not None:
        return None
    try:
        return _local_minute(match["minute"])
    except BadLineError:
        return None


def needs_zone(head: bytes) -> bool:
    """Check whether the timestamps in a request log lack the zone, by its first bytes."""
    found = filter(None, map(_TIMESTAMP.match, head.splitlines()))
    return next((match["offset"] is None for match in found), False)


def _offset_minutes(offset: bytes) -> int:
    if offset == b"Z":
        return 0
    hours, minutes = int(offset[1:3]), int(offset[-2:])
    if hours >= 24 or minutes >= 60:
        raise BadLineError("the time stamp's offset is none")
    distance = hours * 60 + minutes
    return -distance if offset[:1] == b"-" else distance
