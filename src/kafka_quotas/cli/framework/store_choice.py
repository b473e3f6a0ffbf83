"""Which store a command talks to, and what made that choice.

Invariants: an option beats a variable, a variable beats a context, a context beats the default; the ways to name a
store exclude each other; an empty option is refused, because it is an unset shell variable more often than a wish. What
a context says about logging in goes with its store: it is not used for a store that was named otherwise.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from kafka_quotas.cli.output.render import is_terminal, warn, write
from kafka_quotas.core.described import Described
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import read_properties
from kafka_quotas.stores import (
    Context,
    Store,
    StoreKind,
    StoreSettings,
    StoreUrl,
    UnresponsiveBrokers,
    contexts_path,
    default_store_url,
    open_store,
    parse_store_url,
    read_contexts,
)

STORE_VARIABLE = "KAFKA_QUOTAS_STORE"
COMMAND_CONFIG_VARIABLE = "KAFKA_QUOTAS_COMMAND_CONFIG"
CONTEXT_VARIABLE = "KAFKA_QUOTAS_CONTEXT"
_CONTEXT_SCHEME = "context:"


class Origin(StrEnum):
    """Where a setting came from, strongest first."""

    OPTION = "option"
    VARIABLE = "variable"
    CONTEXT = "context"
    DEFAULT = "default"


class Setting(NamedTuple):
    """A setting's value and its origin, without a value if it is not set."""

    value: str | None = None
    origin: Origin = Origin.DEFAULT
    source: Annotated[str | None, Described(text="the option, variable, context or file")] = None


UNSET: Final = Setting()


@dataclass(frozen=True, kw_only=True)  # no slots: the client properties are kept once they were read
class StoreChoice:
    """The chosen store and how a command logs in to it."""

    url: Setting
    """The address, None for the local store in the user's data folder."""
    command_config: Setting
    """The file of client properties."""
    context_name: Setting = UNSET
    """The name of the context in force, if any."""
    context: Context | None = None
    """That context, None where none is in force."""
    login: Context | None = None
    """That context where its login settings apply."""

    @cached_property
    def address(self) -> StoreUrl:
        """The parsed address."""
        return default_store_url() if self.url.value is None else parse_store_url(self.url.value)

    @property
    def place(self) -> str:
        """The address in words, with the context that names it."""
        name = self.context_name.value
        return f"{self.address} (context {name})" if name else str(self.address)

    @property
    def chosen(self) -> bool:
        """Whether somebody chose the store, by option, variable or context."""
        return self.url.origin is not Origin.DEFAULT

    def settings(self, *, allow_invalid: bool = False, wait: bool = True) -> StoreSettings:
        """Return the settings to open the store with."""
        return StoreSettings(
            client_properties=self._client_properties,
            allow_invalid=allow_invalid,
            wait=wait,
            warn=warn,
            unresponsive=self._unresponsive,
        )

    @cached_property
    def _unresponsive(self) -> UnresponsiveBrokers:
        return UnresponsiveBrokers()  # silent to any connection of this command

    @cached_property
    def same_stores(self) -> set[str]:
        """Other addresses that this command has found to lead to the store."""
        return set()

    @cached_property
    def _client_properties(self) -> Mapping[str, str]:
        """The properties, read only once, because a password command may ask a person."""
        if self.login is not None:
            return self.login.client_properties()
        return read_properties(Path(self.command_config.value)) if self.command_config.value else {}

    def open(self, *, allow_invalid: bool = False, wait: bool = True) -> Store:
        """Open the store, which the caller closes."""
        return open_store(self.address, settings=self.settings(allow_invalid=allow_invalid, wait=wait))

    def open_existing(self) -> Store:
        """Open the store for reading alone, which the caller closes."""
        self.check_exists()
        return self.open()

    def check_exists(self) -> None:
        """Check that a local store that somebody named is there: a mistyped path reads like an empty store."""
        address = self.address
        if self.chosen and address.kind is StoreKind.LOCAL and not address.path.exists():
            raise _missing(address.path)

    def confirm_change(self, *, yes: bool) -> None:
        """Ask before the store changes if any context protects it, unless `yes` agrees already."""
        context = None if yes else read_contexts(contexts_path()).protecting(self.address)
        if context is not None:
            confirm(f"this changes {self.address}, which is protected as context {context.name}")

    def check_place(self) -> None:
        """Check that a local store that somebody named has a folder, in which a first change can make it."""
        address = self.address
        if self.chosen and address.kind is StoreKind.LOCAL and not address.path.parent.is_dir():
            raise _missing(address.path)


def confirm(what: str) -> None:
    """Ask before something that is not ours alone changes."""
    if not is_terminal(sys.stdin):
        raise UsageError(what, hint="--yes agrees to that")
    import typer  # noqa: PLC0415 - seldom needed

    typer.confirm(f"{what}. Go on?", abort=True, err=True)


