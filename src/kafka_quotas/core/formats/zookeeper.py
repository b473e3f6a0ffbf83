"""ZooKeeper's format of quotas: paths, payloads, values and change notifications.

The entity path of a user's client is `users/alice/clients/app`, its znode is below `/config`. Names in paths are
sanitized, a default is the literal `<default>`. A payload holds texts only: whole numbers for byte rates and the
connection rate, Java doubles for the other two. A user's znode may hold other keys beside quotas (SCRAM credentials),
so a payload is decoded and written back whole.

**Source:** `kafka.zk.ConfigEntityZNode` and `ConfigEntityChangeNotificationSequenceZNode`,
`kafka.server.ZkAdminManager.alterClientQuotas` (Kafka 3.9).
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from kafka_quotas.core.errors import InvalidQuotaError, StoreError
from kafka_quotas.core.java import double_text, parse_double
from kafka_quotas.core.model.entity import CLIENT_ID, DEFAULT_NAME, IP, USER, Entity, desanitize, sanitize
from kafka_quotas.core.model.quota_key import INT_MAX, LONG_MAX, QUOTA_KEYS, ValueType

CONFIG_ROOT = "/config"
CHANGES_PATH = f"{CONFIG_ROOT}/changes"
CHANGE_PREFIX = f"{CHANGES_PATH}/config_change_"
"""Notifications are persistent sequential znodes of this name."""
WHOLE_NUMBER_TOLERANCE = 1e-6

_FOLDERS = {USER: "users", CLIENT_ID: "clients", IP: "ips"}
_TYPES = {folder: entity_type for entity_type, folder in _FOLDERS.items()}
_UNDECODABLE = re.compile("[\udc80-\udcff]")  # what bytes that are not UTF-8 are decoded to
ENTITY_FOLDERS = tuple(f"{CONFIG_ROOT}/{folder}" for folder in _TYPES)


def entity_path(entity: Entity) -> str:
    """Return the path of an entity below `/config` as in change notifications: `users/alice/clients/app`."""
    kinds = tuple(kind for kind, _ in entity.parts)
    if kinds not in {(USER,), (CLIENT_ID,), (IP,), (USER, CLIENT_ID)}:
        raise InvalidQuotaError(
            f"no such entity: {str(entity) or 'none named'}",
            hint="quotas belong to a user, a client-id, a user's client-id, or an ip",
        )
    return "/".join(
        f"{_FOLDERS[kind]}/{DEFAULT_NAME if name is None else sanitize(name)}" for kind, name in entity.parts
    )


def znode_path(entity: Entity) -> str:
    """Return the znode that holds an entity's quotas: `/config/users/alice/clients/app`."""
    return f"{CONFIG_ROOT}/{entity_path(entity)}"


def parent_paths(entity: Entity) -> tuple[str, ...]:
    """Return the empty znodes above an entity's znode, outermost first, which only a user's client-id has."""
    pieces = entity_path(entity).split("/")
    return tuple(f"{CONFIG_ROOT}/{'/'.join(pieces[:depth])}" for depth in range(2, len(pieces)))


def entity_of_path(path: str) -> Entity:
    """Return the entity of an entity path, or of a znode path below `/config`."""
    pieces = path.removeprefix(f"{CONFIG_ROOT}/").split("/")
    folders, names = pieces[::2], pieces[1::2]
    if len(folders) != len(names) or folders not in (["users"], ["clients"], ["ips"], ["users", "clients"]):
        raise StoreError(f"not the path of a quota entity: {path!r}")
    try:
        return Entity.from_pairs(
            (_TYPES[folder], None if name == DEFAULT_NAME else desanitize(name))
            for folder, name in zip(folders, names, strict=True)
        )
    except InvalidQuotaError as error:
        raise StoreError(f"not the path of a quota entity: {path!r} ({error})") from error


def encode_config(config: Mapping[str, str]) -> bytes:
    """Return the payload of a znode that holds these keys and values."""
    return _json({"version": 1, "config": dict(config)})


def decode_config(data: bytes | None) -> dict[str, str]:
    """Return the keys and values of a znode's payload.

    Ignores the version and anything after the JSON value. No data and anything without a `config` object have no keys.
    """
    payload = _parsed(data or b"")
    config = payload.get("config") if isinstance(payload, dict) else None
    if not isinstance(config, dict):
        return {}
    for value in config.values():
        if not isinstance(value, str):
            raise StoreError(f"Expected `String` value, received {_as_jackson(value)}")
    return config


def change_notification(entity: Entity) -> bytes:
    """Return the payload of the notification that makes brokers read an entity's znode again."""
    return _json({"version": 2, "entity_path": entity_path(entity)})


def format_value(key: str, value: float) -> str:
    """Return a quota value as ZooKeeper's text.

    It is `1024` for whole-number keys and `12.5` or `1.0E7` for the others. NaN is `0` for whole-number keys.

    Raises:
        InvalidQuotaError: An unknown key, or a value that is not within 1e-6 of a whole number for a whole-number key.
    """
    known = QUOTA_KEYS.get(key)
    if known is None:
        raise InvalidQuotaError(f"Invalid configuration key {key}")
    if known.value_type is ValueType.DOUBLE:
        return double_text(value)
    whole = _narrowed(value + WHOLE_NUMBER_TOLERANCE, LONG_MAX if known.value_type is ValueType.LONG else INT_MAX)
    if abs(float(whole) - value) > WHOLE_NUMBER_TOLERANCE:
        raise InvalidQuotaError(f"Configuration {key} must be a {known.value_type.value} value")
    return str(whole)


def parse_value(text: str) -> float:
    """Return the double that a stored text means, read as a Java double."""
    try:
        return parse_double(text)
    except InvalidQuotaError as error:
        raise StoreError(f"unexpected quota value: {text!r}") from error


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _narrowed(value: float, largest: int) -> int:
    """Return the whole number Java's cast makes of a double: toward zero, NaN 0, held within the type."""
    if value != value:  # noqa: PLR0124 - NaN is the one value unlike itself
        return 0
    return int(max(-largest - 1, min(value, largest)))


def _parsed(data: bytes) -> Any:
    text = data.decode("utf-8-sig", "surrogateescape").lstrip(" \t\r\n")
    try:
        value, end = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return None if _UNDECODABLE.search(text, 0, end) else value


def _refuse_constant(name: str) -> None:
    raise ValueError(name)  # Python's parser takes NaN and Infinity, JSON has none


def _as_jackson(value: Any) -> str:
    """Return a JSON value as Jackson prints it, doubles as Java does."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_as_jackson(key)}:{_as_jackson(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_as_jackson, value)) + "]"
    return double_text(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def changed_config(config: Mapping[str, str], changes: Iterable[tuple[str | None, float | None]]) -> dict[str, str]:
    """Return the keys and values of a znode after the changes, applied one after the other."""
    changed = dict(config)
    for key, value in changes:
        name = key or ""
        if value is None:
            changed.pop(name, None)
        else:
            changed[name] = format_value(name, value)
    return changed
