"""Contexts: named clusters, each with its store, the login for it and what measures its usage, and their file.

`examples/contexts.toml` is such a file.

Contract: a file that is not understood whole is refused whole, and a secret written into it is refused by name. Edits
leave everything else in the file, comments included, as it is: the changed text is parsed again and must give exactly
the wanted contexts. If edits of lines can't do that (contexts as inline tables, for instance) the file stays as it was.

Invariants: a context holds references to secrets, never secrets: in a file, in an environment variable, or printed by a
command. A secret is read when it is needed, never kept, and never part of a message. The text of a reference shows no
secret either, so it has only the program's name of a command. A login goes to the context's own store and to no other.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self

from kafka_quotas.core.errors import KafkaQuotasError, UsageError, near_hint
from kafka_quotas.core.formats.documents import read_properties, read_text
from kafka_quotas.core.formats.nodes import toml_node
from kafka_quotas.core.formats.typed_document import FieldSpec, read_record
from kafka_quotas.stores.address import StoreKind, StoreUrl, is_address_of, parse_store_url
from kafka_quotas.stores.files.atomic_write import replace_text

COMMAND_TIMEOUT_S = 60.0
"""Long enough to type the passphrase that a password manager asks for."""


class SecretPlace(StrEnum):
    """The kind of place that holds a secret."""

    FILE = "file"
    VARIABLE = "variable"
    COMMAND = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A reference to a secret."""

    place: SecretPlace
    where: str
    """The file's path, the variable's name, or the command line."""

    def __str__(self) -> str:
        shown = shlex.split(self.where)[0] if self.place is SecretPlace.COMMAND else self.where
        return f"(secret, from the {self.place} {shown})"

    def read(self, *, folder: Path, environment: Mapping[str, str] = os.environ) -> str:
        """Read the secret, by a path relative to the folder, and remove line ends at its end."""
        match self.place:
            case SecretPlace.FILE:
                text = _read_file(folder / Path(self.where).expanduser())
            case SecretPlace.VARIABLE:
                text = environment.get(self.where, "")
            case SecretPlace.COMMAND:
                text = _read_command(self.where, folder)
        secret = text.rstrip("\r\n")
        if not secret:
            raise KafkaQuotasError(f"a secret is empty: {self}", hint=_HINTS[self.place])
        return secret


_HINTS = {
    SecretPlace.FILE: "write the password into the file, on one line",
    SecretPlace.VARIABLE: "set the variable in the environment of the command",
    SecretPlace.COMMAND: "the command has to print the password on standard output",
}


def secret_at(place: SecretPlace, where: object) -> Secret:
    """Return the reference to a secret by a path, a name, or a command line or list of words."""
    if place is SecretPlace.COMMAND and isinstance(where, list) and all(isinstance(word, str) for word in where):
        where = shlex.join(where)
    if not isinstance(where, str) or not where.strip():
        raise UsageError(f"a secret's {place} is not named", hint="it is a text in quotes")
    if place is SecretPlace.COMMAND:
        try:
            shlex.split(where)
        except ValueError:
            raise UsageError("a password command has a quote that is not closed") from None
    return Secret(place=place, where=where)