def _missing(path: Path) -> UsageError:
    """Return the error for a local store that is to be read and was never written."""
    missing = next((folder for folder in reversed(path.parents) if not folder.is_dir()), None)
    return UsageError(
        f"there is no store at {path}" + ("" if missing is None else f": there is no folder {missing}"),
        hint="check the path; the first change by alter or apply makes the file",
    )


def choose_store(
    *,
    store: str | None = None,
    bootstrap_server: str | None = None,
    zookeeper: str | None = None,
    command_config: Path | str | None = None,
    context: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> StoreChoice:
    """Choose the store by the options, the environment and the file of contexts.

    `store` may be `context:NAME`, which is the same as `context`.
    """
    named = store_options(store=store, bootstrap_server=bootstrap_server, zookeeper=zookeeper, context=context)
    option, value = next(iter(named.items()), ("", None))
    url = _setting(option, value, STORE_VARIABLE, environment)
    file = None if command_config is None else str(command_config)
    config = _setting("--command-config", file, COMMAND_CONFIG_VARIABLE, environment)
    name = _context_in_force(option, url, environment)
    return StoreChoice(url=url, command_config=config) if name is None else _choice_of(name, config)


def store_options(
    *,
    store: str | None = None,
    bootstrap_server: str | None = None,
    zookeeper: str | None = None,
    context: str | None = None,
) -> dict[str, str]:
    """Return the option that names the store with its address, none where no option does."""
    named: dict[str, str] = {}
    for option, value, scheme in (
        ("--store", store, ""),
        ("--context", context, ""),
        ("--bootstrap-server", bootstrap_server, "kafka://"),
        ("--zookeeper", zookeeper, "zk://"),
    ):
        if value is None:
            continue
        if not value.strip():
            raise UsageError(f"{option} is empty", hint="is the shell variable behind it set?")
        if scheme and "://" in value:
            raise UsageError(f"{option} takes HOST:PORT, not a URL: {value!r}", hint=f"write --store {value}")
        named[option] = scheme + value
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} exclude each other", hint="each names the store; give one")
    return named


def choose_known_store(
    url: str, *, command_config: Path | None = None, environment: Mapping[str, str] = os.environ
) -> StoreChoice:
    """Choose one store by its address or as `context:NAME`.

    The context of that store decides how to log in. A file of client properties, by option or variable, beats the
    context.
    """
    choice = choose_store(store=url, command_config=command_config, environment=environment)
    if choice.context_name.value is not None or choice.command_config.origin is not Origin.DEFAULT:
        return choice
    context = read_contexts(contexts_path()).at(url)
    if context is None:
        return choice
    return _choice_of(Setting(context.name, Origin.CONTEXT, str(contexts_path())), choice.command_config)


def _context_in_force(option: str, url: Setting, environment: Mapping[str, str]) -> Setting | None:
    """Return the context in force, None where a stronger setting names the store, or no context is in use."""
    if url.value is not None:
        is_context = option == "--context" or url.value.startswith(_CONTEXT_SCHEME)
        return url._replace(value=url.value.removeprefix(_CONTEXT_SCHEME)) if is_context else None
    name, path = _setting("", None, CONTEXT_VARIABLE, environment), contexts_path()
    if name.value is None:
        name = Setting(read_contexts(path).current, Origin.CONTEXT, str(path))
    return None if name.value is None else name


def _choice_of(name: Setting, config: Setting) -> StoreChoice:
    """Return the store of a context.

    The login of the context applies unless an option or variable of the same or a higher rank names client properties.
    """
    context = read_contexts(contexts_path()).get(name.value or "")
    outdone = config.origin is Origin.OPTION or (
        config.origin is Origin.VARIABLE and not (name.origin is Origin.OPTION and context.logs_in)
    )
    path = context.command_config_path
    own = UNSET if path is None else Setting(str(path), Origin.CONTEXT, context.name)
    return StoreChoice(
        url=Setting(context.store_url, Origin.CONTEXT, context.name),
        command_config=config if outdone else own,
        context_name=name,
        context=context,
        login=None if outdone else context,
    )


def _setting(name: str, option: str | None, variable: str, environment: Mapping[str, str]) -> Setting:
    if option is not None:
        return Setting(option, Origin.OPTION, name)
    if environment.get(variable):
        return Setting(environment[variable], Origin.VARIABLE, variable)
    return UNSET


def print_static_note(store_url: str) -> None:
    """Note that a static store's file has no quota property, as an empty or a wrong file would."""
    address = parse_store_url(store_url)
    if not address.kind.is_static:
        return
    from kafka_quotas.stores import static_properties_missing  # noqa: PLC0415 - few stores are such files

    missing = static_properties_missing(address.path)
    if missing is not None:
        write(f"note: {missing}\nhint: is it the right file?", sys.stderr)
