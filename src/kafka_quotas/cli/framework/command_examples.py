"""The examples of commands, which help, manual pages and `--help-json` show and tests run.

They are in one shell script beside this module. It is read only where examples are shown.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

_SCRIPT = Path(__file__).with_suffix(".sh")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandExample:
    """Command lines that do one thing."""

    purpose: str
    """One sentence that says what they do."""
    lines: tuple[str, ...]
    """Their lines; a backslash at the end joins a line to the next."""

    @property
    def commands(self) -> list[str]:
        """The command lines, each whole."""
        return [" ".join(line.split()) for line in "\n".join(self.lines).replace("\\\n", " ").splitlines()]


def examples_of(path: str) -> tuple[CommandExample, ...]:
    """Return the examples of a command by its path: `kafka-quotas alter`."""
    return all_examples().get(path, ())


@cache
def all_examples() -> dict[str, tuple[CommandExample, ...]]:
    """Return the examples of all commands by path, in the order of the script."""
    _, *sections = _SCRIPT.read_text(encoding="utf-8").split("\n## ")
    return {path: _examples(body) for path, _, body in (section.partition("\n") for section in sections)}


def _examples(section: str) -> tuple[CommandExample, ...]:
    _, *blocks = f"\n{section}".split("\n# ")
    parts = (block.partition("\n") for block in blocks)
    return tuple(CommandExample(purpose=purpose, lines=tuple(text.strip().splitlines())) for purpose, _, text in parts)
