"""The daemon's log: one line per notice, on standard error.

Invariants: a line has a time (UTC), a severity, the event and `key=value` pairs; the same event is written at most
`LINES_PER_SECOND` times in a second, what was left out is counted in the next line of it.
"""

from datetime import UTC, datetime
from typing import Final, TextIO

from kafka_quotas.core.clock import Clock
from kafka_quotas.enforcement.notice import Notice, Severity

LINES_PER_SECOND: Final = 20
"""Per event: enough to see each of a few troubles, too little to fill a disk when thousands of clients meet one."""


class Log:
    """Writes notices to a stream."""

    def __init__(self, stream: TextIO, clock: Clock, *, threshold: Severity = Severity.INFO) -> None:
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
        more = f" left_out={left_out}" if left_out else ""
        time = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        self._write(f"{time}Z {notice.severity.name.lower()} {notice}{more}\n")

    def _write(self, line: str) -> None:
        try:
            self._stream.write(line)
            self._stream.flush()
        except OSError:
            return  # nobody reads the log any more; enforcement goes on
