"""Environment variables of the options of services: commands that a unit file, a container or a pod starts.

A variable is the service's prefix and the option's name in capitals: `--metrics-port` of `daemon run` is
`KAFKA_QUOTAS_DAEMON_METRICS_PORT`. An option beats its variable, and a variable beats a configuration file.

Invariants: options of help, of output and of stores have no variable of a service; those of stores have one for all
commands. A service needs no variable for what is only asked in passing, such as --schema.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from typer.core import TyperOption

from kafka_quotas.cli.framework.help_page import STORE_HEADING

PREFIX: Final = "KAFKA_QUOTAS_"
_SERVICE: Final = "kafka_quotas_service"
_WITHOUT: Final = frozenset({"-h", "--help", "--verbose", "--output", "--columns", "--limit", "--schema"})

Command = TypeVar("Command", bound=Callable[..., Any])


def service(name: str) -> Callable[[Command], Command]:
    """Return a decorator that makes a command a service with this name in its variables."""

    def mark(command: Command) -> Command:
        setattr(command, _SERVICE, name)
        return command

    return mark


def give_variables(command: Any) -> None:
    """Give the options of a service their variables, where they have none of their own."""
    name = getattr(command.callback, _SERVICE, None)
    if name is None:
        return
    for each in command.params:
        if isinstance(each, TyperOption) and each.envvar is None and _needs_one(each):
            each.envvar = variable(name, each.opts[0])


def variable(name: str, option: str) -> str:
    """Return the variable of an option: `--control` of `DAEMON` has `KAFKA_QUOTAS_DAEMON_CONTROL`."""
    return f"{PREFIX}{name}_{option.lstrip('-').replace('-', '_').upper()}"


def _needs_one(option: TyperOption) -> bool:
    return option.rich_help_panel != STORE_HEADING and not _WITHOUT.intersection(option.opts)
