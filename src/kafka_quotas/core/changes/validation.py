"""The alterations that a store of quotas accepts: KRaft's verdict, ZooKeeper mode's verdict, and our own refusals.

The verdicts repeat Kafka's, texts included, and take entities as Kafka does: pairs that may be of odd types, repeated
or empty. They return the error that Kafka finds first. Our refusals come before them and cover every probable mistake:
NaN, which KRaft accepts, and key names of the drafts.

**Source:** `ClientQuotaControlManager` (Kafka 4.0), `ZkAdminManager.alterClientQuotas` and `DynamicConfig` (3.9).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.formats.zookeeper import WHOLE_NUMBER_TOLERANCE, format_value
from kafka_quotas.core.model.entity import (
    CLIENT_ID,
    ENTITY_TYPES,
    IP,
    USER,
    Entity,
    is_address_or_host,
    sanitize,
)
from kafka_quotas.core.model.quota_key import (
    QUOTA_KEYS,
    STORED_KEYS,
    THRESHOLD_KEYS,
    QuotaKey,
    Unit,
    ValueType,
    is_threshold_entity,
    misplaced_threshold,
    suggest_key,
    unmeant_threshold_entity,
    unmeant_threshold_key,
)

Pairs = Iterable[tuple[str | None, str | None]]
"""An entity as Kafka's requests carry it: (type, name), name None for a default."""
Change = tuple[str | None, float | None]
"""A key and its new value, None to remove it."""
Resolves = Callable[[str], bool]

SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
"""Keys of a user's znode that hold credentials."""
RELATIVE_NODES = (".", "..")
"""Names that mean a place in a path, so that ZooKeeper has no node of that name."""
UNEXPECTED_ERROR = "The server experienced an unexpected error when processing the request."
"""What a broker says where it did not foresee what went wrong."""

_CLIENT_KEYS = {key.name: key for key in QUOTA_KEYS.values() if not key.for_ip}
_IP_KEYS = {key.name: key for key in QUOTA_KEYS.values() if key.for_ip}
_RESOLVABLE = "write an address such as 10.0.0.1, or a host name that this machine resolves"
_DEFAULT_FLAGS = {USER: "--user-default", CLIENT_ID: "--client-default", IP: "--ip-default"}


_Key = TypeVar("_Key", str, str | None)
_Value = TypeVar("_Value")
_FULL = 0.75


@lru_cache(maxsize=1024)  # the same few keys and types come again and again
def hash_code(text: str | None) -> int:
    """Return the hash of a text as an unsigned 32-bit figure, and 0 for None."""
    units = (text or "").encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8) + low) & 0xFFFFFFFF
    return code


def as_hash_map(items: Iterable[tuple[_Key, _Value]], expected: int) -> Mapping[_Key, _Value]:
    """Return the items in the order of a `new HashMap<>(expected)`, with the last value of each key."""
    latest = dict(items)
    if len(latest) < 2:
        return latest
    slots = 1
    while slots < expected or len(latest) > int(slots * _FULL):
        slots *= 2
    codes = {key: hash_code(key) for key in latest}
    return dict(sorted(latest.items(), key=lambda item: (codes[item[0]] ^ codes[item[0]] >> 16) % slots))


def kraft_verdict(pairs: Pairs, changes: Iterable[Change], *, resolves: Resolves) -> InvalidQuotaError | None:
    """Return a KRaft controller's error for changes to an entity in one request, or None."""
    requested = tuple(changes)
    parts = _parts(pairs)
    latest = as_hash_map(requested, len(requested))
    if len(latest) < len(requested):
        names = ", ".join(f"{_java(kind)}={_java(name)}" for kind, name in parts.items())
        return InvalidQuotaError(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{names}}})")
    # so spelt by Kafka
    refused = _odd_part(parts) or _ip_verdict(parts, resolves, mixed="shouldnot be combined with User or ClientId")
    return refused or _kraft_values_verdict(parts, latest)


