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


def _circumstances(measurement: Measurement) -> str:
    """Return when and where it was measured in one line, with the exit code where that is not 0."""
    each = measurement
    ended = "" if each.exit_code == 0 else f" Exit code {each.exit_code}."
    return (
        f"Measured on {each.day} on {each.machine}, of which other programs took {each.other_cores:.2f} cores "
        f"(load average {each.load_average:.2f} at the start), with {each.versions}, in {each.elapsed_s:.0f} s.{ended}"
    )
