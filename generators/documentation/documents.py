"""Every generated page with its path, and the command that writes or checks them.

Run it by `python -m generators.documentation`. `--write` writes the files into a checkout, `--check` reports what would
change, left-over files included.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from generators.documentation.config_page import config_documents
from generators.documentation.man_page import man_page, page_name
from generators.documentation.output_page import output_documents
from generators.documentation.reference_page import reference_pages
from generators.documentation.topic_pages import topic_pages
from kafka_quotas.cli.completion import COMPLETE_VARIABLE
from kafka_quotas.cli.framework.commands import Command, walk_commands
from kafka_quotas.cli.help_topics import completion_script
from kafka_quotas.cli.main import PROGRAM, app

MAN_FOLDER = Path("man/man1")
COMPLETIONS_FOLDER = Path("completions")
REFERENCE_FOLDER = Path("docs/reference/commands")
_FOLDERS = (MAN_FOLDER, COMPLETIONS_FOLDER, REFERENCE_FOLDER)
_ZSH = f"""#compdef {PROGRAM}
eval $(env _TYPER_COMPLETE_ARGS="${{words[1,$CURRENT]}}" {COMPLETE_VARIABLE}=complete_zsh {PROGRAM})
"""


def commands() -> Iterator[tuple[Command, Any]]:
    """Yield every command and group with a context of it, the program itself first."""
    return walk_commands(app, PROGRAM)


@cache  # a second of work, and as constant as the commands
def documents() -> Mapping[Path, str]:
    """Return the text of every generated file by its path below the root of the repository."""
    run = next(command for command, context in commands() if context.command_path == f"{PROGRAM} daemon run")
    pages = {MAN_FOLDER / f"{page_name(context)}.1": man_page(command, context) for command, context in commands()}
    reference = {REFERENCE_FOLDER / name: text for name, text in reference_pages(commands()).items()}
    return (
        pages
        | reference
        | config_documents(run)
        | topic_pages(commands())
        | output_documents()
        | {
            COMPLETIONS_FOLDER / f"{PROGRAM}.bash": completion_script("bash"),
            COMPLETIONS_FOLDER / f"{PROGRAM}.fish": completion_script("fish"),
            # Typer's own script for zsh does nothing on the first Tab when the shell loads it by itself.
            COMPLETIONS_FOLDER / f"_{PROGRAM}": _ZSH,
        }
    )


def drift(root: Path) -> list[str]:
    """Return one line for each file below `root` that differs from what would be written."""
    expected = documents()
    present = {path.relative_to(root) for folder in _FOLDERS for path in (root / folder).iterdir()}
    found = [f"left over: {path}" for path in sorted(present - set(expected))]
    for path, text in expected.items():
        if not (root / path).exists():
            found.append(f"missing: {path}")
        elif (root / path).read_text(encoding="utf-8") != text:
            found.append(f"out of date: {path}")
    return found


def write(root: Path) -> None:
    """Write every generated file below `root` and remove left-over ones."""
    expected = documents()
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
        for path in (root / folder).iterdir():
            if path.relative_to(root) not in expected:
                path.unlink()
    for path, text in expected.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code: 1 if `--check` finds a difference."""
    parser = argparse.ArgumentParser(
        description="Write or check manual pages, the reference of commands and completion files."
    )
    parser.add_argument("--root", type=Path, default=Path(), help="the root of the repository")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write the files")
    action.add_argument("--check", action="store_true", help="list the files that are out of date")
    arguments = parser.parse_args(argv)
    if arguments.write:
        write(arguments.root)
        return 0
    found = drift(arguments.root)
    for line in found:
        sys.stdout.write(f"{line}\n")
    if found:
        sys.stderr.write("run `make docs` and commit the result\n")
    return 1 if found else 0
