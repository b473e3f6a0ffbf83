"""Shell scripts of `kafka-configs` commands: what they set one after the other, as one entry per entity.

The shell is not run. A command is what its words say, with quotes, comments and continued lines; what the shell would
put in place of a word (a variable, a command, a pattern) is refused, except where it can't matter: in the path of the
program, and as the address and the properties of the connection. So are loops, conditions and functions. Other commands
of the script are passed over, and so are those that describe. A key that is removed is declared as not set.

**Source:** POSIX.1-2017, Shell Command Language, 2.2 (quoting) and 2.3 (tokens).
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile, pairwise
from typing import Final, NamedTuple

from kafka_quotas.commands.kafka_configs.command import NOT_SUPPORTED, Action, checked_options, command_of
from kafka_quotas.commands.kafka_configs.options import KafkaConfigsError
from kafka_quotas.commands.other_tools.formats import Found, Read, ToolFormat, figures
from kafka_quotas.core.changes.plan import Content
from kafka_quotas.core.formats.nodes import DocumentError, shown
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
_EXPANSION: Final = r"\$\{[^}]{0,200}\}|\$\([^)]{0,200}\)|\$\w+|\$.|`[^`]{0,200}`"
_PIECE: Final = rf"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(?:\r?\n|(.))|({_EXPANSION})|([^ \t\r\n'"\\;&|()<>$`]+)"""
"""A part of a word: in single quotes, in double quotes, escaped, put in by the shell, or plain."""
_PIECES: Final = re.compile(_PIECE, re.DOTALL)
_TOKEN: Final = re.compile(
    rf"""(?P<blank>(?:[ \t\r]|\\\r?\n)++|\#[^\n]*)
    |(?P<end>\n|;|&&?|\|\|?|\(|\))
    |(?P<redirect>[0-9]*(?:<<-?|>>|[<>]&?))
    |(?P<word>(?:{_PIECE})++)""",
    re.VERBOSE | re.DOTALL,
)
_IN_DOUBLE: Final = re.compile(r"\\([$`\"\\])|\\\n")
_IN_DOUBLE_EXPANSION: Final = re.compile(
    r"(?<!\\)(?:\\\\)*(\$(?:\{[^}]{0,200}\}?|\([^)]{0,200}\)?|\w+|[@*#?$!-])|`[^`]{0,200}`?)"
)
_PATTERN: Final = re.compile(r"[*?{}]|(?:^|[=:])~")


class _Word(NamedTuple):
    line: int
    text: str
    expands: str | None
    """What the shell would replace."""


def _commands(text: str, found: Found) -> Iterator[tuple[list[_Word], str]]:
    """Yield the words of each command of a script, and what separates it from the command before."""
    words: list[_Word] = []
    after, line, at, is_file = "\n", 1, 0, False
    while at < len(text):
        token = _TOKEN.match(text, at)
        kind, part = (token.lastgroup, token[0]) if token else ("", "")
        if token is None or (kind == "redirect" and "<<" in part):
            message = "a here-document" if token else "a quote is not closed"
            raise DocumentError.at(found.source, message, line=line, hint=_HINT)
        if kind == "end":
            yield words, after
            words, after = [], part
        elif kind == "word" and not is_file:
            words.append(_word(line, part))
        is_file = kind == "redirect" or (is_file and kind == "blank")
        line += part.count("\n")
        at = token.end()
    yield words, after


def _word(line: int, written: str) -> _Word:
    text, expands = "", None
    for single, double, escaped, expansion, plain in _PIECES.findall(written):
        text += single + _IN_DOUBLE.sub(r"\1", double) + escaped + expansion + plain
        in_double = _IN_DOUBLE_EXPANSION.search(double)
        expands = expands or expansion or (in_double and in_double[1]) or (_PATTERN.search(plain) and plain)
    return _Word(line, text, expands)


def _arguments(words: Sequence[_Word], after: str, found: Found) -> list[str] | None:
    """Return the arguments of a command of the program, None for any other and for one that is refused."""
    first, line = words[0].text, words[0].line
    at = next((index for index, word in enumerate(words) if _PROGRAM.fullmatch(word.text)), None)
    if first in _KEYWORDS or after in "()":
        reason = f"only the shell knows what {shown(first)} makes of the commands in it"
    elif at is None or first in _TALKERS:
        return None
    elif at and first not in _WRAPPERS:
        reason = f"kafka-configs run by {shown(first)}"
    elif after in ("||", "|"):
        reason = f"a command after {after}"
    elif (unknown := next(_unknown(words[at:]), None)) is not None:
        line, reason = unknown.line, f"only the shell knows the value of {shown(unknown.expands)}"
    else:
        return [word.text for word in words[at + 1 :]]
    found.refuse(found.at(line), reason, _HINT)
    return None


def _unknown(words: Sequence[_Word]) -> Iterator[_Word]:
    for before, word in pairwise(words):
        is_connection = word.text.partition("=")[0] in _CONNECTION or before.text in _CONNECTION
        if word.expands and not is_connection:
            yield word


def _no_file(path: str) -> Mapping[str, str]:
    raise KafkaConfigsError(f"the keys are in another file: {path}")


def _read(text: str, source: str) -> Read:
    found = Found(source)
    altered: dict[Entity, tuple[int, dict[str, float | None]]] = {}
    for every, after in _commands(text, found):
        words = list(dropwhile(lambda word: re.match(r"\w+=", word.text), every))  # variables of it alone
        arguments = _arguments(words, after, found) if words else None
        if arguments is None:
            continue
        line = words[0].line
        try:
            command = command_of(checked_options(arguments, resolves=lambda _: True), load_properties=_no_file)
            if command.action is Action.ALTER:
                _, quotas = altered.get(command.entity, (line, {}))
                changes = command.changes(dict.fromkeys(command.deleted, 0.0))
                altered[command.entity] = (line, {**quotas, **dict(changes)})
        except KafkaConfigsError as error:
            if error.error_class == NOT_SUPPORTED:
                found.leave_out(found.at(line), error.message.partition(";")[0])
            else:
                found.refuse(found.at(line), error.message, error.hint)
    for entity, (line, quotas) in altered.items():
        place = found.at(line)
        found.add(place, entity.to_mapping(), [(place, *each) for each in quotas.items()])
    return found.document()


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
