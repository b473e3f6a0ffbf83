"""The pictures in the documentation: real runs of the command on a terminal, drawn as SVG by Rich."""

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from kafka_quotas.cli.main import PROGRAM, main

IMAGES_FOLDER = Path("docs/images")
COLUMNS = 92
RUNS: dict[str, tuple[str, ...]] = {
    "describe-effective.svg": (
        "alter --user-default --add-config producer_byte_rate=1MiB",
        "alter --user alice --add-config producer_byte_rate=10MiB,consumer_byte_rate=20MiB",
        "describe --effective --user alice --client app --brokers 3",
    )
}
"""Each picture and the command lines that it shows, run one after the other on a new store."""

_WEB_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


class _Screen(io.StringIO):
    """A terminal that records standard output and standard error in one order."""

    def isatty(self) -> bool:
        return True


def draw(root: Path) -> None:
    """Draw every picture below `root`."""
    (root / IMAGES_FOLDER).mkdir(parents=True, exist_ok=True)
    for name, lines in RUNS.items():
        (root / IMAGES_FOLDER / name).write_text(svg(screen_text(lines), title=PROGRAM), encoding="utf-8")


def screen_text(lines: Sequence[str]) -> str:
    """Return what a terminal shows of these command lines, prompts and colours included."""
    screen = _Screen()
    with tempfile.TemporaryDirectory() as folder, _terminal(Path(folder)):
        for line in lines:
            screen.write(f"\x1b[1m$ {PROGRAM} {line}\x1b[0m\n")
            with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
                main(line.split())
            screen.write("\n")
    return screen.getvalue().replace(folder, "~").rstrip("\n")


def svg(text: str, *, title: str) -> str:
    """Draw a terminal's text as a picture that loads nothing from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(text))
    drawn = _WEB_FONTS.sub("", console.export_svg(title=title, unique_id=PROGRAM))
    return drawn.replace("<svg ", '<svg xml:space="preserve" ', 1)  # some viewers drop indentation otherwise


@contextlib.contextmanager
def _terminal(folder: Path) -> Iterator[None]:
    """Yield the environment of a colour terminal whose store is a new file in `folder`."""
    kept = dict(os.environ)
    os.environ.pop("NO_COLOR", None)
    os.environ.update(
        {"KAFKA_QUOTAS_STORE": f"local:{folder}/quotas.db", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    )
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)
