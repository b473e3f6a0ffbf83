"""The daemon's log: one line per notice, on standard error.

Invariants: a line has a time (UTC), a severity, the event and its fields, as `key=value` pairs or as one JSON object;
the same event is written at most `LINES_PER_SECOND` times in a second, what was left out is counted in the next line
of it.
"""

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TextIO

from kafka_quotas.core.clock import Clock
from kafka_quotas.enforcement.notice import Notice, Severity

LINES_PER_SECOND: Final = 20
"""Per event: enough to see each of a few troubles, too little to fill a disk when thousands of clients meet one."""


class LogFormat(StrEnum):
    """How a line of the log is written."""

    TEXT = "text"
    JSON = "json"


class Log:
    """Writes notices to a stream."""

    def __init__(
        self,
        stream: TextIO,
        clock: Clock,
        *,
        threshold: Severity = Severity.INFO,
        log_format: LogFormat = LogFormat.TEXT,
    ) -> None:
        self._line = _json_line if log_format is LogFormat.JSON else _text_line
        self._stream = stream
        self._clock = clock
        self._threshold = threshold
        self._second = 0
        self._written: dict[str, int] = {}
        self._suppressed: dict[str, int] = {}

    def notify(self, notice: Notice) -> None:
        """Nothing; the line is written, or left out and counted."""
        if notice.severity < self._threshold:
            return
        now_ms = self._clock.now_ms()
        if now_ms // 1000 != self._second:
            self._second = now_ms // 1000
            self._written.clear()
        written = self._written.get(notice.event, 0)
        self._written[notice.event] = written + 1
        if written >= LINES_PER_SECOND:
            self._suppressed[notice.event] = self._suppressed.get(notice.event, 0) + 1
            return
        left_out = self._suppressed.pop(notice.event, 0)
        self._write(self._line(now_ms, notice, left_out))

    def _write(self, line: str) -> None:
        try:
            self._stream.write(line)
            self._stream.flush()
        except OSError:
            return  # nobody reads the log any more; enforcement goes on


def _text_line(now_ms: int, notice: Notice, left_out: int) -> str:
    more = f" left_out={left_out}" if left_out else ""
    return f"{_time(now_ms)} {notice.severity.name.lower()} {notice}{more}\n"


def _json_line(now_ms: int, notice: Notice, left_out: int) -> str:
    line = {"time": _time(now_ms), "severity": notice.severity.name.lower(), "event": notice.event, **notice.fields}
    return json.dumps(line | ({"left_out": left_out} if left_out else {})) + "\n"


def _time(now_ms: int) -> str:
    time = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return time.removesuffix("+00:00") + "Z"
