"""Which quota windows count, and where each figure came from.

Invariants: a given figure beats the file, the file beats the brokers, the brokers beat Kafka's default of 11 x 1 s; the
two quota windows (`quota.window.*` and `controller.quota.window.*`) are found each on its own, figure by figure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quota_config import (
    CONTROLLER_WINDOW_NUM,
    CONTROLLER_WINDOW_SIZE_SECONDS,
    DEFAULT_WINDOW,
    WINDOW_NUM,
    WINDOW_SIZE_SECONDS,
    QuotaWindow,
)
from kafka_quotas.stores.property_file import read_properties

WINDOW_PROPERTIES: Final = (WINDOW_NUM, WINDOW_SIZE_SECONDS, CONTROLLER_WINDOW_NUM, CONTROLLER_WINDOW_SIZE_SECONDS)
"""The four settings by Kafka's names."""

DEFAULT_ORIGIN: Final = "Kafka's default"
_LARGEST: Final = 2**31 - 1  # both settings are Java ints


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenWindows:
    """The figures given by option, None where one was not given (sizes in seconds)."""

    quota_window_num: int | None = None
    quota_window_size_s: int | None = None
    controller_window_num: int | None = None
    controller_window_size_s: int | None = None

    def figure(self, name: str) -> int | None:
        """The given figure of one of `WINDOW_PROPERTIES`."""
        return {
            WINDOW_NUM: self.quota_window_num,
            WINDOW_SIZE_SECONDS: self.quota_window_size_s,
            CONTROLLER_WINDOW_NUM: self.controller_window_num,
            CONTROLLER_WINDOW_SIZE_SECONDS: self.controller_window_size_s,
        }[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSettings:
    """The two quota windows, and per property of `WINDOW_PROPERTIES` where its figure came from."""

    client: QuotaWindow = DEFAULT_WINDOW
    controller: QuotaWindow = DEFAULT_WINDOW
    origins: tuple[tuple[str, str], ...] = tuple((name, DEFAULT_ORIGIN) for name in WINDOW_PROPERTIES)

    def origin(self, name: str) -> str:
        """Where the figure of a property came from: `option`, a file, brokers, or `Kafka's default`."""
        return dict(self.origins)[name]

    @property
    def untouched(self) -> bool:
        """Whether nobody named any figure."""
        return all(origin == DEFAULT_ORIGIN for _, origin in self.origins)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSource:
    """Properties that may hold window settings, with the name of the place they were read from."""

    name: str
    properties: Mapping[str, str]


def window_settings(given: GivenWindows, *, sources: tuple[WindowSource, ...] = ()) -> WindowSettings:
    """The windows that count: given figures first, then `sources` in order, then Kafka's default.

    Raises `UsageError` where a figure is not a whole number of at least 1.
    """
    found = {name: _found(name, given, sources) for name in WINDOW_PROPERTIES}
    return WindowSettings(
        client=_window(found, WINDOW_NUM, WINDOW_SIZE_SECONDS),
        controller=_window(found, CONTROLLER_WINDOW_NUM, CONTROLLER_WINDOW_SIZE_SECONDS),
        origins=tuple((name, origin) for name, (_, origin) in found.items()),
    )


def file_source(path: Path) -> WindowSource:
    """The settings in a broker's `server.properties` (or any file of the same form).

    Raises `UsageError` where it can't be read, or has none of the four settings.
    """
    properties = read_properties(path)
    if not any(name in properties for name in WINDOW_PROPERTIES):
        raise UsageError(f"{path} has no window setting", hint=f"it takes {', '.join(WINDOW_PROPERTIES)}")
    return WindowSource(name=str(path), properties=properties)


def _found(name: str, given: GivenWindows, sources: tuple[WindowSource, ...]) -> tuple[int | None, str]:
    """The figure of one property (None: nobody named it) and its origin."""
    figure = given.figure(name)
    if figure is not None:
        return _checked(name, figure, "option"), "option"
    for source in sources:
        if name in source.properties:
            return _parsed(name, source.properties[name], source.name), source.name
    return None, DEFAULT_ORIGIN


def _parsed(name: str, text: str, origin: str) -> int:
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,10}\s*", text):
        raise UsageError(f"{origin}: {name} must be a whole number, not {text!r}", hint="example: 11")
    return _checked(name, int(text), origin)


def _checked(name: str, figure: int, origin: str) -> int:
    if not 1 <= figure <= _LARGEST:
        raise UsageError(
            f"{origin}: {name} must be between 1 and {_LARGEST}, not {figure}", hint="Kafka's default is 11 x 1 s"
        )
    return figure


def _window(found: Mapping[str, tuple[int | None, str]], num_name: str, size_name: str) -> QuotaWindow:
    samples, window_s = found[num_name][0], found[size_name][0]
    return QuotaWindow(
        samples=DEFAULT_WINDOW.samples if samples is None else samples,
        window_s=DEFAULT_WINDOW.window_s if window_s is None else window_s,
    )