def zookeeper_verdict(pairs: Pairs, changes: Iterable[Change], *, resolves: Resolves) -> InvalidQuotaError | None:
    """Return the error of a broker in ZooKeeper mode, which applies changes one by one, or None."""
    parts = _parts(pairs)
    mixed = "should not be used with user/client ID entity."
    # It is the node name that is looked up, so no address with a colon is ever found.
    refused = _odd_part(parts) or _ip_verdict(parts, resolves, mixed=mixed, looked_up=sanitize)
    if refused is None and any(name in RELATIVE_NODES for name in parts.values()):  # no znode can have it
        refused = InvalidQuotaError(UNEXPECTED_ERROR, code="UNKNOWN_SERVER_ERROR")
    if refused is not None:
        return refused
    errors = (_zookeeper_value_verdict(parts, key, value) for key, value in changes if value is not None)
    return next((error for error in errors if error is not None), None)


def our_refusals(entity: Entity, changes: Mapping[str, float | None] | Sequence[Change]) -> InvalidQuotaError | None:
    """Return the error with a hint for what this program never sends to a store, or None.

    It refuses entities that can't be meant (none, an empty name, an ip beside another type, address ranges), unknown
    and misspelt keys, keys of another kind of entity, keys given twice, and values that are not finite, not above 0, or
    too large or fractional for a whole-number key.
    """
    is_threshold = is_threshold_entity(entity)
    refused = unmeant_threshold_entity(entity) if is_threshold else _unmeant_entity(entity)
    if refused is not None:
        return refused
    listed = changes if isinstance(changes, Sequence) else tuple(changes.items())
    seen: set[str | None] = set()
    for key, value in listed:
        if key in seen:
            return InvalidQuotaError(f"{key} is given twice", hint="set or remove each key once")
        seen.add(key)
        refused = unmeant_threshold_key(entity, key or "") if is_threshold else _unmeant_key(entity, key or "")
        if refused is None and value is not None:
            refused = _unmeant_value(STORED_KEYS[key or ""], value)
        if refused is not None:
            return refused
    return None


def _parts(pairs: Pairs) -> Mapping[str | None, str | None]:
    listed = tuple(pairs)
    return as_hash_map(listed, len(listed))


def _java(text: str | None) -> str:
    return "null" if text is None else text


def _odd_part(parts: Mapping[str | None, str | None]) -> InvalidQuotaError | None:
    if not parts:
        return InvalidQuotaError("Invalid empty client quota entity")
    for kind, name in parts.items():
        if kind not in ENTITY_TYPES:
            return InvalidQuotaError(f"Unhandled client quota entity type: {_java(kind)}")
        if name == "":
            return InvalidQuotaError(f"Empty {kind} not supported")
    return None


def _ip_verdict(
    parts: Mapping[str | None, str | None],
    resolves: Resolves,
    *,
    mixed: str,
    looked_up: Callable[[str], str] = str,
) -> InvalidQuotaError | None:
    if IP not in parts:
        return None
    if len(parts) > 1:
        return InvalidQuotaError(f"Invalid quota entity combination, IP entity {mixed}")
    name = parts[IP]
    host = None if name is None else looked_up(name)
    if host is None or is_address_or_host(host, resolves):
        return None
    return InvalidQuotaError(f"{host} is not a valid IP or resolvable host.", hint=_RESOLVABLE)


def _kraft_values_verdict(
    parts: Mapping[str | None, str | None], changes: Mapping[str | None, float | None]
) -> InvalidQuotaError | None:
    valid = _IP_KEYS if IP in parts else _CLIENT_KEYS
    for name, value in changes.items():
        if value is None:
            continue
        key = valid.get(name or "")
        if key is None:
            return InvalidQuotaError(f"Invalid configuration key {_java(name)}")
        if (error := _kraft_value_verdict(key, value)) is not None:
            return error
    return None


