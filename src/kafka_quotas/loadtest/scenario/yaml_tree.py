"""A YAML file as a tree in which every node knows its line, and no value is interpreted yet.

Invariants: there are no aliases, anchors or tags, so a small file can't become a large tree. A name occurs once in a
mapping. Numbers and words are texts, as their meaning depends on their place.
"""

from dataclasses import dataclass
from typing import Final

import yaml

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quota_files.document import SourceLocation

MAX_CHARACTERS: Final = 1_000_000
_NULLS: Final = ("null", "~", "")


class ScenarioError(UsageError):
    """An error in a scenario, with file and line at the start of the message."""


@dataclass(frozen=True, slots=True)
class YamlNode:
    """A part of a file."""

    place: SourceLocation
    value: "str | tuple[YamlNode, ...] | dict[str, YamlNode] | None"
    """A text (None: null), the nodes of a list, or those of a mapping by name."""

    def problem(self, message: str, hint: str | None = None) -> ScenarioError:
        """Return the error for this part, with its line."""
        return ScenarioError(f"{self.place}: {message}", hint=hint)

    @property
    def kind(self) -> str:
        """A noun for the value, or a text's own words."""
        if self.value is None:
            return "null"
        if isinstance(self.value, str):
            return repr(self.value[:40])
        return "a list" if isinstance(self.value, tuple) else "a mapping"


def read_tree(text: str, source: str) -> YamlNode:
    """Return the tree of the one document in a text.

    Raises:
        ScenarioError: The text is too large, is not YAML, or has several documents, aliases, anchors or tags.
    """
    if len(text) > MAX_CHARACTERS:
        raise ScenarioError(f"{source} is too large for a scenario", hint=f"the most is {MAX_CHARACTERS} characters")
    try:
        _refuse_tricks(text, source)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = SourceLocation(source=source, line=None if mark is None else mark.line + 1)
        raise ScenarioError(f"{place}: not YAML: {getattr(error, 'problem', None) or 'it ends early'}") from error
    except RecursionError as error:
        raise ScenarioError(f"{source} is nested too deep", hint="a scenario has three or four levels") from error
    if root is None:
        raise ScenarioError(f"{source} is empty", hint="kafka-quotas load-test list shows those that are shipped")
    return _node(root, source)


def _refuse_tricks(text: str, source: str) -> None:
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if getattr(event, "anchor", None) is not None:
            raise _at(event, source).problem("anchors and aliases are not taken", "write it out")
        if getattr(event, "tag", None) not in (None, "!"):
            raise _at(event, source).problem("tags are not taken", "leave it out")


def _at(event: yaml.Event, source: str) -> YamlNode:
    mark = event.start_mark
    return YamlNode(SourceLocation(source=source, line=None if mark is None else mark.line + 1), None)


def _node(node: yaml.Node, source: str) -> YamlNode:
    place = SourceLocation(source=source, line=node.start_mark.line + 1)
    if isinstance(node, yaml.ScalarNode):
        null = node.style is None and node.value in _NULLS
        return YamlNode(place, None if null else node.value)
    if isinstance(node, yaml.SequenceNode):
        return YamlNode(place, tuple(_node(item, source) for item in node.value))
    parts: dict[str, YamlNode] = {}
    for key, value in node.value:
        name = _node(key, source)
        if not isinstance(name.value, str):
            raise name.problem("a name is not a plain text")
        if name.value in parts:
            raise name.problem(f"{name.value[:40]!r} stands twice", "keep one of them")
        parts[name.value] = _node(value, source)
    return YamlNode(place, parts)
