"""Scenarios from files: those of the user, and those that are shipped, by name."""

from enum import StrEnum
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from kafka_quotas.core.errors import UsageError, near_hint
from kafka_quotas.core.formats.documents import read_text
from kafka_quotas.core.formats.nodes import DocumentError
from kafka_quotas.core.formats.typed_document import filled, schema_of
from kafka_quotas.loadtest.scenario.model import SCENARIO_SCHEMA, Scenario

_SUFFIX: Final = ".yaml"
_MAX_CHARACTERS: Final = 1_000_000


def read_scenario(name_or_path: str) -> Scenario:
    """Return the scenario in a file, or the one that is shipped under a name.

    A path has a slash or a suffix.

    Raises:
        UsageError: There is no such file or name.
        DocumentError: The text is no scenario, with everything that is wrong in it.
    """
    if "/" in name_or_path or name_or_path.endswith((_SUFFIX, ".yml")):
        try:
            content = read_text(Path(name_or_path))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise UsageError(f"cannot read {name_or_path}: {reason}", hint="it holds a scenario in YAML") from error
        return parse_scenario(content, name_or_path)
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


def parse_scenario(content: str, source: str) -> Scenario:
    """Parse a scenario, whose name or file is `source` in messages.

    The YAML is read as a tree in which no value is interpreted yet: there are no aliases, anchors or tags, so that a
    small file can't become a large tree.

    Raises:
        DocumentError: The text is no scenario, with everything that is wrong in it.
    """
    from kafka_quotas.stores.files.yaml_reader import yaml_node  # noqa: PLC0415 - loads PyYAML

    if len(content) > _MAX_CHARACTERS:
        raise UsageError(f"{source} is too large for a scenario", hint=f"the most is {_MAX_CHARACTERS} characters")
    node = yaml_node(content, source)
    if node.value is None:
        raise UsageError(f"{source} is empty", hint="kafka-quotas load-test list shows those that are shipped")
    scenario, problems = filled(Scenario, node)
    if scenario is None or problems:
        raise DocumentError(*sorted(problems, key=lambda each: each.location.line or 0))
    return scenario


def scenario_json_schema() -> dict[str, Any]:
    """Return the JSON schema of scenario files, which describes their shape for editors and pipelines.

    What it can't express (a topic that is named but not listed, a rate in multiples of no quota) `load-test validate`
    reports.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCENARIO_SCHEMA,
        "description": "A load test: its clients, its quotas, and what is to come out.",
        **schema_of(Scenario),
    }


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
