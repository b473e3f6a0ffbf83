"""The options of quota windows by Kafka's names, the windows in force, and the origin of each figure.

Invariants: an option beats the file, the file beats the brokers, the brokers beat Kafka's default of 11 x 1 s; the
two quota windows (`quota.window.*` and `controller.quota.window.*`) are found each on its own, figure by figure.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from kafka_quotas.cli.framework.option_groups import Without, option, option_group
from kafka_quotas.core.errors import StoreUnreachableError, UsageError
from kafka_quotas.core.formats.documents import read_properties
from kafka_quotas.core.model.quota_window import (
    CONTROLLER_WINDOW_NUM,
    CONTROLLER_WINDOW_SIZE_SECONDS,
    DEFAULT_WINDOW,
    WINDOW_NUM,
    WINDOW_SIZE_SECONDS,
    QuotaWindow,
)
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


WindowSource = tuple[str, Mapping[str, str]]
"""The name of a place, and its properties, which may hold window settings."""


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
        """Return the windows by options, else the sources, the brokers of `servers`, or Kafka's default."""
        given = {
            WINDOW_NUM: self.quota_window_num,
            WINDOW_SIZE_SECONDS: self.quota_window_size_seconds,
            CONTROLLER_WINDOW_NUM: self.controller_quota_window_num,
            CONTROLLER_WINDOW_SIZE_SECONDS: self.controller_quota_window_size_seconds,
        }
        texts = {name: str(figure) for name, figure in given.items() if figure is not None}
        named = ("option", texts)
        if servers is None:
            return window_settings(named, *sources)
        # Only with a cluster.
        from kafka_quotas.cli.framework.store_choice import choose_known_store, store_options  # noqa: PLC0415

        (url,) = store_options(store=None, bootstrap_server=servers).values()
        choice = choose_known_store(url, command_config=command_config)
        return window_settings(named, *sources, broker_source(str(choice.address), choice.settings()))


@option_group("Quota windows")
class BrokerWindowOptions(WindowOptions):
    """The options of quota windows where the brokers of a cluster may be asked for them."""

    bootstrap_server: str | None = option(
        "--bootstrap-server HOST:PORT",
        help="Read the window settings from the brokers of this cluster; options beat them. The login is that of its "
        "context, or of the variable KAFKA_QUOTAS_COMMAND_CONFIG.",
    )

    def in_force(self) -> WindowSettings:
        """Return the windows in force, as `settings` does for these brokers."""
        return self.settings(servers=self.bootstrap_server)


ONLY_CLIENTS = Without("controller_quota_window_num", "controller_quota_window_size_seconds")
ONLY_CONTROLLER = Without("quota_window_num", "quota_window_size_seconds")
ClientWindow = Annotated[WindowOptions, ONLY_CLIENTS]


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
    return str(path), properties


def _found(name: str, sources: Sequence[WindowSource], default: int) -> tuple[int, str]:
    origin, text = next(((place, found[name]) for place, found in sources if name in found), (DEFAULT_ORIGIN, None))
    if text is None:
        return default, origin
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
    return f"brokers of {url}", properties
