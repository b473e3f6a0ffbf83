"""Shell scripts of `kafka-configs` commands: what they set one after the other, as one entry per entity.

The shell is not run. A command is what its words say, with quotes, comments and continued lines; what the shell would
put in place of a word (a variable, a command, a pattern) is refused, except where it can't matter: in the path of the
program, and as the address and the properties of the connection. So are loops, conditions and functions. Other commands
of the script are passed over, and so are those that describe. A key that is removed is declared as not set.

**Source:** POSIX.1-2017, Shell Command Language, 2.2 (quoting) and 2.3 (tokens).
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import dropwhile
from typing import Final

from kafka_quotas.commands.kafka_configs.command import (
    NOT_SUPPORTED,
    Action,
    checked_options,
    command_of,
)
from kafka_quotas.commands.kafka_configs.options import KafkaConfigsError
from kafka_quotas.commands.other_tools.formats import Found, Read, ToolFormat, figures
from kafka_quotas.core.changes.plan import Content
from kafka_quotas.core.formats.nodes import Diagnostic, DocumentError, SourceLocation, shown
from kafka_quotas.core.model.entity import CLIENT_ID, IP, USER, Entity
from kafka_quotas.core.quota_files.writer import Quotas

_PROGRAM: Final = re.compile(r"(?:.*/)?kafka-configs(?:\.sh)?")
_WRAPPERS: Final = frozenset(
    {"sudo", "docker", "podman", "kubectl", "oc", "exec", "time", "env", "nice", "timeout", "kafka-quotas"}
)
"""Commands that run the program that their arguments name."""
_TALKERS: Final = frozenset({"echo", "printf", "which", "type", "command", "alias"})
_KEYWORDS: Final = frozenset(
    {"if", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "function", "select", "eval"}
    | {"{", "}", "!", "[["}
)
_CONNECTION: Final = ("--bootstrap-server", "--bootstrap-controller", "--command-config", "--zookeeper")
_TYPES: Final = {USER: "users", CLIENT_ID: "clients", IP: "ips"}
_HINT: Final = "write it out, or run the script and export the cluster: kafka-quotas export --bootstrap-server ..."
_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t\r]+)
    |(?P<joined>\\\r?\n)
    |(?P<end>\n|;|&&?|\|\|?|\(|\))
    |(?P<redirect>(?:(?<![^\s;&|()<>])[0-9]+)?(?:<<-?|>>|[<>]&?))
    |(?P<single>'[^']*')
    |(?P<double>"(?:[^"\\]|\\.)*")
    |(?P<escape>\\.)
    |(?P<expansion>\$\{[^}]{0,200}\}|\$\([^)]{0,200}\)|\$\w+|\$.|`[^`]{0,200}`)
    |(?P<plain>[^\s'"\\;&|()<>$`]+)""",
    re.VERBOSE | re.DOTALL,
)
_IN_DOUBLE: Final = re.compile(r"\\([$`\"\\])|\\\n")
_EXPANSION: Final = re.compile(
    r"(?<!\\)(?:\\\\)*(\$(?:\{[^}]{0,200}\}?|\([^)]{0,200}\)?|\w+|[@*#?$!-])|`[^`]{0,200}`?)"
)
_PATTERN: Final = re.compile(r"[*?{}]|(?:^|[=:])~")


@dataclass(slots=True)
class _Word:
    line: int
    text: str = ""
    expands: str | None = None
    """What the shell would replace."""


def _commands(text: str, source: str) -> Iterator[tuple[list[_Word], str]]:
    """Yield the words of each command of a script, and what separates it from the command before."""
    words: list[_Word] = []
    word, after, line, at, is_file = None, "\n", 1, 0, False
    while at < len(text):
        if word is None and text[at] == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
            continue
        token = _TOKEN.match(text, at)
        if token is None:
            raise _problem(source, line, "a quote is not closed")
        kind, part = str(token.lastgroup), token[0]
        if kind in ("blank", "end", "redirect"):
            word = None
        if kind == "redirect" and "<<" in part:
            raise _problem(source, line, "a here-document")
        if kind == "redirect":
            is_file = True
        elif kind == "end":
            yield words, after
            words, after = [], part
        elif kind not in ("blank", "joined"):
            if word is None:
                word = _Word(line)
                if not is_file:
                    words.append(word)
                is_file = False
            _extend(word, kind, part)
        line += part.count("\n")
        at = token.end()
    yield words, after


