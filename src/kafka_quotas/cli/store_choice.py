"""Which store a command talks to, and what made that choice.

Invariants: an option beats a variable, a variable beats the default; the three ways to name a store exclude each
other; an empty option is refused, because it is an unset shell variable more often than a wish.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kafka_quotas.core.errors import UsageError
from kafka_quotas.stores.open_store import open_store
from kafka_quotas.stores.property_file import read_properties
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.store import Store

STORE_VARIABLE = "KAFKA_QUOTAS_STORE"
COMMAND_CONFIG_VARIABLE = "KAFKA_QUOTAS_COMMAND_CONFIG"


class Origin(StrEnum):
    """Where a setting came from, strongest first."""

    OPTION = "option"
    VARIABLE = "variable"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting's value (None: not set) and where it came from."""

    value: str | None
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChoice:
    """The address of the store (None: the local store in the user's data folder) and its client properties file."""

    url: Setting
    command_config: Setting

    @property
    def chosen(self) -> bool:
        """Whether somebody chose the store, by option or variable."""
        return self.url.origin is not Origin.DEFAULT

    def settings(self, *, allow_invalid: bool = False, wait: bool = True) -> StoreSettings:
        """How the store is opened.

        Raises `UsageError` where the properties file can't be read.
        """
        properties = read_properties(Path(self.command_config.value)) if self.command_config.value else {}
        return StoreSettings(client_properties=properties, allow_invalid=allow_invalid, wait=wait)

    def open(self, *, allow_invalid: bool = False, wait: bool = True) -> Store:
        """The store, ready to use; the caller closes it.

        Raises `UsageError` where the address or the properties file can't be understood.
        """
        return open_store(self.url.value, settings=self.settings(allow_invalid=allow_invalid, wait=wait))


def choose_store(
    *,
    store: str | None,
    bootstrap_server: str | None = None,
    zookeeper: str | None = None,
    command_config: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> StoreChoice:
    """The choice that the options and the environment make together.

    Raises `UsageError` for two ways to name a store at once, and for an empty one.
    """
    short = {"--bootstrap-server": (bootstrap_server, "kafka://"), "--zookeeper": (zookeeper, "zk://")}
    given = {"--store": store} | {name: _with_scheme(name, *pair) for name, pair in short.items()}
    named = {name: url for name, url in given.items() if url is not None}
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} exclude each other", hint="each names the store; give one")
    for name, url in named.items():
        _refuse_empty(name, url)
    return StoreChoice(
        url=_setting(next(iter(named.values()), None), STORE_VARIABLE, environment),
        command_config=_setting(
            None if command_config is None else str(command_config), COMMAND_CONFIG_VARIABLE, environment
        ),
    )


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


def _setting(option: str | None, variable: str, environment: Mapping[str, str]) -> Setting:
    if option is not None:
        return Setting(value=option, origin=Origin.OPTION)
    if environment.get(variable):
        return Setting(value=environment[variable], origin=Origin.VARIABLE)
    return Setting(value=None, origin=Origin.DEFAULT)
