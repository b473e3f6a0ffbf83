"""Something an operator should read: one structured line of the log."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TypeAlias


class Severity(IntEnum):
    """How much it matters; the figures are those of `logging`."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What happened (`event`, a fixed text) and to whom (`fields`)."""

    event: str
    severity: Severity = Severity.INFO
    fields: dict[str, str | float] = field(default_factory=dict)

    def __str__(self) -> str:
        """The line: the event, then `key=value` pairs, values quoted where they would not read as one word."""
        pairs = (f"{key}={_quoted(value)}" for key, value in self.fields.items())
        return " ".join((self.event, *pairs))


Notify: TypeAlias = Callable[[Notice], None]
"""Takes notices; never raises."""


def defect(error: Exception) -> str:
    """Return an unexpected exception as one line: what it is, and where it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"internal error: {type(error).__name__}: {error}{place}"


def _quoted(value: str | float) -> str:
    """A value as one word, or quoted; control characters (which may come from a client) are escaped."""
    text = str(value)
    if text and text.isprintable() and not any(mark in text for mark in ' "=\\'):
        return text
    escaped = "".join(
        mark if mark.isprintable() and mark not in '"\\' else mark.encode("unicode_escape").decode() for mark in text
    )
    return '"' + escaped.replace('"', '\\"') + '"'
