"""Completion of an option's value without Typer: of the 0.3 s that a Tab may take, Typer's import alone takes most.

An option that is completed here means the same in every command that has it, and the answer is Typer's own where Typer
has one. Everything else (commands, options, values that only one command knows) is left to Typer.

Values are live: stored entities, quota keys, stores. A small local file is read at once. For any other store, a process
of its own reads the names and writes them into a file that is valid for a minute. If it needs longer than `WAIT_S`, the
prompt continues without names, and the next Tab has them.

Invariants: completing never fails, never changes a store, and never takes longer than `WAIT_S` beyond reading a file.
That file holds nothing but names, and only this user can read it.

`python -m kafka_quotas.cli.completion.values OPTIONS` reads the names of a store for completion.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kafka_quotas.cli.completion import COMPLETE_VARIABLE
from kafka_quotas.cli.framework.store_choice import StoreChoice, choose_store
from kafka_quotas.cli.output.listing import Output
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.formats.documents import load_json, read_text
from kafka_quotas.core.model.entity import CLIENT_ID, ENTITY_TYPES, IP, USER
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.stores import replace_text

LONG_TYPES: Final[Mapping[str, str]] = {"users": USER, "clients": CLIENT_ID, "ips": IP}


def complete_keys(incomplete: str) -> list[str]:
    """Return the quota keys that begin with what follows the last comma."""
    done, comma, last = incomplete.rpartition(",")
    return [f"{done}{comma}{key}" for key in QUOTA_KEYS if key.startswith(last)]


def complete_assignments(incomplete: str) -> list[str]:
    """Return the quota keys with `=` that begin with what follows the last comma."""
    return [f"{text}=" for text in complete_keys(incomplete)]


def complete_contexts(incomplete: str) -> list[str]:
    """Return the names of contexts that begin so."""
    from kafka_quotas.stores import contexts_path, read_contexts  # noqa: PLC0415 - only completing pays

    try:
        contexts = read_contexts(contexts_path())
    except KafkaQuotasError:
        return []
    return [context.name for context in contexts.contexts if context.name.startswith(incomplete)]


def _complete_names(entity_type: str, ctx: Any, incomplete: str) -> list[str]:
    """Return the names in the store of a type, or with none of the type that was typed last."""
    typed = {} if ctx is None else ctx.params
    types = typed.get("entity_type") or [""]
    kind = entity_type or LONG_TYPES.get(types[-1])
    options = {name: str(typed[name]) for name in _STORE_OPTIONS if typed.get(name) is not None}
    return [name for name in stored_names(options, kind) if name.startswith(incomplete)] if kind else []


OF_THE_STORE: Final[Mapping[str, Callable[[Any, str], list[str]]]] = {
    "--user": lambda ctx, incomplete: _complete_names(USER, ctx, incomplete),
    "--client": lambda ctx, incomplete: _complete_names(CLIENT_ID, ctx, incomplete),
    "--ip": lambda ctx, incomplete: _complete_names(IP, ctx, incomplete),
    "--entity-name": lambda ctx, incomplete: _complete_names("", ctx, incomplete),
}
"""The completion of options by names in the store that the command line chooses, by option."""
OF_ITSELF: Final[Mapping[str, Callable[[str], list[str]]]] = {
    "--context": complete_contexts,
    "--store": lambda incomplete: _beginning(incomplete, ("local:", "zk://", "kafka://", "static:")),
    "--add-config": complete_assignments,
    "--delete-config": complete_keys,
    "--key": complete_keys,
    "--entity-type": lambda incomplete: _beginning(incomplete, LONG_TYPES),
    "--output": lambda incomplete: _beginning(incomplete, Output),
}
"""The completion of options by values that are known without a store, by option."""


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


WAIT_S = 0.1
"""Starting the interpreter takes most of the 0.3 s that a Tab may take."""
FRESH_S = 60.0
GIVE_UP_S = 10.0
"""How long the process that asks may take, and how long no other is started beside it."""
SMALL_FILE_BYTES = 4 * 1024 * 1024
_LOOK_S = 0.01

Names = Mapping[str, Sequence[str]]


TypedStore = Mapping[str, Any]
"""The options of a command line that choose a store, by parameter name, as far as they are typed."""
_STORE_OPTIONS: Final = ("store", "context", "bootstrap_server", "zookeeper", "command_config")


def stored_names(options: TypedStore, entity_type: str) -> Sequence[str]:
    """Return the names of a type in the chosen store, none where reading them takes too long."""
    try:
        choice = choose_store(**options)
        if _is_small_file(choice.url.value):
            return _read_names(choice).get(entity_type, ())
        return _remembered(options, choice).get(entity_type, ())
    except (KafkaQuotasError, OSError):
        return ()


def _read_names(choice: StoreChoice) -> Names:
    from kafka_quotas.core.model.entity import EVERYTHING  # noqa: PLC0415 - a fresh file of names does without

    with closing(choice.open()) as store:
        entities = [entry.entity for entry in store.describe(EVERYTHING)]
    return {
        kind: sorted({name for entity in entities if isinstance(name := entity.part(kind), str)})
        for kind in ENTITY_TYPES
    }


def refresh(options: TypedStore) -> None:
    """Read the names of the chosen store and write them into its file of names."""
    choice = choose_store(**options)
    replace_text(names_path(choice), [json.dumps(_read_names(choice))], private=True)


def names_path(choice: StoreChoice) -> Path:
    """Return the path of a store's file of names, and create its folder."""
    from hashlib import sha256  # noqa: PLC0415 - a small file does without

    from platformdirs import user_cache_path  # noqa: PLC0415

    folder = user_cache_path("kafka-quotas", appauthor=False)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    chosen = json.dumps([choice.url.value, choice.command_config.value, choice.context_name.value])
    return folder / f"names-{sha256(chosen.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}.json"


