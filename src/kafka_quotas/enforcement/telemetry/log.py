"""The daemon's log: one line per event, on standard error.

Invariants: a line has a time (UTC), a severity, the event and its fields, as `key=value` pairs or as one JSON object;
the same event is written at most `LINES_PER_SECOND` times in a second, its next line has the number left out.
"""

import contextlib
import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Final, TextIO, TypeAlias

from kafka_quotas.core.clock import Clock, format_instant
from kafka_quotas.core.errors import KafkaQuotasError


class LogLevel(IntEnum):
    """The severity of an event, with the numbers of `logging`."""

    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """An event with its fields, one line of the log."""

    event: str
    level: LogLevel = LogLevel.INFO
    fields: dict[str, str | float] = field(default_factory=dict)

    @classmethod
    def of(cls, event: str, level: LogLevel = LogLevel.INFO, /, **fields: str | float) -> "LogEvent":
        """Return an event with these fields."""
        return cls(event=event, level=level, fields=fields)

    @classmethod
    def failure(cls, event: str, error: Exception, **fields: str | float) -> "LogEvent":
        """Return the event of an error, with its message, or with where it was raised for a defect."""
        return cls(event=event, level=LogLevel.ERROR, fields={**fields, "error": error_text(error)})

    def __str__(self) -> str:
        """Return the event, then `key=value` pairs, with values quoted that are more than one word."""
        return " ".join((self.event, *(f"{key}={_quoted(value)}" for key, value in self.fields.items())))


Notify: TypeAlias = Callable[[LogEvent], None]
"""Takes events without raising."""


def error_text(error: Exception) -> str:
    """Return the message of an error, or of an unexpected one its type, text and where it was raised."""
    if isinstance(error, KafkaQuotasError):
        return error.message
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"internal error: {type(error).__name__}: {error}{where}"


def _quoted(value: str | float) -> str:
    """Return a value as one word, or quoted, with control characters (clients may send some) escaped."""
    text = str(value)
    if text and text.isprintable() and not any(mark in text for mark in ' "=\\'):
        return text
    escaped = "".join(
        mark if mark.isprintable() and mark not in '"\\' else mark.encode("unicode_escape").decode() for mark in text
    )
    return '"' + escaped.replace('"', '\\"') + '"'


LINES_PER_SECOND: Final = 20
"""Most lines per event: enough to see each of a few errors, too few to fill a disk when all clients meet one."""


class LogFormat(StrEnum):
    """The format of a line of the log."""

    TEXT = "text"
    JSON = "json"


class Log:
    """The log on one stream, which limits the lines per event."""

    def __init__(self, stream: TextIO, clock: Clock, *, log_format: LogFormat = LogFormat.TEXT) -> None:
        self._format = log_format
        self._stream = stream
        self._clock = clock
        self._second = 0
        self._written: dict[str, int] = {}
        self._suppressed: dict[str, int] = {}

    def notify(self, event: LogEvent) -> None:
        """Write the line of an event, or leave it out and count it."""
        now_ms = self._clock.now_ms()
        if now_ms // 1000 != self._second:
            self._second = now_ms // 1000
            self._written.clear()
        written = self._written.get(event.event, 0)
        self._written[event.event] = written + 1
        if written >= LINES_PER_SECOND:
            self._suppressed[event.event] = self._suppressed.get(event.event, 0) + 1
            return
        with contextlib.suppress(OSError):  # the reader of the log is gone; enforcement continues
            self._stream.write(self._line(now_ms, event, self._suppressed.pop(event.event, 0)))
            self._stream.flush()

    def _line(self, now_ms: int, event: LogEvent, left_out: int) -> str:
        time, severity = format_instant(now_ms), event.level.name.lower()
        more = {"left_out": left_out} if left_out else {}
        if self._format is LogFormat.JSON:
            line = {"time": time, "severity": severity, "event": event.event, **event.fields, **more}
            return json.dumps(line) + "\n"
        return f"{time} {severity} {event}{f' left_out={left_out}' if left_out else ''}\n"