def _read_file(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise KafkaQuotasError(f"cannot read the secret in {path}: {reason}") from error


def _read_command(command: str, folder: Path) -> str:
    """Return what the command prints on standard output, while it may prompt on the terminal."""
    words = shlex.split(command)
    try:
        # The command is the user's own, from a file that only the user writes; no shell sees it.
        done = subprocess.run(  # noqa: S603
            words,
            stdout=subprocess.PIPE,
            check=True,
            timeout=COMMAND_TIMEOUT_S,
            cwd=folder if folder.is_dir() else None,
        )
        return done.stdout.decode()
    except subprocess.CalledProcessError as error:
        # Neither the command line nor its output may show up in a traceback.
        raise KafkaQuotasError(f"the password command {words[0]} failed with exit code {error.returncode}") from None
    except subprocess.TimeoutExpired:
        raise KafkaQuotasError(f"the password command {words[0]} took longer than {COMMAND_TIMEOUT_S:g} s") from None
    except OSError as error:
        raise KafkaQuotasError(f"cannot run the password command {words[0]}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise KafkaQuotasError(f"the password command {words[0]} printed no UTF-8") from None


_SECRET_NAME = re.compile(
    r"password|passphrase|secret|jaas\.config$|keystore\.key$|zookeeper\.auth$|token$", re.IGNORECASE
)
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
_DIGEST_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"


def is_secret_property(name: str) -> bool:
    """Return whether a client property of this name holds a secret."""
    return not name.endswith((".location", ".url")) and _SECRET_NAME.search(name) is not None


def checked_context_name(name: str) -> str:
    """Return the name where a context can have it."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise UsageError(f"not a name for a context: {name!r}", hint="letters, digits and . _ - make a name")
    return name


def checked_metrics_url(text: str) -> str:
    """Return the URL where metrics can be read from it, over HTTP."""
    if not re.match(r"https?://[^/\s]+", text):
        raise UsageError(f"not the URL of metrics: {text!r}", hint="for example http://prometheus.example:9090")
    return text


_PASSWORDS: Final = tuple(f"password_{place}" for place in SecretPlace)


def _some(text: str) -> str:
    if not text.strip():
        raise UsageError("it is empty")
    return text


def _refused_password(_: object) -> None:
    raise UsageError("a password must not be written here", hint=f"use one of {', '.join(_PASSWORDS)}")


def _checked_store(url: str) -> str:
    parse_store_url(url)
    return url


def _urls(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(checked_metrics_url, (given,) if isinstance(given, str) else given))


def _properties(given: Mapping[str, object]) -> dict[str, str | Secret]:
    return {name: _property(name, value) for name, value in given.items()}


def _property(name: str, value: object) -> str | Secret:
    if isinstance(value, dict):
        places = {place.value: place for place in SecretPlace}
        if len(value) != 1 or not places.keys() >= value.keys():
            raise UsageError(f"property {name} is not a reference", hint='write { file = "..." }, variable or command')
        ((place, where),) = value.items()
        return secret_at(places[place], where)
    if is_secret_property(name):
        raise UsageError(
            f"property {name} is a secret and must not be written here", hint='refer to it: { file = "..." }'
        )
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"property {name} is neither a text nor a reference")
    return str(value)


_Text = Annotated[str | None, FieldSpec(_some)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A named cluster: its store, a login, further client properties, and what measures its usage."""

    name: Annotated[str, FieldSpec(name="")] = ""
    folder: Annotated[Path, FieldSpec(name="")] = Path()
    """The folder of the contexts file, which relative paths start from."""
    store_url: Annotated[str, FieldSpec(_checked_store, name="store", example='"kafka://host:9092"')]
    command_config: _Text = None
    username: _Text = None
    """The user who logs in, None without a login."""
    plain_password: Annotated[object, FieldSpec(_refused_password, name="password")] = None
    password_file: Annotated[Secret | None, FieldSpec(partial(secret_at, SecretPlace.FILE), takes=object)] = None
    password_variable: Annotated[Secret | None, FieldSpec(partial(secret_at, SecretPlace.VARIABLE), takes=object)] = (
        None
    )
    password_command: Annotated[Secret | None, FieldSpec(partial(secret_at, SecretPlace.COMMAND), takes=object)] = None
    control: _Text = None
    prometheus: Annotated[
        tuple[str, ...], FieldSpec(_urls, takes=str | tuple[str, ...], example='"http://prometheus.example:9090"')
    ] = ()
    """The URLs of the brokers' metrics, or of the Prometheus server that has them."""
    protected: bool = False
    """Whether a change of its store is asked about first."""
    properties: Annotated[Mapping[str, str | Secret], FieldSpec(_properties, takes=Mapping[str, object])] = field(
        default_factory=dict
    )
    """Further client properties, secrets as references."""

    def __post_init__(self) -> None:
        given = [name for name in _PASSWORDS if getattr(self, name) is not None]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} exclude each other")
        if (self.username is None) != (not given):
            raise UsageError("username and password go together", hint=f"a password is one of {', '.join(_PASSWORDS)}")

    @property
    def password(self) -> Secret | None:
        """The reference to the password."""
        return self.password_file or self.password_variable or self.password_command

    def logging_in(self, username: str | None, password: Secret | None) -> Self:
        """Return the context with this login."""
        places: dict[str, Any] = dict.fromkeys(_PASSWORDS)
        if password is not None:
            places[f"password_{password.place}"] = password
        return replace(self, username=username, **places)

    @property
    def logs_in(self) -> bool:
        """Whether the context sets anything that concerns the login."""
        return bool(self.command_config or self.username or self.properties)

    @property
    def command_config_path(self) -> Path | None:
        """The path of the file of client properties, None without one."""
        return None if self.command_config is None else self.folder / Path(self.command_config).expanduser()

    @property
    def control_path(self) -> Path | None:
        """The path of the control socket, None without one."""
        return None if self.control is None else self.folder / Path(self.control).expanduser()

    def client_properties(self) -> dict[str, str]:
        """Return the client properties, with every secret read and filled in.

        Those of the context override those of the file, and the login overrides both.
        """
        path = self.command_config_path
        found = {} if path is None else read_properties(path)
        for name, value in self.properties.items():
            found[name] = value.read(folder=self.folder) if isinstance(value, Secret) else value
        if self.username is not None and self.password is not None:
            found |= self._login(found, self.password.read(folder=self.folder))
        return found

    def _login(self, properties: Mapping[str, str], password: str) -> dict[str, str]:
        if parse_store_url(self.store_url).kind is StoreKind.ZOOKEEPER:
            return {"zookeeper.sasl.jaas.config": _jaas(_DIGEST_LOGIN, self.username or "", password)}
        scram = properties.get("sasl.mechanism", "").strip().upper().startswith("SCRAM")
        return {
            # Without this the login would be left out without a word; and a password must not travel in the clear.
            "security.protocol": properties.get("security.protocol", "SASL_SSL"),
            "sasl.jaas.config": _jaas(_SCRAM_LOGIN if scram else _PLAIN_LOGIN, self.username or "", password),
        }


def _jaas(module: str, username: str, password: str) -> str:
    return f'{module} required username="{_escaped(username)}" password="{_escaped(password)}";'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _checked_names(tables: Mapping[str, Context]) -> Mapping[str, Context]:
    return {checked_context_name(name): table for name, table in tables.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextsFile:
    """The file, as it is written."""

    current: _Text = None
    contexts: Annotated[Mapping[str, Context], FieldSpec(_checked_names)] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """The contexts of a file, sorted by name."""

    DOCUMENT: ClassVar = "file=path"
    path: Path
    contexts: tuple[Context, ...] = ()
    current: str | None = None
    """The name of the context in use, None for none."""
    text: str = field(default="", repr=False)

    def get(self, name: str) -> Context:
        """Return the context of this name."""
        for context in self.contexts:
            if context.name == name:
                return context
        names = [context.name for context in self.contexts]
        known = (
            f"the contexts are {', '.join(names)}" if names else "kafka-quotas context set NAME --store URL makes one"
        )
        hint = near_hint(name, names, otherwise=known)
        raise UsageError(f"there is no context {name!r} in {self.path}", hint=hint)

    def at(self, store_url: str) -> Context | None:
        """Return the context of a store: the one in use if it is of this store, else the first by name."""
        wanted = parse_store_url(store_url)
        found = [context for context in self.contexts if parse_store_url(context.store_url) == wanted]
        return next((context for context in found if context.name == self.current), found[0] if found else None)

    def protecting(self, place: StoreUrl) -> Context | None:
        """Return a protected context of a store, by whichever address the store is named."""
        return next((each for each in self.contexts if each.protected and is_address_of(each.store_url, place)), None)


def contexts_path() -> Path:
    """Return the path of this user's contexts file."""
    from platformdirs import user_config_path  # noqa: PLC0415 - only who needs contexts pays for it

    return user_config_path("kafka-quotas", appauthor=False) / "contexts.toml"


def read_contexts(path: Path) -> Contexts:
    """Return the contexts in a file, none where there is no file."""
    try:
        text = read_text(path)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts(path=path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"cannot read {path}: {reason}", hint="it holds the contexts") from error
    return parse_contexts(text, path=path)


def parse_contexts(text: str, *, path: Path) -> Contexts:
    """Return the contexts in the text of the file at `path`."""
    file = read_record(ContextsFile, toml_node(text, str(path), hint="it holds the contexts"))
    found = tuple(replace(each, name=name, folder=path.parent) for name, each in sorted(file.contexts.items()))
    contexts = Contexts(path=path, contexts=found, current=file.current, text=text)
    if contexts.current is not None:
        contexts.get(contexts.current)
    return contexts


def write_contexts(contexts: Contexts) -> None:
    """Write the text of the contexts to their file, readable by the user alone."""
    path = contexts.path
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_text(path, [contexts.text], private=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


_TABLE = re.compile(r"\s*\[")
_CURRENT = re.compile(r"\s*current\s*=")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def with_current(contexts: Contexts, name: str | None) -> Contexts:
    """Return the contexts with another one in use (None: none)."""
    if name is not None:
        contexts.get(name)
    lines = contexts.text.splitlines(keepends=True)
    head = next((index for index, line in enumerate(lines) if _TABLE.match(line)), len(lines))
    kept = [line for index, line in enumerate(lines) if index >= head or not _CURRENT.match(line)]
    new = [] if name is None else [f"current = {_quoted(name)}\n"]
    if new and kept and _TABLE.match(kept[0]):
        new.append("\n")
    return _checked("".join(new + kept), contexts, wanted=contexts.contexts, current=name)


def with_context(contexts: Contexts, context: Context) -> Contexts:
    """Return the contexts with this one added, or in the place of the one of its name."""
    others = tuple(other for other in contexts.contexts if other.name != context.name)
    lines = contexts.text.splitlines(keepends=True)
    kept, replaced = _without(lines, context.name)
    block = "".join(_block(context))
    if replaced is None:
        text = "".join(kept)
        gap = "\n" if text.endswith("\n") else "\n\n" if text else ""
        text = f"{text}{gap}{block}"
    else:
        text = "".join([*kept[:replaced], block, *(["\n"] if kept[replaced:] else []), *kept[replaced:]])
    wanted = tuple(sorted((*others, context), key=lambda each: each.name))
    return _checked(text, contexts, wanted=wanted, current=contexts.current)


def without_context(contexts: Contexts, name: str) -> Contexts:
    """Return the contexts without the one of this name."""
    contexts.get(name)
    left = with_current(contexts, None) if contexts.current == name else contexts
    kept, _ = _without(left.text.splitlines(keepends=True), name)
    others = tuple(other for other in left.contexts if other.name != name)
    return _checked("".join(kept), left, wanted=others, current=left.current)


def _without(lines: list[str], name: str) -> tuple[list[str], int | None]:
    key = rf"(?:{re.escape(name)}|{re.escape(_quoted(name))})"
    own = re.compile(rf"\s*\[\s*contexts\s*\.\s*{key}\s*(?:\.[^\]]*)?\]")
    kept: list[str] = []
    inside, begins = False, None
    for line in lines:
        if _TABLE.match(line):
            inside = own.match(line) is not None
            if inside and begins is None:
                begins = len(kept)
        if not inside:
            kept.append(line)
    return kept, begins


def _block(context: Context) -> Iterator[str]:
    header = f"contexts.{context.name if _BARE.fullmatch(context.name) else _quoted(context.name)}"
    yield f"[{header}]\nstore = {_quoted(context.store_url)}\n"
    for name in ("command_config", "username", *_PASSWORDS, "control", "prometheus", "protected"):
        value = getattr(context, name)
        if value:
            yield f"{name} = {_toml(value)}\n"
    if context.properties:
        yield f"\n[{header}.properties]\n"
    for name, value in context.properties.items():
        text = f"{{ {value.place} = {_toml(value)} }}" if isinstance(value, Secret) else _quoted(value)
        yield f"{_quoted(name)} = {text}\n"


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_quoted, value))}]"
    if isinstance(value, Secret):
        return _quoted(value.where)
    return _quoted(value) if isinstance(value, str) else "true"


def _quoted(text: str) -> str:
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda letter: f"\\u{ord(letter[0]):04x}", _escaped(text)) + '"'


def _checked(text: str, before: Contexts, *, wanted: tuple[Context, ...], current: str | None) -> Contexts:
    try:
        after = parse_contexts(text, path=before.path)
    except UsageError:
        after = before
    if (after.contexts, after.current) != (wanted, current):
        raise UsageError(f"{before.path} is laid out in a way that only a person can change", hint="edit it by hand")
    return after
