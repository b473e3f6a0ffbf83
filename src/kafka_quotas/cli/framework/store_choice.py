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
from typing import Annotated

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting's value and its origin."""

    value: str | None
    """None where it is not set."""
    origin: Origin
    source: Annotated[str | None, Described(text="the option, variable, context or file")] = None


@dataclass(frozen=True, kw_only=True)  # no slots: the client properties are kept once they were read
class StoreChoice:
    """The chosen store and how a command logs in to it."""

    url: Setting
    """The address, None for the local store in the user's data folder."""
    command_config: Setting
    """The file of client properties."""
    context_name: Setting = Setting(value=None, origin=Origin.DEFAULT)
    """The name of the context in force, if any."""
    context: Context | None = None
    """That context, None where none is in force."""
    login: Context | None = None
    """That context where its login settings apply."""

    @cached_property
    def address(self) -> StoreUrl:
        """The parsed address.

        Raises:
            UsageError: It can't be parsed.
        """
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
        """Return the settings to open the store with.

        Raises:
            UsageError: The properties file can't be read.
            KafkaQuotasError: A secret of the context is not available.
        """
        return StoreSettings(
            client_properties=self._client_properties,
            allow_invalid=allow_invalid,
            wait=wait,
            warn=warn,
            unresponsive=self._unresponsive,
        )

    @cached_property
    def _unresponsive(self) -> UnresponsiveBrokers:
        """The brokers that were silent to any connection of this command."""
        return UnresponsiveBrokers()

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
        """Open the store, which the caller closes.

        Raises:
            UsageError: The address or the properties file can't be parsed.
            KafkaQuotasError: A secret of the context is not available.
        """
        return open_store(self.address, settings=self.settings(allow_invalid=allow_invalid, wait=wait))

    def open_existing(self) -> Store:
        """Open the store for reading alone, which the caller closes.

        Raises:
            UsageError: As `open` does, or as `check_exists` does.
            KafkaQuotasError: A secret of the context is not available.
        """
        self.check_exists()
        return self.open()

    def check_exists(self) -> None:
        """Check that a local store that somebody named is there: a mistyped path reads like an empty store.

        Raises:
            UsageError: It is not.
        """
        address = self.address
        if self.chosen and address.kind is StoreKind.LOCAL and not address.path.exists():
            raise _missing(address.path)

    def confirm_change(self, *, yes: bool) -> None:
        """Ask before the store changes if any context protects it, unless `yes` agrees already.

        Raises:
            UsageError: Nobody can be asked.
            typer.Abort: The user does not agree.
        """
        context = None if yes else read_contexts(contexts_path()).protecting(self.address)
        if context is not None:
            confirm(f"this changes {self.address}, which is protected as context {context.name}")

    def check_place(self) -> None:
        """Check that a local store that somebody named has a folder, in which a first change can make it.

        Raises:
            UsageError: It has none, so that no quota could ever come from there.
        """
        address = self.address
        if self.chosen and address.kind is StoreKind.LOCAL and not address.path.parent.is_dir():
            raise _missing(address.path)


def confirm(what: str) -> None:
    """Ask before something that is not ours alone changes.

    Raises:
        UsageError: Nobody can be asked, because standard input is no terminal.
        typer.Abort: The user does not agree.
    """
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
    store: str | None,
    bootstrap_server: str | None = None,
    zookeeper: str | None = None,
    command_config: Path | None = None,
    context: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> StoreChoice:
    """Choose the store by the options, the environment and the file of contexts.

    `store` may be `context:NAME`, which is the same as `context`.

    Raises:
        UsageError: Two options name a store, one is empty, or there is no such context.
    """
    named = store_options(store=store, bootstrap_server=bootstrap_server, zookeeper=zookeeper, context=context)
    chosen = _named_context(named, environment)
    config = _setting(
        "--command-config",
        None if command_config is None else str(command_config),
        COMMAND_CONFIG_VARIABLE,
        environment,
    )
    if chosen is not None:
        return _choice_of(chosen, config)
    option, url = next(iter(named.items()), ("", None))
    return StoreChoice(url=_setting(option, url, STORE_VARIABLE, environment), command_config=config)


