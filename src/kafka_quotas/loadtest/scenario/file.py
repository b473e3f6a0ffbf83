"""Scenarios from files: those of the user, and those that are shipped, by name."""

from enum import StrEnum
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import UsageError, near_hint
from kafka_quotas.core.formats.documents import read_text
from kafka_quotas.loadtest.scenario.model import Scenario

_SUFFIX: Final = ".yaml"


def read_scenario(name_or_path: str) -> Scenario:
    """Return the scenario in a file, or the one that is shipped under a name.

    A path has a slash or a suffix.

    Raises:
        UsageError: There is no such file or name.
        DocumentError: The text is no scenario, with everything that is wrong in it.
    """
    if "/" in name_or_path or name_or_path.endswith((_SUFFIX, ".yml")):
        return parse_scenario(_file_text(Path(name_or_path)), name_or_path)
    resource = _shipped().get(name_or_path)
    if resource is None:
        raise UsageError(
            f"no scenario is called {name_or_path!r}",
            hint=near_hint(
                name_or_path,
                shipped_names(),
                otherwise="kafka-quotas load-test list shows them; a file of your own is named with its .yaml",
            ),
        )
    return parse_scenario(resource.read_text("utf-8"), name_or_path)


def parse_scenario(text: str, source: str) -> Scenario:
    """Parse a scenario, whose name or file is `source` in messages.

    Raises:
        DocumentError: The text is no scenario, with everything that is wrong in it.
    """
    from kafka_quotas.loadtest.scenario.sections import parse  # noqa: PLC0415 - loads PyYAML

    return parse(text, source)


class Question(StrEnum):
    """A question that a first scenario answers."""

    HOLDS = "holds"
    """Does every client get its quota?"""
    HURTS = "hurts"
    """Is a quiet client harmed by greedy ones?"""
    TAKES = "takes"
    """How much does the target take?"""


def question_text(question: Question) -> str:
    """Return the commented file of a scenario that answers a question and runs as it is."""
    folder = files("kafka_quotas.loadtest.scenario") / "questions"
    return (folder / f"{question.value}{_SUFFIX}").read_text("utf-8")


def shipped_names() -> tuple[str, ...]:
    """Return the names of the shipped scenarios, sorted."""
    return tuple(sorted(_shipped()))


def _shipped() -> dict[str, Traversable]:
    folders = (files("kafka_quotas.loadtest") / "scenarios").iterdir()
    found = (each for folder in folders if folder.is_dir() for each in folder.iterdir())
    return {each.name.removesuffix(_SUFFIX): each for each in found if each.name.endswith(_SUFFIX)}


def _file_text(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"cannot read {path}: {reason}", hint="it holds a scenario in YAML") from error