def _is_small_file(url: str | None) -> bool:
    if url is None:
        return True
    scheme, _, path = url.partition(":")
    if scheme not in ("local", "static", "sqlite"):
        return False
    with suppress(OSError):
        return os.path.getsize(path.removeprefix("//")) < SMALL_FILE_BYTES  # noqa: PTH202 - an unexpanded ~ is no matter
    return True


def _remembered(options: TypedStore, choice: StoreChoice) -> Names:
    """Return the names in the file, and first wait for new ones if they are older than a minute."""
    path = names_path(choice)
    if not _is_fresh(path):
        _start_refresh(options, path)
        deadline_s = time.monotonic() + WAIT_S
        while not _is_fresh(path) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
    found: Names = {}
    with suppress(ValueError):
        found = load_json(read_text(path)) if _is_fresh(path) else {}
    return found


def _is_fresh(path: Path, *, for_s: float = FRESH_S) -> bool:
    try:
        return time.time() - path.stat().st_mtime < for_s
    except OSError:
        return False


def _start_refresh(options: TypedStore, path: Path) -> None:
    started = path.with_suffix(".asking")
    if _is_fresh(started, for_s=GIVE_UP_S):
        return
    started.touch(mode=0o600)
    command = [sys.executable, "-m", "kafka_quotas.cli.completion.values", json.dumps(options)]
    environment = {name: value for name, value in os.environ.items() if name != COMPLETE_VARIABLE}
    nowhere = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)]
    # Not by subprocess, which would want it to be waited for: it may well outlive this process.
    os.posix_spawn(sys.executable, command, environment, file_actions=nowhere, setsid=True)


if __name__ == "__main__":
    signal.setitimer(signal.ITIMER_REAL, GIVE_UP_S)  # whatever a server does, nothing is left behind
    with suppress(KafkaQuotasError, OSError):
        refresh(json.loads(sys.argv[1]))


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
    if shell == "bash" and not line.quoted:  # bash takes offered text literally, so that blanks need their backslash
        values = ["".join(f"\\{each}" if each in _BASH_SPECIAL else each for each in value) for value in values]
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


def _zsh_text(values: Sequence[str]) -> str:
    if not values:
        return "_files"
    quoted = ('"' + "".join(_ZSH_ESCAPES.get(letter, letter) for letter in value) + '"' for value in values)
    return f"_arguments '*: :(({chr(10).join(quoted)}))'"
