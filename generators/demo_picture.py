"""The moving picture of the README: a real run of `kafka-quotas demo` on a terminal, drawn as an animated SVG.

`python -m generators.demo_picture` runs the demo (about 40 s) and writes the picture. It plays the load three times as
fast, and needs neither a script nor a font from elsewhere. Who prefers no motion sees the verdicts.
"""

import codecs
import fcntl
import html
import os
import pty
import re
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.style import Style
from rich.text import Text

PICTURE = Path("docs/images/demo.svg")
COLUMNS, ROWS = 84, 24
CELL_WIDTH, CELL_HEIGHT = 8.4, 18
FRAME_S = 0.5
"""How long the picture shows the screen of one moment."""
SHOWN_EVERY_S = 1.5
"""The time of the run between two frames under load."""
VERDICTS_S = 5.0
"""How long it shows the table of verdicts, and the end."""
_PAUSE_S = 0.1
"""A program that has written nothing for as long has drawn its screen."""
_CONTROL = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|([\r\n])")
_COLOURS = {1: "#ff8787", 2: "#87d787", 3: "#d7c95f", 4: "#87afff", 5: "#d787d7", 6: "#5fd7d7"}
"""Colours by their number on terminals."""


@dataclass
class Screen:
    """The lines that a program has written, with their colours as escape sequences."""

    lines: list[str] = field(default_factory=lambda: [""])
    row: int = 0
    _unfinished: str = ""

    def write(self, text: str) -> None:
        """Take what the program wrote: text, colours, and the cursor movements of Rich's live views."""
        text = self._unfinished + text
        sequence = re.search(r"\x1b(\[[?0-9;]*)?$", text)
        self._unfinished = sequence[0] if sequence else ""
        text = text.removesuffix(self._unfinished) if sequence else text
        position = 0
        for match in _CONTROL.finditer(text):
            self.lines[self.row] += text[position : match.start()]
            position = match.end()
            if match[3] == "\n":
                self.row += 1
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif match[2] == "A":
                self.row -= int(match[1] or 1)
            elif match[2] == "K":
                self.lines[self.row] = ""
            elif match[2] == "m":
                self.lines[self.row] += match[0]
        self.lines[self.row] += text[position:]

    def visible(self) -> tuple[str, ...]:
        """Return the lowest lines, as many as the picture has rows."""
        return tuple(self.lines[-ROWS:])


def record(command: Sequence[str], folder: Path) -> Iterator[tuple[float, str]]:
    """Run a command on a terminal of its own in `folder`, and yield what it writes with the second of each piece."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.pop("NO_COLOR", None)
        os.environ["TERM"] = "xterm-256color"
        os.execv(command[0], command)  # noqa: S606 - the command is ours
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    start = time.monotonic()
    decoder = codecs.getincrementaldecoder("utf-8")()
    while True:
        try:
            written = os.read(terminal, 65536)
        except OSError:  # the terminal's end once the program has ended
            break
        yield time.monotonic() - start, decoder.decode(written)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        raise SystemExit("the demo failed: the picture stays as it was")


def frames(pieces: Iterable[tuple[float, str]]) -> Iterator[tuple[float, tuple[str, ...]]]:
    """Yield screens, each with the seconds that the picture shows it."""
    screen = Screen()
    screen.write("\x1b[1m$ kafka-quotas demo\x1b[0m")
    yield 1.0, screen.visible()
    due_s = written_s = 0.0
    for at_s, piece in pieces:
        if at_s - written_s > _PAUSE_S and at_s >= due_s:
            due_s = at_s + SHOWN_EVERY_S
            yield FRAME_S, screen.visible()
        written_s = at_s
        for line in piece.splitlines(keepends=True):
            screen.write(line)
            if re.match(r"\S*reader .*held", screen.lines[max(screen.row - 1, 0)]) and line.endswith("\n"):
                yield VERDICTS_S, screen.visible()
    yield VERDICTS_S, screen.visible()


def svg(shown: Sequence[tuple[float, tuple[str, ...]]]) -> str:
    """Draw the frames: every line once for each stretch of time in which a row shows it."""
    starts = [0.0]
    for seconds, _ in shown:
        starts.append(starts[-1] + seconds)
    rules: dict[tuple[float, float], str] = {}
    drawn: list[str] = []
    for row in range(ROWS):
        texts = [lines[row] if row < len(lines) else "" for _, lines in shown]
        changes = [0, *(number for number in range(1, len(texts)) if texts[number] != texts[number - 1]), len(texts)]
        for first, after in pairwise(changes):
            if Text.from_ansi(texts[first]).plain.strip():
                name = rules.setdefault((starts[first], starts[after]), f"t{len(rules)}")
                kind = f"{name} end" if after == len(texts) else name
                drawn.append(f'<g class="{kind}">{_line(texts[first], row)}</g>')
    total = starts[-1]
    motion = "".join(_rule(name, begin / total, end / total) for (begin, end), name in rules.items())
    width, height = COLUMNS * CELL_WIDTH + 24, ROWS * CELL_HEIGHT + 48
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img"
aria-label="kafka-quotas demo sets three quotas, puts load on a cluster, and reports that every quota held">
<style>text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d8dee9;white-space:pre}}
g{{visibility:hidden}}.end{{visibility:visible}}
@media (prefers-reduced-motion:no-preference){{g{{animation:{total:.1f}s step-end infinite}}{motion}}}</style>
<rect width="100%" height="100%" rx="8" fill="#1b1f27"/>
<circle cx="20" cy="18" r="6" fill="#ff5f57"/><circle cx="40" cy="18" r="6" fill="#febc2e"/>
<circle cx="60" cy="18" r="6" fill="#28c840"/>
{"".join(drawn)}
</svg>
"""


def _rule(name: str, begin: float, end: float) -> str:
    """Return the animation of what is visible from one part of the whole time to another."""
    steps = [] if begin == 0 else ["0%{visibility:hidden}"]
    steps.append(f"{begin:.3%}{{visibility:visible}}")
    steps.append(f"{end:.3%}{{visibility:{'visible' if end == 1 else 'hidden'}}}")
    return f"@keyframes {name}{{{''.join(steps)}}}g.{name}{{animation-name:{name}}}"


def _line(text: str, row: int) -> str:
    """Draw a line in pieces of one colour, each stretched to its columns whatever font the reader has."""
    column = 0
    pieces: list[str] = []
    console = Console(width=COLUMNS)
    for segment in Text.from_ansi(text.rstrip(), no_wrap=True, end="").render(console):
        size = len(segment.text)
        if segment.text.strip():
            place = f'x="{12 + column * CELL_WIDTH:.1f}" y="{54 + row * CELL_HEIGHT}"'
            length = f'textLength="{size * CELL_WIDTH:.1f}"'
            pieces.append(f"<text {place} {length}{_style(segment.style)}>{html.escape(segment.text)}</text>")
        column += size
    return "".join(pieces)


def _style(style: Style | None) -> str:
    if style is None:
        return ""
    parts = ["font-weight:700"] if style.bold else []
    parts += ["opacity:.6"] if style.dim else []
    parts += [f"fill:{_COLOURS[style.color.number]}"] if style.color and style.color.number in _COLOURS else []
    return f' style="{";".join(parts)}"' if parts else ""


def main() -> None:
    """Run the demo and write the picture below the folder that this is started in."""
    with tempfile.TemporaryDirectory() as folder:
        pieces = record([sys.executable, "-m", "kafka_quotas", "demo"], Path(folder))
        drawn = svg(list(frames(pieces)))
    PICTURE.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
