"""The page of a scenario: the command that it names, and the part of it that is written from a run of that command.

People write a page up to its heading "What came out". All below that heading is written anew from each run.

Contract: pure, texts in and texts out.
"""

import re
import shlex
from dataclasses import dataclass
from typing import Final

_HEADING: Final = "\n## What came out\n"
_COMMAND: Final = re.compile(r"^```\n(kafka-quotas load-test run .+)\n```$", re.MULTILINE)
_EXCERPT: Final = re.compile(r"(?<=run of `isolation`)(?P<words>[^`]*```text\n)(?P<lines>.*?)(?=```\n)", re.DOTALL)
JARS: Final = "DIR"
"""What stands for the folder of Kafka's jars in the command of a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one run of a scenario printed, and where and when it ran."""

    name: str
    digest: str
    """A digest of the scenario's file, which a page is true for."""
    exit_code: int
    output: str
    """The standard output: the table of clients, then one line per judgement."""
    day: str
    """The day on which it ran, as people write it."""
    machine: str
    """The cores and the memory of the machine."""
    load_average: float
    """The load average of the last minute before the first scenario of a series."""
    other_cores: float
    """The cores that programs other than the run took while it lasted, on average."""
    versions: str
    elapsed_s: float


def page_command(page: str) -> list[str]:
    """Return the arguments of the command that a page tells its readers to run.

    Raises:
        ValueError: The page has no such command, or several.
    """
    found = _COMMAND.findall(page)
    if len(found) != 1:
        raise ValueError(f"a page names one 'kafka-quotas load-test run', not {len(found)}")
    return shlex.split(found[0])[1:]


def measured_page(page: str, measurement: Measurement) -> str:
    """Return a page with the part that shows a run replaced by this run.

    Raises:
        ValueError: The page has no heading for it.
    """
    written_by_hand, heading, _ = page.partition(_HEADING)
    if not heading:
        raise ValueError(f"the page of {measurement.name} has no heading {_HEADING.strip()!r}")
    return f"{written_by_hand}{heading}\n{_circumstances(measurement)}\n\n```\n{measurement.output.strip()}\n```\n"


def measured_excerpt(readme: str, measurement: Measurement) -> str:
    """Return the README with the lines that it quotes from a run replaced by the same lines of this run.

    A line is the same where its first two words are.
    """
    found = _EXCERPT.search(readme)
    if found is None:
        return readme
    lines = {_first_words(line): line for line in reversed(measurement.output.splitlines())}
    wanted = [_first_words(line) for line in found["lines"].splitlines()]
    quoted = "".join(f"{lines[words]}\n" for words in wanted if words in lines)
    return readme[: found.start("lines")] + quoted + readme[found.end("lines") :]


def _first_words(line: str) -> tuple[str, ...]:
    return tuple(line.split()[:2])


def _circumstances(measurement: Measurement) -> str:
    """Return when and where it was measured in one line, with the exit code where that is not 0."""
    each = measurement
    ended = "" if each.exit_code == 0 else f" Exit code {each.exit_code}."
    return (
        f"Measured on {each.day} on {each.machine}, of which other programs took {each.other_cores:.2f} cores "
        f"(load average {each.load_average:.2f} at the start), with {each.versions}, in {each.elapsed_s:.0f} s.{ended}"
    )
