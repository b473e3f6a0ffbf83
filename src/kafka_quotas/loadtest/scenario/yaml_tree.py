"""A YAML file as a tree in which every node knows its line, and no value is interpreted yet.

Invariants: there are no aliases, anchors or tags, so a small file can't become a large tree. A name occurs once in a
mapping. Numbers and words are texts, as their meaning depends on their location.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quota_files.document import QuotaFileError, SourceLocation
from kafka_quotas.stores.files.yaml_reader import YamlReader

MAX_CHARACTERS: Final = 1_000_000
_NULLS: Final = ("null", "~", "")


class ScenarioError(UsageError):
    """An error in a scenario, with file and line at the start of the message."""

    line: int | None = None
    faults: "tuple[ScenarioError, ...]" = ()
    """All errors of the file by line, where there are several; this one is the first."""

    @classmethod
    def of_all(cls, faults: "Sequence[ScenarioError]") -> "ScenarioError":
        """Return one error for several, which names the first and counts the others."""
        every = sorted((each for fault in faults for each in fault.faults or (fault,)), key=lambda each: each.line or 0)
        if len(every) == 1:
            return every[0]
        error = cls(f"{every[0].message} (and {len(every) - 1} more, see load-test validate)", hint=every[0].hint)
        error.line, error.faults = every[0].line, tuple(every)
        return error


@dataclass(frozen=True, slots=True)
class YamlNode:
    """A part of a file."""

    location: SourceLocation
    value: "str | tuple[YamlNode, ...] | dict[str, YamlNode] | None"
    """A text (None: null), the nodes of a list, or those of a mapping by name."""

    def problem(self, message: str, hint: str | None = None) -> ScenarioError:
        """Return the error for this part, with its line."""
        error = ScenarioError(f"{self.location}: {message}", hint=hint)
        error.line = self.location.line
        return error

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
        tree: YamlNode | None = _TreeReader(text, source).read()
    except QuotaFileError as error:
        raise ScenarioError(error.message, hint=error.hint) from error
    except RecursionError as error:
        raise ScenarioError(f"{source} is nested too deep", hint="a scenario has three or four levels") from error
    if tree is None:
        raise ScenarioError(f"{source} is empty", hint="kafka-quotas load-test list shows those that are shipped")
    return tree


class _TreeReader(YamlReader):
    """Builds a node of every value."""

    def scalar(self, event: Any, depth: int) -> str | None:
        return None if not event.style and event.value in _NULLS else super().scalar(event, depth)

    def value(self, event: Any, depth: int, name: str = "") -> YamlNode:
        value = super().value(event, depth, name)
        return YamlNode(self.location(event), tuple(value) if isinstance(value, list) else value)

    def name(self, event: Any) -> str:
        name = self.value(event, 0)
        if not isinstance(name.value, str):
            raise name.problem("a name is not a plain text")
        return name.value