def _extend(word: _Word, kind: str, part: str) -> None:
    text, expands = part, None
    match kind:
        case "single":
            text = part[1:-1]
        case "double":
            text = _IN_DOUBLE.sub(lambda match: match[1] or "", part[1:-1])
            expands = match[1] if (match := _EXPANSION.search(part[1:-1])) else None
        case "escape":
            text = part[1]
        case "expansion":
            expands = part
        case _ if _PATTERN.search(part):
            expands = part
    word.text += text
    word.expands = word.expands or expands


def _problem(source: str, line: int, message: str) -> DocumentError:
    return DocumentError(Diagnostic(location=SourceLocation(source=source, line=line), message=message, hint=_HINT))


class _Script(Found):
    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.quotas: dict[Entity, tuple[int, dict[str, float | None]]] = {}

    def run(self, words: list[_Word], after: str) -> None:
        """Add what a command sets."""
        words = list(dropwhile(lambda word: re.match(r"\w+=", word.text), words))  # variables of it alone
        if not words:
            return
        first, line = words[0].text, words[0].line
        if first in _KEYWORDS or after in "()":
            self._refuse(line, f"only the shell knows what {shown(first)} makes of the commands in it")
            return
        at = next((index for index, word in enumerate(words) if _PROGRAM.fullmatch(word.text)), None)
        if at is None or first in _TALKERS:
            return
        if at and first not in _WRAPPERS:
            self._refuse(line, f"kafka-configs run by {shown(first)}")
        elif after in ("||", "|"):
            self._refuse(line, f"a command after {after}")
        else:
            self._configure(words[at + 1 :], line)

    def _configure(self, words: list[_Word], line: int) -> None:
        for before, word in zip(("", *(each.text for each in words)), words, strict=False):
            is_connection = word.text.partition("=")[0] in _CONNECTION or before in _CONNECTION
            if word.expands is not None and not is_connection:
                self._refuse(word.line, f"only the shell knows the value of {shown(word.expands)}")
                return
        try:
            options = checked_options([word.text for word in words], resolves=lambda _: True)
            command = command_of(options, load_properties=_no_file)
            if command.action is Action.ALTER:
                _, quotas = self.quotas.get(command.entity, (line, {}))
                changes = command.changes(dict.fromkeys(command.deleted, 0.0))
                self.quotas[command.entity] = (line, {**quotas, **dict(changes)})
        except KafkaConfigsError as error:
            if error.error_class == NOT_SUPPORTED:
                self.leave_out(self.at(line), error.message.partition(";")[0])
            else:
                self.refuse(self.at(line), error.message, error.hint)

    def _refuse(self, line: int, message: str) -> None:
        self.refuse(self.at(line), message, _HINT)


def _no_file(path: str) -> Mapping[str, str]:
    raise KafkaConfigsError(f"the keys are in another file: {path}")


def _read(text: str, source: str) -> Read:
    script = _Script(source)
    for words, after in _commands(text, source):
        script.run(words, after)
    for entity, (line, quotas) in script.quotas.items():
        script.add(script.at(line), entity.to_mapping(), quotas)
    return script.document()


_HEADER: Final = """\
#!/bin/sh
# BOOTSTRAP_SERVER is the address of a broker, host:port.
set -eu
"""


def _write(content: Content) -> str:
    return _HEADER + "".join(_command_text(entity, quotas) for entity, quotas in content.items())


def _command_text(entity: Entity, quotas: Quotas) -> str:
    names = " ".join(
        f"--entity-type {_TYPES[kind]} {'--entity-default' if name is None else f'--entity-name {shlex.quote(name)}'}"
        for kind, name in entity.parts
    )
    pairs = ",".join(map("=".join, figures(quotas)))
    return f'kafka-configs.sh --bootstrap-server "$BOOTSTRAP_SERVER" --alter {names} \\\n  --add-config {pairs}\n'


def _unfit(entity: Entity, _: Quotas, __: Content) -> str | None:
    has_nul = any("\0" in (name or "") for _, name in entity.parts)
    return "no argument of a command holds a NUL" if has_nul else None


FORMAT: Final = ToolFormat(read=_read, write=_write, unfit=_unfit)
