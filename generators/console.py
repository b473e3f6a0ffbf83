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
    "docs/explanation/groups.md",
    "docs/explanation/quota-semantics.md",
    "docs/how-to/contexts.md",
    "docs/how-to/declarative.md",
    "docs/how-to/history.md",
    "docs/how-to/other-tools.md",
    "docs/how-to/pipeline.md",
    "docs/how-to/rollout.md",
    "docs/how-to/visibility.md",
    "docs/tutorial/first-quota.md",
)
_BLOCK = re.compile(r"(```console\n)(.*?)(```)", re.DOTALL)
_PROMPT = "$ "
NO_STORE = frozenset({"docs/how-to/contexts.md", "docs/how-to/pipeline.md"})
"""Pages whose readers have not set `KAFKA_QUOTAS_STORE`; all others use `local:quotas.db`."""
_TIMES = {
    r"\d{4}-\d\d-\d\dT[\d:.]+Z": "2026-11-22T14:00:00.000Z",
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ": "2026-11-22 14:00:00Z",
}
"""How times are printed, and what the pages show in their place."""
_HOME = "/home/ops"
"""The folder in which the commands of the pages run, as they show it."""
_CHANGE = re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{6}\b")
"""The id of a change in the journal."""
_RULE = re.compile(r"-+(?:  +-+)*")
"""The line below the headings of a table."""


def rewritten(text: str, folder: Path, store: str | None = "local:quotas.db") -> str:
    """Return a page with the outputs that its commands have in `folder`, a new one.

    Args:
        text: The page.
        folder: Where the commands run.
        store: Address of the store that the environment names, None if it names none.

    Raises:
        ValueError: a line of a block is not a command that this module runs, or a command failed.
    """
    (folder / "examples").symlink_to(ROOT / "examples")
    ids: dict[str, str] = {}
    with contextlib.chdir(folder), _environment(folder, store):
        return _BLOCK.sub(lambda block: block[1] + "".join(_run_lines(block[2], folder, ids)) + block[3], text)


def _run_lines(block: str, folder: Path, ids: dict[str, str]) -> Iterator[str]:
    for line in block.splitlines():
        if line.startswith(_PROMPT):
            yield f"{line}\n"
            shown = _renamed(str(folder), _run(line.removeprefix(_PROMPT)))
            for change in _CHANGE.findall(shown):
                ids.setdefault(change, f"20261122-1400{len(ids):02}-{len(ids) + 0x3F2A9C:x}")
            shown = _CHANGE.sub(lambda match: ids[match[0]], shown)
            for time, constant in _TIMES.items():
                shown = re.sub(time, constant, shown)
            yield shown


def _renamed(folder: str, shown: str) -> str:
    """Return an output with the reader's home for the folder, and columns of tables as wide as they then are."""
    lines = shown.splitlines()
    for first, rule in enumerate(lines):
        if not _RULE.fullmatch(rule.strip()):
            continue
        last = next((at for at in range(first + 1, len(lines)) if not lines[at].strip()), len(lines))
        for column in reversed([match.span() for match in re.finditer("-+", rule)]):
            cells = [line[slice(*column)].rstrip() for line in lines[first - 1 : last]]
            if any(folder in cell for cell in cells):
                cells = [cell.replace(folder, _HOME) for cell in cells]
                width = max(len(cell) for cell in cells if not _RULE.fullmatch(cell))
                for at, cell in enumerate(cells, first - 1):
                    rest = lines[at][column[1] :]
                    lines[at] = lines[at][: column[0]] + cell[:width].ljust(width) + rest
    return "".join(f"{line.replace(folder, _HOME).rstrip()}\n" for line in lines)


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
def _environment(folder: Path, store: str | None) -> Iterator[None]:
    """Yield the environment of a new user whose home is the folder, and who writes into no terminal."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_QUOTAS_", "XDG_"))}
    home = {
        "HOME": str(folder),
        "COLUMNS": "100",
        "LOGNAME": "ops",
        "KAFKA_QUOTAS_JOURNAL": f"{folder}/journal.jsonl",
    }
    if store is not None:
        home["KAFKA_QUOTAS_STORE"] = store
    with mock.patch.dict("os.environ", kept | home, clear=True):
        yield


def rewritten_page(page: str, folder: Path) -> str:
    """Return one of the pages, by its path, with the outputs that its commands have in `folder`, a new one.

    Raises:
        ValueError: As `rewritten` does.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    return rewritten(text, folder, None) if page in NO_STORE else rewritten(text, folder)


def run() -> None:
    """Write every page anew."""
    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            path = ROOT / page
            path.write_text(rewritten_page(page, Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    run()
