"""The tools whose files of quotas are read and written: how a file is recognised, and what reading and writing return.

Contract: nothing is dropped. A reader turns each quota into an entry with its file and line. What it can't know without
running the other tool (a variable, a loop) is a problem, and what Kafka has no quota for is listed as left out. A
writer gets only what its tool can express: anything else is refused with a reason for each entity.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

from kafka_quotas.core.changes.plan import Content, key_rank
from kafka_quotas.core.changes.validation import our_refusals
from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.formats.nodes import Diagnostic, DocumentError, Plain, SourceLocation, kind_of, shown, word_value
from kafka_quotas.core.groups.group import Group
from kafka_quotas.core.java import parse_double
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import is_threshold_entity
from kafka_quotas.core.quota_files.declarations import QuotaDocument, RawEntry
from kafka_quotas.core.quota_files.writer import Quotas, plain_figure

Read = tuple[QuotaDocument, tuple[Diagnostic, ...]]
"""A document without entries that have a problem, and all problems."""
_SHOWN: Final = 20


class Tool(StrEnum):
    """The tools with files of quotas."""

    KAFKA_CONFIGS = "kafka-configs"
    STRIMZI = "strimzi"
    TERRAFORM = "terraform"
    JIKKOU = "jikkou"
    RPK = "rpk"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """The files of a tool."""

    read: Callable[[str, str], Read]
    """Reads a text, given the name of the file for messages."""
    write: Callable[[Content], str]
    """Returns the text of a file."""
    unfit: Callable[[Entity, Quotas, Content], str | None]
    """Returns why an entity's quotas can't be among the content of a file, or None."""


_MODULES: Final = {
    Tool.KAFKA_CONFIGS: "shell_script:FORMAT",
    Tool.STRIMZI: "manifests:STRIMZI",
    Tool.TERRAFORM: "terraform:FORMAT",
    Tool.JIKKOU: "manifests:JIKKOU",
    Tool.RPK: "rpk:FORMAT",
}
_SUFFIXES: Final = {".tf": Tool.TERRAFORM, ".sh": Tool.KAFKA_CONFIGS, ".bash": Tool.KAFKA_CONFIGS}
_TEXTS: Final = (
    # A name at the margin is one of the whole document; JSON and flow style begin with a brace instead.
    (Tool.STRIMZI, re.compile(r"^[\"']?apiVersion[\"']?\s*:|\A\s*\{\s*\"?(apiVersion|kind)\"?\s*:", re.MULTILINE)),
    (Tool.RPK, re.compile(r"^[\"']?quotas[\"']?\s*:|\A\s*\{\s*\"?quotas\"?\s*:", re.MULTILINE)),
)
_BARE_TEXTS: Final = (
    (Tool.TERRAFORM, re.compile(r"^resource\s+\"", re.MULTILINE)),
    (Tool.KAFKA_CONFIGS, re.compile(r"^[^#\n]*\bkafka-configs(\.sh)?[\"'\s]", re.MULTILINE)),
)
"""What only files without a known suffix are searched for."""


def recognised(path: str, text: str) -> Tool | None:
    """Return the tool that a file is of by its suffix or content, or None for any other file."""
    suffix = Path(path).suffix
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    searched = {".toml": ()}.get(suffix, _TEXTS if suffix in (".yaml", ".yml", ".json") else (*_TEXTS, *_BARE_TEXTS))
    return next((tool for tool, pattern in searched if pattern.search(text)), None)


def format_of(tool: Tool) -> ToolFormat:
    """Return the format of a tool."""
    found: ToolFormat = resolve_name(f"{__package__}.{_MODULES[tool]}")
    return found


def tool_text(content: Content, tool: Tool, groups: Sequence[Group] = ()) -> str:
    """Return the text of a tool's file with these quotas.

    Raises:
        DocumentError: The tool can't express some of them, as it can't any group; all of which are listed.
    """
    form = format_of(tool)
    found = [(entity, _unfit(form, entity, content)) for entity in content]
    found += [(group.entity, "Kafka has no groups, and other tools don't know them") for group in groups]
    problems = [Diagnostic(location=SourceLocation(source=str(of)), message=reason) for of, reason in found if reason]
    if problems:
        last = min(len(problems), _SHOWN) - 1
        hint = "nothing was written; --selector exports some entities alone"
        problems[last] = replace(problems[last], hint=hint)
        raise DocumentError(*problems)
    return form.write(content)


def _unfit(form: ToolFormat, entity: Entity, content: Content) -> str | None:
    if is_threshold_entity(entity):
        return "Kafka has no thresholds, and other tools don't know them"
    refused = our_refusals(entity, content[entity])
    return form.unfit(entity, content[entity], content) if refused is None else refused.message


class Found:
    """The entries, problems and left out quotas found so far in a file."""

    def __init__(self, source: str, hint: str | None = None) -> None:
        """Take the file, and the way out of figures that are none."""
        self.source = source
        self._hint = hint
        self._entries: list[RawEntry] = []
        self._left_out: list[Diagnostic] = []
        self.problems: list[Diagnostic] = []

    def at(self, line: int) -> SourceLocation:
        """Return the location of a line."""
        return SourceLocation(source=self.source, line=line)

    def add(
        self,
        location: SourceLocation,
        entity: Mapping[str, str | None],
        given: Iterable[tuple[SourceLocation, str, object]],
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """Add the quotas of an entity, given as place, name and figure, unless one is a problem.

        With `keys` the names are the tool's own, in whose files null is as good as nothing.
        """
        problems = len(self.problems)
        quotas: dict[str, float | None] = {}
        for place, name, value in given:
            if keys is not None and name not in keys:
                self.refuse(place, "unknown quota", f"the quotas are {', '.join(keys)}")
                continue
            try:
                quotas[name if keys is None else keys[name]] = _figure(value)
            except InvalidQuotaError as error:
                self.refuse(place, f"{name}: {error.message}" if keys is None else error.message, self._hint)
        if keys is not None:
            quotas = {key: figure for key, figure in quotas.items() if figure is not None}
        if len(self.problems) == problems and (quotas or keys is None):
            self._entries.append(RawEntry(location=location, entity=entity, quotas=quotas))

    def refuse(self, location: SourceLocation, message: str, hint: str | None = None) -> None:
        """Add a problem."""
        self.problems.append(Diagnostic(location=location, message=message, hint=hint))

    def leave_out(self, location: SourceLocation, message: str) -> None:
        """Add something that Kafka has no quota for."""
        self._left_out.append(Diagnostic(location=location, message=message))

    def document(self) -> Read:
        """Return all that was found."""
        document = QuotaDocument(
            location=SourceLocation(source=self.source), entries=tuple(self._entries), left_out=tuple(self._left_out)
        )
        return document, tuple(self.problems)


def _figure(value: object) -> float | None:
    """Return the number that a file of another tool has, which knows no units, or None for null."""
    if isinstance(value, Plain):
        value = word_value(value)
    if isinstance(value, str):
        return parse_double(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidQuotaError(f"not a number: {kind_of(value) if isinstance(value, dict | list) else shown(value)}")
    return value


def figures(quotas: Quotas) -> list[tuple[str, str]]:
    """Return the keys in the order of a file, each with its figure in all digits."""
    return [(key, plain_figure(key, quotas[key])) for key in sorted(quotas, key=key_rank)]
