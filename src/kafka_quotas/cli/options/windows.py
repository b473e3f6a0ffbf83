"""Quota windows by Kafka's names, and the figures of the calculator, each parsed once into the unit it is used in."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Final

from kafka_quotas.cli.framework.option_groups import Without, option, option_group
from kafka_quotas.commands.windows import WindowSettings, WindowSource, file_source, window_settings
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE
from kafka_quotas.core.model.quota_window import (
    CONTROLLER_WINDOW_NUM,
    CONTROLLER_WINDOW_SIZE_SECONDS,
    WINDOW_NUM,
    WINDOW_SIZE_SECONDS,
    QuotaWindow,
)
from kafka_quotas.core.model.value_format import PERCENT, parse_bytes, parse_duration_ms, parse_quota_value


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
    window_file: Path | None = option(
        "--window-file FILE",
        help="Read the window settings from a broker's server.properties; an option beats the file.",
    )

    def settings(self, *, servers: str | None = None, command_config: Path | None = None) -> WindowSettings:
        """Return the windows in force: of options, else the file, the brokers of `servers` or Kafka's default."""
        given = {
            WINDOW_NUM: self.quota_window_num,
            WINDOW_SIZE_SECONDS: self.quota_window_size_seconds,
            CONTROLLER_WINDOW_NUM: self.controller_quota_window_num,
            CONTROLLER_WINDOW_SIZE_SECONDS: self.controller_quota_window_size_seconds,
        }
        sources = [] if self.window_file is None else [file_source(self.window_file)]
        if servers is not None:
            sources.append(_brokers(servers, command_config))
        return window_settings(given, sources=tuple(sources))


@option_group("Quota windows")
class BrokerWindowOptions(WindowOptions):
    """The options of quota windows where the brokers of a cluster may be asked for them."""

    bootstrap_server: str | None = option(
        "--bootstrap-server HOST:PORT",
        help="Read the window settings from the brokers of this cluster; options and --window-file beat them.",
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


class FigureUnit(StrEnum):
    """The time unit of a mutation quota."""

    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"


_SECONDS: Final = {FigureUnit.SECOND: 1, FigureUnit.MINUTE: 60, FigureUnit.HOUR: 3600, FigureUnit.DAY: 86_400}


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericQuota:
    """A quota of any kind, per second."""

    per_second: float
    unit: str
    """What it counts: "bytes", "%" or none."""


def byte_figure(option: str, text: str, *, zero: bool = False) -> float:
    """Parse the bytes, or bytes per second, of an option."""
    return _checked(option, text, parse_bytes, zero=zero)


def percent_figure(option: str, text: str, *, zero: bool = False) -> float:
    """Parse the per cent of one thread of an option."""
    return _checked(option, text, lambda figure: Fraction(parse_quota_value(REQUEST_PERCENTAGE, figure)), zero=zero)


def mutation_figure(option: str, text: str, unit: FigureUnit = FigureUnit.SECOND) -> float:
    """Parse a mutation rate per `unit` into partitions per second."""
    return (
        _checked(option, text, lambda figure: Fraction(parse_quota_value(CONTROLLER_MUTATION_RATE, figure)))
        / _SECONDS[unit]
    )


def burst_figure(option: str, text: str) -> float:
    """Parse the partitions of a burst: `560`, or `7x80` for 7 topics of 80 partitions."""
    parts = text.strip().lower().split("x")
    if len(parts) > 2 or not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise UsageError(f"{option} must be partitions, not {text!r}", hint="560, or 7x80 for 7 topics of 80 each")
    product = 1
    for part in parts:
        product *= int(part[:20])
    return _in_range(option, text, float(product), zero=False)


def duration_figure(option: str, text: str, *, zero: bool = True) -> float:
    """Parse the duration of an option into milliseconds."""
    return _checked(option, text, parse_duration_ms, zero=zero)


def generic_quota(option: str, text: str) -> GenericQuota:
    """Parse a quota of any kind for a replay: `5MB/s`, `0.1%`, `5`."""
    stripped = text.strip()
    if stripped.endswith("%"):
        return GenericQuota(per_second=percent_figure(option, stripped), unit=PERCENT)
    unit = "bytes" if "b" in stripped.lower() else ""
    return GenericQuota(per_second=byte_figure(option, stripped), unit=unit)


def client_window(settings: WindowSettings) -> tuple[QuotaWindow, str]:
    """Return the window of byte-rate and request quotas, and where its figures came from."""
    return settings.client, _origins(settings, WINDOW_NUM, WINDOW_SIZE_SECONDS)


def controller_window(settings: WindowSettings) -> tuple[QuotaWindow, str]:
    """Return the window of controller mutations, and where its figures came from."""
    return settings.controller, _origins(settings, CONTROLLER_WINDOW_NUM, CONTROLLER_WINDOW_SIZE_SECONDS)


def _origins(settings: WindowSettings, *names: str) -> str:
    return ", ".join(dict.fromkeys(settings.origin(name) for name in names))


def _checked(option: str, text: str, parse: Callable[[str], Fraction], *, zero: bool = False) -> float:
    try:
        value = float(parse(text))
    except UsageError as error:
        hint = error.hint and error.hint.removesuffix(", unlimited")  # nothing to calculate with
        raise UsageError(f"{option}: {error.message}", hint=hint) from error
    except OverflowError as error:
        raise UsageError(f"{option} is too large: {text}", hint=f"at most {_MOST:.0f}") from error
    return _in_range(option, text, value, zero=zero)


def _in_range(option: str, text: str, value: float, *, zero: bool) -> float:
    if value < 0 or (value == 0 and not zero):
        least = "0 or more" if zero else "above 0"
        raise UsageError(f"{option} must be {least}, not {text}", hint=f"the help of this command explains {option}")
    if value > _MOST:
        raise UsageError(f"{option} is too large: {text}", hint=f"at most {_MOST:.0f}")
    return value
