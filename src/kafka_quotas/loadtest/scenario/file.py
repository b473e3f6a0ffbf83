"""Scenarios from files: those of the user, and those that are shipped, by name."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.scenario.model import Scenario

_SUFFIX: Final = ".yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedText:
    """The text of a scenario."""

    text: str
    source: str
    """The name of the scenario or file in messages."""


def read_scenario(name_or_path: str) -> Scenario:
    """Return the scenario in a file, or the one that is shipped under a name.

    Raises:
        UsageError: There is no such file or name.
        ScenarioError: The text is no scenario. The message has the line.
    """
    return parse_scenario(scenario_text(name_or_path))


def parse_scenario(named: NamedText) -> Scenario:
    """Parse a scenario.

    Raises:
        ScenarioError: The text is no scenario. The message has the line.
    """
    from kafka_quotas.loadtest.scenario.fields import read  # noqa: PLC0415 - loads PyYAML
    from kafka_quotas.loadtest.scenario.sections import SCENARIO  # noqa: PLC0415
    from kafka_quotas.loadtest.scenario.yaml_tree import read_tree  # noqa: PLC0415

    scenario: Scenario = read(SCENARIO, read_tree(named.text, named.source))
    return scenario


def shipped_names() -> tuple[str, ...]:
    """Return the names of the shipped scenarios, sorted."""
    folder = files("kafka_quotas.loadtest") / "scenarios"
    return tuple(sorted(each.name.removesuffix(_SUFFIX) for each in folder.iterdir() if each.name.endswith(_SUFFIX)))


def scenario_text(name_or_path: str) -> NamedText:
    """Return the text of a file, or of the shipped scenario of that name.

    A path has a slash or a suffix.

    Raises:
        UsageError: There is no such file or name.
    """
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        return _from_file(Path(name_or_path))
    if name_or_path not in shipped_names():
        raise UsageError(
            f"no scenario is called {name_or_path!r}",
            hint="kafka-quotas load-test list shows them; a file of your own is named with its .yaml",
        )
    resource = files("kafka_quotas.loadtest") / "scenarios" / f"{name_or_path}{_SUFFIX}"
    return NamedText(text=resource.read_text("utf-8"), source=name_or_path)


def _from_file(path: Path) -> NamedText:
    try:
        return NamedText(text=path.read_text("utf-8"), source=str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"cannot read {path}: {reason}", hint="it holds a scenario in YAML") from error
