"""The page of a scenario: the command that it names, and the part of it that is written from a run of that command.

People write a page up to its heading "What came out". All below that heading is written anew from each run.

Contract: pure, texts in and texts out.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafka_quotas.loadtest.judgement import Aspect, State

_HEADING: Final = "\n## What came out\n"
_COMMAND: Final = re.compile(r"^```\n(kafka-quotas load-test run .+)\n```$", re.MULTILINE)
_JUDGEMENT: Final = re.compile(
    rf"^(?:\S )?(?:(.+): )?({'|'.join(each.label for each in Aspect)}):? ({'|'.join(State)}): (.*)$",
    re.MULTILINE,
)
_EXIT_CODE: Final = re.compile(r"Exit code (\d+)\.")
_GOOD: Final = (State.MET, State.UNCHECKED)
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
    """The standard output: the table of clients, then, with `--verbose`, one line per judgement."""
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


def differences(page: str, measurement: Measurement) -> tuple[str, ...]:
    """Return in which judgements a run came out otherwise than a page shows, in one line each, and its exit code.

    A judgement that one of the two lacks counts as met in it, for older runs made fewer of them.
    """
    _, _, shown = page.partition(_HEADING)
    before, after = _states(shown), _states(measurement.output)
    changed = [
        f"{name}: {old} on the page, {new} now"
        for name in {**before, **after}
        for old, new in ((before.get(name, State.MET), after.get(name, State.MET)),)
        if old != new and not (name not in before and new in _GOOD) and not (name not in after and old in _GOOD)
    ]
    code = next(iter(_EXIT_CODE.findall(shown)), "0")
    if code != str(measurement.exit_code):
        changed.append(f"exit code: {code} on the page, {measurement.exit_code} now")
    return tuple(changed)


def _states(output: str) -> Mapping[str, State]:
    """Return the states of all judgements that a run printed, by client and aspect, expectations by their text."""
    states = {}
    for client, aspect, state, evidence in _JUDGEMENT.findall(output):
        what = evidence.partition(": ")[0] if aspect == Aspect.EXPECTATION else aspect
        states[f"{client}: {what}" if client else what] = State(state)
    return states


def _circumstances(measurement: Measurement) -> str:
    """Return when and where it was measured in one line, with the exit code where that is not 0."""
    each = measurement
    ended = "" if each.exit_code == 0 else f" Exit code {each.exit_code}."
    return (
        f"Measured on {each.day} on {each.machine}, of which other programs took {each.other_cores:.2f} cores "
        f"(load average {each.load_average:.2f} at the start), with {each.versions}, in {each.elapsed_s:.0f} s.{ended}"
    )
