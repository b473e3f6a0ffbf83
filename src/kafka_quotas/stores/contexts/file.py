"""The file of contexts: `contexts.toml` in the user's configuration folder.

    current = "prod"

    [contexts.prod]
    store = "kafka://kafka1.example:9093"
    username = "ops"
    password_command = "pass show kafka/prod"
    control = "/run/kafka-quotas/daemon.sock"
    prometheus = ["http://prometheus.example:9090"]
    protected = true

    [contexts.prod.properties]
    "sasl.mechanism" = "SCRAM-SHA-512"
    "ssl.key.password" = { file = "prod-key.password" }

Contract: a file that is not understood whole is refused whole, and a secret written into it is refused by name. Edits
leave everything else in the file, comments included, as it is: the changed text is parsed again and must give exactly
the wanted contexts. If edits of lines can't do that (contexts as inline tables, for instance) the file stays as it was.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Final

from kafka_quotas.core.errors import UsageError, near_hint
from kafka_quotas.core.formats.documents import read_text
from kafka_quotas.core.formats.nodes import toml_node
from kafka_quotas.core.formats.typed_document import FieldSpec, read_record
from kafka_quotas.stores.contexts.context import (
    Context,
    Secret,
    SecretPlace,
    checked_context_name,
    checked_metrics_url,
    is_secret_property,
    secret_at,
)
from kafka_quotas.stores.files.atomic_write import replace_text
from kafka_quotas.stores.url import StoreUrl, is_address_of, parse_store_url

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
    """Return a client property: a plain text, or a reference such as `{ file = "..." }`."""
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
class _Table:
    """The table of a context, by the names of its settings."""

    store: Annotated[str, FieldSpec(_checked_store, example='"kafka://host:9092"')]
    command_config: _Text = None
    username: _Text = None
    password: Annotated[object, FieldSpec(_refused_password)] = None
    password_file: Annotated[Secret | None, FieldSpec(partial(secret_at, SecretPlace.FILE), takes=object)] = None
    password_variable: Annotated[Secret | None, FieldSpec(partial(secret_at, SecretPlace.VARIABLE), takes=object)] = (
        None
    )
    password_command: Annotated[Secret | None, FieldSpec(partial(secret_at, SecretPlace.COMMAND), takes=object)] = None
    control: _Text = None
    prometheus: Annotated[
        tuple[str, ...], FieldSpec(_urls, takes=str | tuple[str, ...], example='"http://prometheus.example:9090"')
    ] = ()
    protected: bool = False
    properties: Annotated[Mapping[str, str | Secret], FieldSpec(_properties, takes=Mapping[str, object])] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        given = [name for name in _PASSWORDS if getattr(self, name) is not None]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} exclude each other")
        if (self.username is None) != (not given):
            raise UsageError("username and password go together", hint=f"a password is one of {', '.join(_PASSWORDS)}")

    def context(self, name: str, folder: Path) -> Context:
        """Return the context of this name, in a file of this folder."""
        return Context(
            name=name,
            store_url=self.store,
            folder=folder,
            command_config=self.command_config,
            username=self.username,
            password=self.password_file or self.password_variable or self.password_command,
            properties=self.properties,
            control=self.control,
            prometheus=self.prometheus,
            protected=self.protected,
        )


def _checked_names(tables: Mapping[str, _Table]) -> Mapping[str, _Table]:
    for name in tables:
        checked_context_name(name)
    return tables


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    current: _Text = None
    contexts: Annotated[Mapping[str, _Table], FieldSpec(_checked_names)] = field(default_factory=dict)


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
    except FileNotFoundError:
        return Contexts(path=path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"cannot read {path}: {reason}", hint="it holds the contexts") from error
    return parse_contexts(text, path=path)


def parse_contexts(text: str, *, path: Path) -> Contexts:
    """Return the contexts in the text of the file at `path`."""
    file = read_record(_File, toml_node(text, str(path), hint="it holds the contexts"))
    contexts = Contexts(
        path=path,
        contexts=tuple(table.context(name, path.parent) for name, table in sorted(file.contexts.items())),
        current=file.current,
        text=text,
    )
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
    yield f"[{header}]\n"
    yield f"store = {_quoted(context.store_url)}\n"
    if context.command_config is not None:
        yield f"command_config = {_quoted(context.command_config)}\n"
    if context.username is not None and context.password is not None:
        yield f"username = {_quoted(context.username)}\n"
        yield f"password_{context.password.place} = {_quoted(context.password.where)}\n"
    if context.control is not None:
        yield f"control = {_quoted(context.control)}\n"
    if context.prometheus:
        yield f"prometheus = [{', '.join(map(_quoted, context.prometheus))}]\n"
    if context.protected:
        yield "protected = true\n"
    if context.properties:
        yield f"\n[{header}.properties]\n"
    for name, value in context.properties.items():
        text = f"{{ {value.place} = {_quoted(value.where)} }}" if isinstance(value, Secret) else _quoted(value)
        yield f"{_quoted(name)} = {text}\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(_letter(letter) for letter in escaped) + '"'


def _letter(letter: str) -> str:
    return f"\\u{ord(letter):04x}" if ord(letter) < 0x20 or ord(letter) == 0x7F else letter


def _checked(text: str, before: Contexts, *, wanted: tuple[Context, ...], current: str | None) -> Contexts:
    try:
        after = parse_contexts(text, path=before.path)
    except UsageError:
        after = before
    if (after.contexts, after.current) != (wanted, current):
        raise UsageError(f"{before.path} is laid out in a way that only a person can change", hint="edit it by hand")
    return after
