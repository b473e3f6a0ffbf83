"""Completion of an option's value without Typer: of the 0.3 s that a Tab may take, Typer's import alone takes most.

Contract: an option that is completed here means the same in every command that has it, and the answer is Typer's own
where Typer has one. Everything else (commands, options, values that only one command knows) is left to Typer: the
answer is None then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_quotas.cli.completion.values import OF_ITSELF, OF_THE_STORE, complete_contexts

_BASH_SPECIAL = frozenset(" \t!\"#$&'()*;<>?[\\]^`{|}~")
_ZSH_ESCAPES = {'"': '""', "'": "''", "$": "\\$", "`": "\\`", ":": "\\\\:"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedLine:
    """A command line up to the cursor."""

    words: Sequence[str]
    incomplete: str
    kept: int = 0
    """The letters of that word that the shell keeps, before what it inserts."""
    quoted: bool = False
    """Whether that word began with a quote, which bash closes itself."""

    @property
    def params(self) -> Mapping[str, str | Sequence[str]]:
        """The values of the options that choose a store, and the entity types, by parameter name."""
        options: list[tuple[str, str]] = []
        for word, following in zip(self.words, (*self.words[1:], ""), strict=True):
            option, equals, value = word.partition("=")
            if option in _READ_OPTIONS:
                options.append((option, value if equals else following))
        store = {option.removeprefix("--").replace("-", "_"): value for option, value in options}
        return {**store, "entity_type": [value for option, value in options if option == "--entity-type"]}


_READ_OPTIONS = ("--store", "--context", "--bootstrap-server", "--zookeeper", "--command-config", "--entity-type")
_CONTEXT_COMMANDS = ("show", "use", "set", "remove")


def quick_answer(instruction: str, environment: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the text for a shell, and the exit code by which fish learns whether there are candidates.

    Returns:
        None if only Typer can give the answer.
    """
    action, _, shell = instruction.partition("_")
    if action != "complete" or shell not in ("bash", "zsh", "fish"):
        return None
    line = _bash_line(environment) if shell == "bash" else _other_line(environment)
    values = None if line is None else _values(line)
    if line is None or values is None:
        return None
    values = [value[line.kept :] for value in values]
    if shell == "fish" and environment.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return "", 0 if values else 1
    if shell == "bash" and not line.quoted:
        values = [_bash_text(value) for value in values]
    return (_zsh_text(values) if shell == "zsh" else "\n".join(values)) + "\n", 0


def _values(line: TypedLine) -> Sequence[str] | None:
    if line.incomplete.startswith("-") or "--" in line.words:
        return None
    last = line.words[-1] if line.words else ""
    if line.words[:1] == ["load-test"] and last == "--client":
        return None  # it is the library of a client there
    if last in OF_THE_STORE:
        return OF_THE_STORE[last](line, line.incomplete)
    if last in OF_ITSELF:
        return OF_ITSELF[last](line.incomplete)
    if len(line.words) == 2 and line.words[0] == "context" and last in _CONTEXT_COMMANDS:
        return complete_contexts(line.incomplete)
    return None


def _bash_line(environment: Mapping[str, str]) -> TypedLine | None:
    """Return the words of the line as bash passes them, up to the cursor.

    Bash breaks words at `=` and `:` as well, and replaces only the last piece by what is offered.
    """
    pieces = _split(environment.get("COMP_WORDS", ""))
    try:
        position = int(environment.get("COMP_CWORD", ""))
    except ValueError:
        return None
    last = pieces[position] if position < len(pieces) else ""
    *words, incomplete = _rejoined([*pieces[1:position], last])
    option, equals, value = incomplete.partition("=")
    if option.startswith("--") and equals:
        words, incomplete = [*words, option], value
    typed = "" if _is_break(last) else last
    quoted = environment.get("COMP_WORDS", "").rpartition("\n")[2].startswith(("'", '"'))
    return TypedLine(words=words, incomplete=incomplete, kept=max(0, len(incomplete) - len(typed)), quoted=quoted)


def _rejoined(pieces: Sequence[str]) -> list[str]:
    words: list[str] = []
    broken = False
    for piece in pieces:
        if words and (broken or _is_break(piece)):
            words[-1] += piece
        else:
            words.append(piece)
        broken = _is_break(piece)
    return words


def _is_break(piece: str) -> bool:
    return bool(piece) and not piece.strip("=:")


def _other_line(environment: Mapping[str, str]) -> TypedLine:
    text = environment.get("_TYPER_COMPLETE_ARGS", "")
    words = _split(text)[1:]
    if words and not text.endswith(" "):
        return TypedLine(words=words[:-1], incomplete=words[-1])
    return TypedLine(words=words, incomplete="")


def _split(text: str) -> list[str]:
    """Split the text into words as a shell does."""
    import shlex  # noqa: PLC0415 - a run that completes nothing does without

    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:
        words.append(lexer.token)
    return words


def _bash_text(value: str) -> str:
    """Return a value as a person types it in bash.

    Bash takes offered text literally, so that blanks need their backslash here.
    """
    return "".join(f"\\{letter}" if letter in _BASH_SPECIAL else letter for letter in value)


def _zsh_text(values: Sequence[str]) -> str:
    if not values:
        return "_files"
    quoted = ('"' + "".join(_ZSH_ESCAPES.get(letter, letter) for letter in value) + '"' for value in values)
    return f"_arguments '*: :(({chr(10).join(quoted)}))'"