def store_options(
    *, store: str | None, bootstrap_server: str | None = None, zookeeper: str | None = None, context: str | None = None
) -> dict[str, str]:
    """Return the option that names the store with its address, none where no option does.

    Raises:
        UsageError: Two options name a store, or one is empty.
    """
    short = {"--bootstrap-server": (bootstrap_server, "kafka://"), "--zookeeper": (zookeeper, "zk://")}
    options = {"--store": store, "--context": context} | {
        name: _with_scheme(name, *pair) for name, pair in short.items()
    }
    named = {name: value for name, value in options.items() if value is not None}
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} exclude each other", hint="each names the store; give one")
    for name, value in named.items():
        _refuse_empty(name, value)
    return named


def choose_known_store(
    url: str, *, command_config: Path | None = None, environment: Mapping[str, str] = os.environ
) -> StoreChoice:
    """Choose one store by its address or as `context:NAME`.

    The context of that store decides how to log in. A file of client properties, by option or variable, beats the
    context.

    Raises:
        UsageError: The file of contexts can't be read.
    """
    choice = choose_store(store=url, command_config=command_config, environment=environment)
    if choice.context_name.value is not None or choice.command_config.origin is not Origin.DEFAULT:
        return choice
    context = read_contexts(contexts_path()).at(url)
    if context is None:
        return choice
    in_force = Setting(value=context.name, origin=Origin.CONTEXT, source=str(contexts_path()))
    return _choice_of(in_force, choice.command_config)


def _named_context(named: Mapping[str, str], environment: Mapping[str, str]) -> Setting | None:
    """Return the context in force.

    Returns:
        None where a stronger setting names the store, or no context is in use.
    """
    for option, value in named.items():
        if option == "--context":
            return Setting(value=value, origin=Origin.OPTION, source=option)
        if not value.startswith(_CONTEXT_SCHEME):
            return None
        return Setting(value=value.removeprefix(_CONTEXT_SCHEME), origin=Origin.OPTION, source=option)
    variable = environment.get(STORE_VARIABLE)
    if variable:
        name = variable.removeprefix(_CONTEXT_SCHEME)
        found = Setting(value=name, origin=Origin.VARIABLE, source=STORE_VARIABLE)
        return None if name == variable else found
    if environment.get(CONTEXT_VARIABLE):
        return Setting(value=environment[CONTEXT_VARIABLE], origin=Origin.VARIABLE, source=CONTEXT_VARIABLE)
    path = contexts_path()
    current = read_contexts(path).current
    return None if current is None else Setting(value=current, origin=Origin.CONTEXT, source=str(path))


def _choice_of(name: Setting, config: Setting) -> StoreChoice:
    """Return the store of a context.

    The login of the context applies unless an option or variable of the same or a higher rank names client properties.
    """
    context = read_contexts(contexts_path()).get(name.value or "")
    url = Setting(value=context.store_url, origin=Origin.CONTEXT, source=context.name)
    outdone = config.origin is Origin.OPTION or (
        config.origin is Origin.VARIABLE and not (name.origin is Origin.OPTION and context.logs_in)
    )
    if outdone:
        return StoreChoice(url=url, command_config=config, context_name=name, context=context)
    path = context.command_config_path
    own = Setting(value=str(path), origin=Origin.CONTEXT, source=context.name)
    unset = Setting(value=None, origin=Origin.DEFAULT)
    config = unset if path is None else own
    return StoreChoice(url=url, command_config=config, context_name=name, context=context, login=context)


def _with_scheme(name: str, address: str | None, scheme: str) -> str | None:
    if address is None:
        return None
    _refuse_empty(name, address)
    if "://" in address:
        raise UsageError(f"{name} takes HOST:PORT, not a URL: {address!r}", hint=f"write --store {address}")
    return scheme + address


def _refuse_empty(name: str, value: str) -> None:
    if not value.strip():
        raise UsageError(f"{name} is empty", hint="is the shell variable behind it set?")


def _setting(name: str, option: str | None, variable: str, environment: Mapping[str, str]) -> Setting:
    if option is not None:
        return Setting(value=option, origin=Origin.OPTION, source=name)
    if environment.get(variable):
        return Setting(value=environment[variable], origin=Origin.VARIABLE, source=variable)
    return Setting(value=None, origin=Origin.DEFAULT)


def print_static_note(store_url: str) -> None:
    """Note that a static store's file has no quota property, as an empty or a wrong file would."""
    address = parse_store_url(store_url)
    if not address.kind.is_static:
        return
    from kafka_quotas.stores import static_properties_missing  # noqa: PLC0415 - few stores are such files

    missing = static_properties_missing(address.path)
    if missing is not None:
        write(f"note: {missing}\nhint: is it the right file?", sys.stderr)
