"""A file that describes a listener, in Kafka's own property names if Kafka has them.

Each property is declared at the field of `ListenerSettings` that it sets, except `ssl.*` and `upstream.ssl.*`.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import read_properties
from kafka_quotas.core.model.setting import TextForm
from kafka_quotas.enforcement.config.listener_settings import ListenerProperty, ListenerSettings
from kafka_quotas.enforcement.config.toml_table import names_table, properties_in, table_name

_UPSTREAM: Final = "upstream."
_ADDRESSES: Final = ("listen", "upstream")


def read_listener(path: Path) -> ListenerSettings:
    """Read the listener that a file describes, under the file's name."""
    properties = _properties(path)
    missing = [name for name in _ADDRESSES if name not in properties]
    if missing:
        raise UsageError(f"{path}: {' and '.join(missing)} missing", hint="a listener needs both, as HOST:PORT")
    name = table_name(path) if names_table(path) else path.stem
    return _completed(ListenerSettings(name=name, upstreams=()), properties, path)


def complete_listener(settings: ListenerSettings, path: Path) -> ListenerSettings:
    """Complete a listener with the properties of a file, except its addresses."""
    properties = _properties(path)
    twice = [name for name in _ADDRESSES if name in properties]
    if twice:
        raise UsageError(f"{path}: {' and '.join(twice)} can't be given here", hint="--listen and --upstream say it")
    return _completed(settings, properties, path)


def _properties(path: Path) -> dict[str, str]:
    return properties_in(path) if names_table(path) else read_properties(path)


def _completed(settings: ListenerSettings, properties: Mapping[str, str], path: Path) -> ListenerSettings:
    try:
        for name in properties:
            _refuse_unknown(name)
        return _replaced(settings, properties)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from error


def _refuse_unknown(name: str) -> None:
    if name not in PROPERTIES and not name.removeprefix(_UPSTREAM).startswith("ssl."):
        raise UsageError(f"unknown property {name}", hint="docs/reference/daemon.md lists them")


def check_property(name: str, text: str) -> None:
    """Refuse a property of a listener that is unknown, or whose value can't be meant.

    Raises:
        UsageError: It is such a property.
    """
    _refuse_unknown(name)
    if name in PROPERTIES:
        _read(name, text)


def _read(name: str, text: str) -> Any:
    try:
        return PROPERTIES[name].read(text)
    except UsageError as error:
        message = error.message if name in error.message else f"{name}: {error.message}"
        raise UsageError(message, hint=error.hint) from None


def _replaced(settings: ListenerSettings, properties: Mapping[str, str]) -> ListenerSettings:
    values = {_FIELDS[name].name: _read(name, text) for name, text in properties.items() if name in _FIELDS}
    if values.get("upstream_node_id") is not None and len(values.get("upstreams", settings.upstreams)) > 1:
        raise UsageError("upstream.node.id: there are several upstreams", hint="leave it out, or name one upstream")
    for field, prefix in (("ssl", ""), ("upstream_ssl", _UPSTREAM)):
        found = {name: text for name, text in properties.items() if name.startswith(f"{prefix}ssl.")}
        values[field] = {name.removeprefix(prefix): text for name, text in found.items()}
    return dataclasses.replace(settings, **values)


_NOTES: Final[dict[ListenerProperty, dataclasses.Field[Any]]] = {
    field.metadata[ListenerProperty]: field
    for field in dataclasses.fields(ListenerSettings)
    if ListenerProperty in field.metadata
}
_FIELDS: Final = {note.name: field for note, field in _NOTES.items()}
PROPERTIES: Final[Mapping[str, TextForm]] = {note.name: note.form for note in _NOTES}
"""Every property but those of TLS, with its form."""


_FIXED: Final = {
    **{field.name: note.name for note, field in _NOTES.items() if note.is_fixed},
    "tls": "ssl.*",
    "upstream_tls": "upstream.ssl.*",
}
"""Settings that need a restart, and the names of their properties."""


def refuse_restart(before: ListenerSettings, now: ListenerSettings, path: Path) -> None:
    """Refuse a change of a listener that only a restart can make."""
    fixed = [name for field, name in _FIXED.items() if getattr(before, field) != getattr(now, field)]
    if fixed:
        raise UsageError(
            f"{path}: {', '.join(fixed)} can't change while the daemon runs", hint="restart it, or put back what it was"
        )
