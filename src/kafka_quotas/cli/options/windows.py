"""Quota windows by Kafka's names, and the figures of the calculator, each parsed once into the unit it is used in."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from kafka_quotas.cli.framework.option_groups import Without, option, option_group
from kafka_quotas.commands.windows import WindowSettings, WindowSource, window_settings
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE
from kafka_quotas.core.model.quota_window import (
    CONTROLLER_WINDOW_NUM,
    CONTROLLER_WINDOW_SIZE_SECONDS,
    WINDOW_NUM,
    WINDOW_SIZE_SECONDS,
)
from kafka_quotas.core.model.value_format import parse_bytes, parse_duration_ms, parse_quota_value


@option_group("Quota windows")
class WindowOptions:
    """The options of both quota windows, that of controller mutations and that of everything else."""

    quota_window_num: int | None = option(
        "--quota-window-num N", min=1, help="quota.window.num: samples kept, the current one included. Default 11."
    )
    quota_window_size_seconds: int | None = option(
        "--quota-window-size-seconds SECONDS", min=1, help="quota.window.size.seconds: length of one sample. Default 1."
    )
    controller_quota_window_num: int | None = option(
        "--controller-quota-window-num N",
        min=1,
        help="controller.quota.window.num: samples of a burst of controller mutations. Default 11.",
    )
    controller_quota_window_size_seconds: int | None = option(
        "--controller-quota-window-size-seconds SECONDS",
        min=1,
        help="controller.quota.window.size.seconds: length of one of these samples. Default 1.",
    )

    def settings(
        self, *sources: WindowSource, servers: str | None = None, command_config: Path | None = None
    ) -> WindowSettings:
        """Return the windows in force: of options, else the sources, the brokers of `servers` or Kafka's default."""
        given = {
            WINDOW_NUM: self.quota_window_num,
            WINDOW_SIZE_SECONDS: self.quota_window_size_seconds,
            CONTROLLER_WINDOW_NUM: self.controller_quota_window_num,
            CONTROLLER_WINDOW_SIZE_SECONDS: self.controller_quota_window_size_seconds,
        }
        if servers is not None:
            sources += (_brokers(servers, command_config),)
        return window_settings(given, sources=sources)


@option_group("Quota windows")
class BrokerWindowOptions(WindowOptions):
    """The options of quota windows where the brokers of a cluster may be asked for them."""

    bootstrap_server: str | None = option(
        "--bootstrap-server HOST:PORT",
        help="Read the window settings from the brokers of this cluster; options beat them.",
    )
    command_config: Path | None = option(
        "--command-config FILE", help="A file of client properties by Kafka's own names, for --bootstrap-server."
    )

    def in_force(self) -> WindowSettings:
        """Return the windows in force, as `settings` does for these brokers."""
        return self.settings(servers=self.bootstrap_server, command_config=self.command_config)


ONLY_CLIENTS = Without("controller_quota_window_num", "controller_quota_window_size_seconds")
ONLY_CONTROLLER = Without("quota_window_num", "quota_window_size_seconds")
ClientWindow = Annotated[WindowOptions, ONLY_CLIENTS]


def _brokers(servers: str, command_config: Path | None) -> WindowSource:
    from kafka_quotas.cli.framework.store_choice import choose_store  # noqa: PLC0415 - only with a cluster
    from kafka_quotas.commands.windows import broker_source  # noqa: PLC0415

    choice = choose_store(store=None, bootstrap_server=servers, command_config=command_config)
    assert choice.url.value is not None
    return broker_source(choice.url.value, choice.settings())


_MOST: Final = 1e15
"""A larger figure than any quota, amount or duration that means something; doubles are exact up to here."""


def _figure(parse: Callable[[str], Fraction], option: str, text: str, *, zero: bool = False) -> float:
    try:
        value = float(parse(text))
    except UsageError as error:
        hint = error.hint and error.hint.removesuffix(", unlimited")  # nothing to calculate with
        raise UsageError(f"{option}: {error.message}", hint=hint) from error
    except OverflowError as error:
        raise UsageError(f"{option} is too large: {text}", hint=f"at most {_MOST:.0f}") from error
    return in_range(option, text, value, zero=zero)


def in_range(option: str, text: str, value: float, *, zero: bool = False) -> float:
    """Return the value, if it is one that means something."""
    if value < 0 or (value == 0 and not zero):
        least = "0 or more" if zero else "above 0"
        raise UsageError(f"{option} must be {least}, not {text}", hint=f"the help of this command explains {option}")
    if value > _MOST:
        raise UsageError(f"{option} is too large: {text}", hint=f"at most {_MOST:.0f}")
    return value


byte_figure = partial(_figure, parse_bytes)
"""Bytes, or bytes per second."""
percent_figure = partial(_figure, lambda text: Fraction(parse_quota_value(REQUEST_PERCENTAGE, text)))
"""Per cent of one thread."""
mutation_figure = partial(_figure, lambda text: Fraction(parse_quota_value(CONTROLLER_MUTATION_RATE, text)))
"""Partitions by time."""
duration_figure = partial(_figure, parse_duration_ms, zero=True)
"""Milliseconds, which may be 0."""
