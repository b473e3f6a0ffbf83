"""What commands print, in the pages that show it: every `console` block is run, and its outputs are written anew.

`python -m generators.console` rewrites the pages; a test compares them. The blocks of a page run one after the other in
a new folder, which has the examples of this repository. A block may hold `kafka-quotas` commands, also with
`> FILE` or `| head -N` behind them, and `export NAME=VALUE`.
"""

import contextlib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from kafka_quotas.cli.main import PROGRAM, main

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "docs/explanation/quota-semantics.md",
    "docs/how-to/declarative.md",
    "docs/how-to/rollout.md",
    "docs/how-to/visibility.md",
    "docs/tutorial/first-quota.md",
)
_BLOCK = re.compile(r"(```console\n)(.*?)(```)", re.DOTALL)
_PROMPT = "$ "
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_ANY_TIME = "2026-11-22T14:00:00.000Z"


def rewritten(text: str, folder: Path) -> str:
    """Return a page with the outputs that its commands have in `folder`, a new one.

    Raises:
        ValueError: a line of a block is not a command that this module runs, or a command failed.
    """
    (folder / "examples").symlink_to(ROOT / "examples")
    with contextlib.chdir(folder), _environment(folder):
        return _BLOCK.sub(lambda block: block[1] + "".join(_run_lines(block[2], folder)) + block[3], text)


def _run_lines(block: str, folder: Path) -> Iterator[str]:
    for line in block.splitlines():
        if line.startswith(_PROMPT):
            yield f"{line}\n"
            yield _TIME.sub(_ANY_TIME, _run(line.removeprefix(_PROMPT)).replace(f"{folder}/", ""))


def _run(command: str) -> str:
    """Run a line and return what a terminal would show of it, without blanks at the ends of lines."""
    words = shlex.split(command, comments=True)
    if words[0] == "export":
        name, _, value = words[1].partition("=")
        os.environ[name] = value
        return ""
    if words[0] != PROGRAM:
        raise ValueError(f"not a command of {PROGRAM}: {command}")
    argv, target, lines = words[1:], None, None
    if len(argv) > 2 and argv[-2] == ">":
        *argv, _, target = argv
    elif len(argv) > 3 and argv[-3:-1] == ["|", "head"]:
        *argv, _, _, lines = argv
    shown, data = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(data if target or lines else shown), contextlib.redirect_stderr(shown):
        code = main(argv)
    if code not in (0, 1):
        raise ValueError(f"{command} ends with {code}: {shown.getvalue()}")
    if target:
        Path(target).write_text(data.getvalue(), encoding="utf-8")
    if lines:
        shown.write("".join(data.getvalue().splitlines(keepends=True)[: int(lines.lstrip("-n"))]))
    return "".join(f"{line.rstrip()}\n" for line in shown.getvalue().splitlines())


@contextlib.contextmanager
def _environment(folder: Path) -> Iterator[None]:
    """Yield the environment of a new user whose home is the folder, and who writes into no terminal."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_QUOTAS_", "XDG_"))}
    home = {
        "HOME": str(folder),
        "COLUMNS": "100",
        "KAFKA_QUOTAS_STORE": "local:quotas.db",
        "KAFKA_QUOTAS_JOURNAL": f"{folder}/journal.jsonl",
    }
    with mock.patch.dict("os.environ", kept | home, clear=True):
        yield


def run() -> None:
    """Write every page anew."""
    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            path = ROOT / page
            path.write_text(rewritten(path.read_text(encoding="utf-8"), Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    run()