def _kraft_value_verdict(key: QuotaKey, value: float) -> InvalidQuotaError | None:
    if value <= 0:
        return InvalidQuotaError(f"Quota {key.name} must be greater than 0")
    if key.value_type is ValueType.DOUBLE:
        return None
    if value > float(key.unlimited):
        article = "an" if key.value_type is ValueType.INT else "a"
        return InvalidQuotaError(f"Proposed value for {key.name} is too large for {article} {key.value_type.value}.")
    if math.fmod(value, 1.0) > WHOLE_NUMBER_TOLERANCE:
        return InvalidQuotaError(f"{key.name} cannot be a fractional value.")
    return None


def _zookeeper_value_verdict(
    parts: Mapping[str | None, str | None], key: str | None, value: float
) -> InvalidQuotaError | None:
    if USER in parts and key in SCRAM_MECHANISMS:
        return InvalidQuotaError(UNEXPECTED_ERROR, code="UNKNOWN_SERVER_ERROR")
    if key is None or key not in (_IP_KEYS if IP in parts else _CLIENT_KEYS):
        return InvalidQuotaError(f"Invalid configuration key {_java(key)}")
    try:
        format_value(key, value)
    except InvalidQuotaError as error:
        return error
    return None


def _unmeant_entity(entity: Entity) -> InvalidQuotaError | None:
    if not entity.parts:
        return InvalidQuotaError(
            "no entity is named", hint="name a user, a client-id, both, or an ip; --user-default is the default user"
        )
    for kind, name in entity.parts:
        if name == "":
            return InvalidQuotaError(f"the {kind} name is empty", hint=f"use {_DEFAULT_FLAGS[kind]} for the default")
    kinds = [kind for kind, _ in entity.parts]
    if IP in kinds and len(kinds) > 1:
        return InvalidQuotaError(
            f"an ip can't be combined with a {kinds[0]}", hint="set the quota of the ip in a command of its own"
        )
    if isinstance(entity.ip, str) and "/" in entity.ip:
        return InvalidQuotaError(
            f"{entity.ip} is not an address",
            hint="Kafka knows no address ranges; name single addresses or --ip-default",
        )
    return None


def _unmeant_key(entity: Entity, name: str) -> InvalidQuotaError | None:
    key = QUOTA_KEYS.get(name)
    if name in THRESHOLD_KEYS:
        return misplaced_threshold(name)
    if key is None:
        meant = suggest_key(name)
        if meant is None:
            return InvalidQuotaError(f"unknown quota key: {name!r}", hint=f"the keys are {', '.join(QUOTA_KEYS)}")
        kind = "a draft name or a misspelling" if name in meant.misspellings else "not a quota key"
        return InvalidQuotaError(f"{name} is {kind}; the key is {meant.name}", hint=f"write {meant.name}")
    for_ip = any(kind == IP for kind, _ in entity.parts)
    if key.for_ip == for_ip:
        return None
    if key.for_ip:
        return InvalidQuotaError(
            f"{name} is a quota of an ip, not of a user or client-id", hint="name an address, or use --ip-default"
        )
    return InvalidQuotaError(
        f"{name} is a quota of a user or client-id, not of an ip", hint=f"an ip takes {', '.join(_IP_KEYS)} only"
    )


def _unmeant_value(key: QuotaKey, value: float) -> InvalidQuotaError | None:
    unlimited = f"write {key.name}=unlimited for no limit"
    if not math.isfinite(value):
        return InvalidQuotaError(f"{key.name} must be a finite number, not {value}", hint=unlimited)
    if value <= 0:
        return InvalidQuotaError(
            f"{key.name} must be greater than 0", hint=f"{unlimited}, or remove the key to fall back to the next level"
        )
    if key.value_type is ValueType.DOUBLE:
        return None
    if value > float(key.unlimited):
        return InvalidQuotaError(f"{key.name} is too large: {value:.6g}", hint=unlimited)
    if value != int(value):
        unit = "bytes" if key.unit is Unit.BYTES_PER_SECOND else "connections"
        return InvalidQuotaError(
            f"{key.name} cannot be a fractional value: {value!r}", hint=f"round it to whole {unit} per second"
        )
    return None
