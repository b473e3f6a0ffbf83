"""Colours and progress bars on a terminal, neither of which carries a meaning alone.

NO_COLOR (https://no-color.org) and a terminal of type `dumb` switch colours off. A bar is on standard error, once
something takes longer than a second.
"""

import os
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

BOLD: Final = "1"
RED: Final = "1;31"
YELLOW: Final = "33"
CYAN: Final = "36"
SILENT_S: Final = 1.0
_STARTS: Final = {"error": RED, "warning": YELLOW, "hint": CYAN, "note": CYAN}


def takes_colour(stream: TextIO) -> bool:
    """Return whether the stream is a terminal on which colours are wanted."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, style: str, stream: TextIO) -> str:
    """Return the text in a style for the stream, unchanged where the stream takes no colour."""
    return f"\x1b[{style}m{text}\x1b[0m" if text and takes_colour(stream) else text


def coloured_message(text: str, stream: TextIO) -> str:
    """Return a message for the stream with `error:` and its like in colour."""
    if not takes_colour(stream):
        return text
    return "\n".join(_coloured_start(line, stream) for line in text.split("\n"))


def _coloured_start(line: str, stream: TextIO) -> str:
    start, colon, rest = line.partition(":")
    style = _STARTS.get(start)
    return line if style is None or not colon else coloured(f"{start}:", style, stream) + rest


def is_terminal(stream: TextIO) -> bool:
    """Return whether a person looks at the stream."""
    return stream.isatty()


def takes_every_letter(stream: TextIO) -> bool:
    """Return whether the stream's encoding has every letter.

    If not, JSON and YAML escape those that it may lack.
    """
    return (stream.encoding or "utf-8").lower().replace("-", "").startswith("utf")


class ApplyProgress:
    """A progress bar, called with the number done and the total.

    The end of the `with` block removes the bar.
    """

    def __init__(self, description: str) -> None:
        self._description = description
        self._begin_s = time.monotonic()
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def __call__(self, done: int, total: int) -> None:
        """Show the progress once the bar is wanted."""
        is_slow = done < total and time.monotonic() - self._begin_s >= SILENT_S
        if self._bar is None and is_slow and is_terminal(sys.stderr):
            self._bar = self._drawn(total)
        if self._bar is not None:
            progress, task = self._bar
            progress.update(task, completed=done)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar[0].stop()

    def _drawn(self, total: int) -> "tuple[Progress, TaskID]":
        from rich.console import Console  # noqa: PLC0415 - only a long run pays for Rich
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415 - as above

        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        progress.start()
        return progress, progress.add_task(self._description, total=total)
