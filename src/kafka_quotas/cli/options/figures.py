"""Figures on the calculator's command line, each parsed once into the unit that the arithmetic takes."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final

from kafka_quotas.commands.windows import WindowSettings
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE
from kafka_quotas.core.model.quota_window import (
    CONTROLLER_WINDOW_NUM,
    CONTROLLER_WINDOW_SIZE_SECONDS,
    WINDOW_NUM,
    WINDOW_SIZE_SECONDS,
    QuotaWindow,
)
from kafka_quotas.core.model.units import parse_bytes, parse_duration_ms, parse_quota_value
from kafka_quotas.core.model.value_format import PERCENT

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
    """Parse the bytes, or bytes per second, of an option.

    Raises:
        UsageError: The text is no such figure.
    """
    return _checked(option, text, parse_bytes, zero=zero)


def percent_figure(option: str, text: str, *, zero: bool = False) -> float:
    """Parse the per cent of one thread of an option.

    Raises:
        UsageError: The text is no such figure.
    """
    return _checked(option, text, lambda figure: Fraction(parse_quota_value(REQUEST_PERCENTAGE, figure)), zero=zero)


def mutation_figure(option: str, text: str, unit: FigureUnit = FigureUnit.SECOND) -> float:
    """Parse a mutation rate per `unit` into partitions per second.

    Raises:
        UsageError: The text is no such figure.
    """
    return (
        _checked(option, text, lambda figure: Fraction(parse_quota_value(CONTROLLER_MUTATION_RATE, figure)))
        / _SECONDS[unit]
    )


def burst_figure(option: str, text: str) -> float:
    """Parse the partitions of a burst: `560`, or `7x80` for 7 topics of 80 partitions.

    Raises:
        UsageError: The text is no such figure.
    """
    parts = text.strip().lower().split("x")
    if len(parts) > 2 or not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise UsageError(f"{option} must be partitions, not {text!r}", hint="560, or 7x80 for 7 topics of 80 each")
    product = 1
    for part in parts:
        product *= int(part[:20])
    return _in_range(option, text, float(product), zero=False)


def duration_figure(option: str, text: str, *, zero: bool = True) -> float:
    """Parse the duration of an option into milliseconds.

    Raises:
        UsageError: The text is no duration.
    """
    return _checked(option, text, parse_duration_ms, zero=zero)


def generic_quota(option: str, text: str) -> GenericQuota:
    """Parse a quota of any kind for a replay: `5MB/s`, `0.1%`, `5`.

    Raises:
        UsageError: The text is no quota.
    """
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
