"""Single keys from a terminal, without Enter, while something is shown on it."""

import os
import select
import sys
import threading
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, TextIO


class Keyboard(AbstractContextManager["Keyboard"]):
    """The keys typed on a stream, none where it is no terminal.

    The terminal is as before after the `with` block. Ctrl-C interrupts, as ever.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        """Make the keyboard of a stream, or of standard input."""
        chosen = sys.stdin if stream is None else stream
        self._stream = chosen if chosen is not None and chosen.isatty() else None
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        if self._stream is not None:
            import termios  # noqa: PLC0415 - only a terminal has it
            import tty  # noqa: PLC0415

            self._before = termios.tcgetattr(self._stream)
            tty.setcbreak(self._stream, termios.TCSANOW)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            import termios  # noqa: PLC0415

            termios.tcsetattr(self._stream, termios.TCSANOW, self._before)

    def key(self, timeout_s: float) -> str | None:
        """Return the next key, None where none is typed in time, an empty text where the terminal is gone."""
        if self._stream is None:
            threading.Event().wait(timeout_s)
            return None
        readable, _, _ = select.select([self._stream], [], [], timeout_s)
        # A buffered read would take the keys after it, of which select sees nothing.
        return os.read(self._stream.fileno(), 1).decode(errors="replace") if readable else None
