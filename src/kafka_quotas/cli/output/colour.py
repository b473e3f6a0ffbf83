"""Colour on terminals, which never carries a meaning alone.

NO_COLOR (https://no-color.org) and a terminal of type `dumb` switch it off.
"""

import os
from typing import Final, TextIO

BOLD: Final = "1"
RED: Final = "1;31"
YELLOW: Final = "33"
GREEN: Final = "32"
CYAN: Final = "36"
_STARTS: Final = {"error": RED, "warning": YELLOW, "hint": CYAN, "note": CYAN}
"""The words before a colon that begin a message, with their styles."""


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
