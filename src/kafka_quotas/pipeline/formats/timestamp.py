"""Timestamps of log lines as milliseconds since 1970.

Invariant: a timestamp without an offset is local time of the given zone. Where clocks go back and it has two meanings,
it is the earlier one.

**Source:** log4j's `%d`, ISO 8601.
"""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final

from kafka_quotas.pipeline.formats.rows import BadLineError

_TIMESTAMP: Final = re.compile(
    rb"\[?(?P<minute>\d{4}-\d\d-\d\d[ T]\d\d:\d\d):(?P<second>[0-5]\d)(?:[,.](?P<fraction>\d{1,9}))?"
    rb"(?P<offset>Z|[+-]\d\d:?\d\d)?"
)
_REMEMBERED_MINUTES: Final = 4 * 24 * 60


class TimestampReader:
    """Reads the timestamp at the beginning of a line, in the given zone where it has no offset."""

    def __init__(self, zone: tzinfo | None) -> None:
        self._zone = zone
        self._minutes: dict[tuple[bytes, bytes | None], int] = {}
        self._log4j_minutes: dict[bytes, int] = {}

    def read_ms(self, line: bytes) -> int:
        """Return the timestamp in ms since 1970.

        Raises:
            BadLineError: The line begins with no timestamp or an impossible one, or it needs a zone and none was given.
        """
        if line[24:25] == b"]" and (known_ms := self._log4j_minutes.get(line[:18])) is not None:
            return known_ms + int(line[18:20]) * 1000 + int(line[21:24])  # `[2026-11-21 12:00:00,000]`, most often
        match = _TIMESTAMP.match(line)
        if match is None:
            raise BadLineError("no time stamp at the beginning")
        minute, second, fraction, offset = match.groups()
        base_ms = self._minutes.get((minute, offset))
        if base_ms is None:
            base_ms = self._minute_ms(minute, offset)
            self._remember(minute, offset, base_ms)
        return base_ms + int(second) * 1000 + (int((fraction + b"00")[:3]) if fraction else 0)

    def _remember(self, minute: bytes, offset: bytes | None, base_ms: int) -> None:
        if len(self._minutes) >= _REMEMBERED_MINUTES:
            self._minutes.clear()
            self._log4j_minutes.clear()
        self._minutes[minute, offset] = base_ms
        if offset is None:
            self._log4j_minutes[b"[" + minute + b":"] = base_ms

    def _minute_ms(self, minute: bytes, offset: bytes | None) -> int:
        zone = self._zone if offset is None else _fixed_zone(offset)
        if zone is None:
            raise BadLineError("the time stamp has no zone, and none was given")
        try:
            naive = datetime.strptime(minute.decode().replace("T", " "), "%Y-%m-%d %H:%M")  # noqa: DTZ007 - next line
        except ValueError as error:
            raise BadLineError("the time stamp is no time") from error
        return round(naive.replace(tzinfo=zone).timestamp()) * 1000


def has_offset(line: bytes) -> bool | None:
    """Check whether the timestamp at the beginning of a line has an offset, None where there is none."""
    match = _TIMESTAMP.match(line)
    return None if match is None else match["offset"] is not None


def _fixed_zone(offset: bytes) -> tzinfo:
    if offset == b"Z":
        return UTC
    hours, minutes = int(offset[1:3]), int(offset[-2:])
    if hours >= 24 or minutes >= 60:
        raise BadLineError("the time stamp's offset is none")
    distance = timedelta(hours=hours, minutes=minutes)
    return timezone(-distance if offset[:1] == b"-" else distance)
