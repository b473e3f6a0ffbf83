"""The quota windows in force and the origin of each figure, and the forms of the calculator's figures.

Invariants: a given figure beats the file, the file beats the brokers, the brokers beat Kafka's default of 11 x 1 s; the
two quota windows (`quota.window.*` and `controller.quota.window.*`) are found each on its own, figure by figure.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import StoreUnreachableError, UsageError
from kafka_quotas.core.formats.documents import read_properties
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE
from kafka_quotas.core.model.quota_window import (
    CONTROLLER_WINDOW_NUM,
    CONTROLLER_WINDOW_SIZE_SECONDS,
    DEFAULT_WINDOW,
    WINDOW_NUM,
    WINDOW_SIZE_SECONDS,
    QuotaWindow,
)
from kafka_quotas.core.model.setting import TextForm
from kafka_quotas.core.model.value_format import format_number, parse_bytes, parse_duration_ms, parse_quota_value
from kafka_quotas.stores import StoreSettings, parse_store_url

WINDOW_PROPERTIES: Final = (WINDOW_NUM, WINDOW_SIZE_SECONDS, CONTROLLER_WINDOW_NUM, CONTROLLER_WINDOW_SIZE_SECONDS)

DEFAULT_ORIGIN: Final = "Kafka's default"
_LARGEST: Final = 2**31 - 1  # both settings are Java ints


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSettings:
    """The two quota windows, each with its origins: `option`, a file, brokers, or `Kafka's default`."""

    client: QuotaWindow = DEFAULT_WINDOW
    controller: QuotaWindow = DEFAULT_WINDOW
    client_origin: str = DEFAULT_ORIGIN
    controller_origin: str = DEFAULT_ORIGIN

    @property
    def untouched(self) -> bool:
        """Whether nobody named any figure."""
        return self.client_origin == self.controller_origin == DEFAULT_ORIGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSource:
    """Properties that may hold window settings, with the name of the place they were read from."""

    name: str
    properties: Mapping[str, str]


def window_settings(*sources: WindowSource) -> WindowSettings:
    """Return the windows in force, each figure by the first source that has it, else Kafka's default."""
    client, client_origin = _window(sources, WINDOW_NUM, WINDOW_SIZE_SECONDS)
    controller, origin = _window(sources, CONTROLLER_WINDOW_NUM, CONTROLLER_WINDOW_SIZE_SECONDS)
    return WindowSettings(client=client, controller=controller, client_origin=client_origin, controller_origin=origin)


def _window(sources: Sequence[WindowSource], num: str, size: str) -> tuple[QuotaWindow, str]:
    samples, num_origin = _found(num, sources, DEFAULT_WINDOW.samples)
    window_s, size_origin = _found(size, sources, DEFAULT_WINDOW.window_s)
    return QuotaWindow(samples=samples, window_s=window_s), ", ".join(dict.fromkeys((num_origin, size_origin)))


def file_source(path: Path) -> WindowSource:
    """Read the settings in a broker's `server.properties` (or any file of the same form)."""
    properties = read_properties(path)
    if not any(name in properties for name in WINDOW_PROPERTIES):
        raise UsageError(f"{path} has no window setting", hint=f"it takes {', '.join(WINDOW_PROPERTIES)}")
    return WindowSource(name=str(path), properties=properties)


def _found(name: str, sources: Sequence[WindowSource], default: int) -> tuple[int, str]:
    source = next((each for each in sources if name in each.properties), None)
    if source is None:
        return default, DEFAULT_ORIGIN
    origin, text = source.name, source.properties[name]
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,99}\s*", text):
        raise UsageError(f"{origin}: {name} must be a whole number, not {text!r}", hint="example: 11")
    figure = int(text)
    if not 1 <= figure <= _LARGEST:
        raise UsageError(
            f"{origin}: {name} must be between 1 and {_LARGEST}, not {figure}", hint="Kafka's default is 11 x 1 s"
        )
    return figure, origin


def broker_source(url: str, settings: StoreSettings) -> WindowSource:
    """Return the window settings of the brokers at `kafka://HOST:PORT[,HOST:PORT...]`.

    A broker that does not answer counts as having the settings of the others, with a warning.
    """
    from kafka_quotas.stores import ClusterClient  # noqa: PLC0415 - only a Kafka store needs it

    with closing(ClusterClient(parse_store_url(url), settings=settings)) as cluster:
        brokers = cluster.broker_settings(WINDOW_PROPERTIES)
    if not brokers.answers:
        raise StoreUnreachableError(
            f"no broker of {url} could be asked for its windows: {brokers.missing}",
            hint="check that the addresses which the brokers advertise can be reached from here",
        )
    if brokers.missing is not None:
        settings.warn(f"windows are those of the other brokers: {brokers.missing}")
    return agreed(brokers.answers, url)


def agreed(by_broker: Mapping[int, Mapping[str, str]], url: str) -> WindowSource:
    """Return the settings that all brokers share, or raise a `UsageError` where two differ."""
    properties: dict[str, str] = {}
    for name in WINDOW_PROPERTIES:
        values = {broker: settings[name] for broker, settings in by_broker.items() if name in settings}
        if len(set(values.values())) > 1:
            values_text = ", ".join(f"{value} on broker {broker}" for broker, value in sorted(values.items()))
            option = "--" + name.replace(".", "-")
            raise UsageError(f"the brokers differ in {name}: {values_text}", hint=f"choose one with {option}")
        properties.update((name, value) for value in values.values())
    return WindowSource(name=f"brokers of {url}", properties=properties)


_MOST: Final = 1e15
"""A larger figure than any quota, amount or duration that means something; doubles are exact up to here."""


def _figure(parse: Callable[[str], Fraction], text: str, *, zero: bool = False) -> float:
    try:
        value = float(parse(text))
    except UsageError as error:
        hint = error.hint and error.hint.removesuffix(", unlimited")  # nothing to calculate with
        raise UsageError(error.message, hint=hint) from error
    except OverflowError as error:
        raise UsageError(f"too large: {text}", hint=f"at most {_MOST:.0f}") from error
    return in_range(text, value, zero=zero)


def in_range(text: str, value: float, *, zero: bool = False) -> float:
    """Return the value of a figure, if it is one that means something: above 0, or 0 if it may be."""
    if value < 0 or (value == 0 and not zero):
        raise UsageError(f"must be {'0 or more' if zero else 'above 0'}, not {text}", hint="see the option in --help")
    if value > _MOST:
        raise UsageError(f"too large: {text}", hint=f"at most {_MOST:.0f}")
    return value


def _form(parse: Callable[[str], Fraction], *, zero: bool = False) -> TextForm:
    return TextForm(read=partial(_figure, parse, zero=zero), pattern="", write=format_number)


BYTES_FORM: Final = _form(parse_bytes)
"""Bytes, or bytes per second."""
BYTES_OR_NONE: Final = _form(parse_bytes, zero=True)
PERCENT_FORM: Final = _form(lambda text: Fraction(parse_quota_value(REQUEST_PERCENTAGE, text)))
"""Per cent of one thread."""
PERCENT_OR_NONE: Final = _form(lambda text: Fraction(parse_quota_value(REQUEST_PERCENTAGE, text)), zero=True)
MUTATIONS_FORM: Final = _form(lambda text: Fraction(parse_quota_value(CONTROLLER_MUTATION_RATE, text)))
"""Partitions per second."""
DURATION_FORM: Final = _form(parse_duration_ms)
"""Milliseconds."""
DURATION_OR_NONE: Final = _form(parse_duration_ms, zero=True)
