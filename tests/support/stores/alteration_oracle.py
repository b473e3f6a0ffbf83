"""What an accepted alteration does: KRaft's records and quotas, and ZooKeeper's znodes and notification.

An alteration is done whole or not at all. KRaft writes a record per key that really changes. ZooKeeper's znode is
written whole, also when nothing changes; an empty one goes, together with parents that are then of no use, and is kept
only while something lies below it. Nothing here touches a server: what is there is passed in, what to do is returned.

**Source:** `ClientQuotaControlManager` (Kafka 4.0), `ZkAdminManager` and `AdminZkClient.changeEntityConfig` (3.9).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_quotas.core.changes.validation import (
    SCRAM_MECHANISMS,
    UNEXPECTED_ERROR,
    Change,
    Pairs,
    Resolves,
    kraft_verdict,
    zookeeper_verdict,
)
from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.formats.zookeeper import (
    change_notification,
    changed_config,
    decode_config,
    encode_config,
    parent_paths,
    znode_path,
)
from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRecord:
    """A key of an entity set to a value, or removed (None): one ClientQuotaRecord of the metadata log."""

    key: str
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KraftOutcome:
    """What a KRaft controller makes of an alteration: records and the quotas afterwards, or an error."""

    quotas: Mapping[str, float]
    records: tuple[QuotaRecord, ...] = ()
    error: InvalidQuotaError | None = None


def kraft_alteration(
    current: Mapping[str, float],
    pairs: Pairs,
    changes: Iterable[Change],
    *,
    resolves: Resolves,
    validate_only: bool = False,
) -> KraftOutcome:
    """What becomes of an entity with the `current` quotas.

    With `validate_only` the records are told, not applied.
    """
    requested = tuple(changes)
    error = kraft_verdict(pairs, requested, resolves=resolves)
    if error is not None:
        return KraftOutcome(quotas=current, error=error)
    records = tuple(
        QuotaRecord(key=key or "", value=value) for key, value in requested if _differs(current.get(key or ""), value)
    )
    return KraftOutcome(quotas=current if validate_only else _replayed(current, records), records=records)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZookeeperOutcome:
    """What brokers in ZooKeeper mode make of an alteration: znodes afterwards (path to data) and notification."""

    znodes: Mapping[str, bytes | None]
    notification: bytes | None = None
    error: InvalidQuotaError | None = None


def zookeeper_alteration(
    znodes: Mapping[str, bytes | None],
    pairs: Pairs,
    changes: Iterable[Change],
    *,
    resolves: Resolves,
    validate_only: bool = False,
) -> ZookeeperOutcome:
    """What becomes of the znodes below `/config`, path to data.

    Nothing on an error or with `validate_only`. Raises `StoreError` where the data of a znode that must be read can't
    be.
    """
    listed, requested = tuple(pairs), tuple(changes)
    error = zookeeper_verdict(listed, requested, resolves=resolves)
    if error is not None or validate_only:
        return ZookeeperOutcome(znodes=znodes, error=error)
    entity = Entity.from_mapping({kind or "": name for kind, name in listed})
    config = changed_config(decode_config(znodes.get(znode_path(entity))), requested)
    if not config.keys() <= _allowed_keys(entity):
        return ZookeeperOutcome(znodes=znodes, error=InvalidQuotaError(UNEXPECTED_ERROR, code="UNKNOWN_SERVER_ERROR"))
    change = znode_change(
        entity,
        config,
        children=lambda path: _children(znodes, path),
        config_of=lambda path: decode_config(znodes.get(path)),
    )
    return ZookeeperOutcome(znodes=_written(znodes, entity, change), notification=change_notification(entity))


def _differs(current: float | None, new: float | None) -> bool:
    """Whether Java's `Double.equals` tells two values apart: NaN is itself, and 0 is not -0."""
    if current is None or new is None:
        return current is not new
    if math.isnan(current) or math.isnan(new):
        return math.isnan(current) != math.isnan(new)
    return current != new or math.copysign(1.0, current) != math.copysign(1.0, new)


def _replayed(current: Mapping[str, float], records: Iterable[QuotaRecord]) -> dict[str, float]:
    quotas = dict(current)
    for record in records:
        if record.value is None:
            del quotas[record.key]
        else:
            quotas[record.key] = record.value
    return quotas


def _allowed_keys(entity: Entity) -> set[str]:
    """The keys a broker tolerates in an entity's znode.

    Credentials only in a named user's own.
    """
    for_ip = entity.ip is not ABSENT
    quotas = {key.name for key in QUOTA_KEYS.values() if key.for_ip == for_ip}
    named_user = isinstance(entity.user, str) and entity.client_id is ABSENT
    return quotas | set(SCRAM_MECHANISMS) if named_user else quotas


def _children(znodes: Mapping[str, bytes | None], path: str) -> list[str]:
    below = len(path) + 1
    return [other[below:] for other in znodes if other.startswith(f"{path}/") and "/" not in other[below:]]


def _written(znodes: Mapping[str, bytes | None], entity: Entity, change: "ZnodeChange") -> dict[str, bytes | None]:
    """The znodes after a write, with the parents it makes."""
    if change.data is None:
        below = f"{change.path}/"
        return {path: data for path, data in znodes.items() if path != change.path and not path.startswith(below)}
    missing = {path: None for path in parent_paths(entity) if path not in znodes}
    return {**znodes, **missing, change.path: change.data}


@dataclass(frozen=True, slots=True, kw_only=True)
class ZnodeChange:
    """One write below `/config`: new data for a znode, or (None) the removal of a znode and all below it."""

    path: str
    data: bytes | None


def znode_change(
    entity: Entity,
    config: Mapping[str, str],
    *,
    children: Callable[[str], Sequence[str]],
    config_of: Callable[[str], Mapping[str, str]],
) -> ZnodeChange:
    """Return the write that leaves an entity's znode with `config`: new data, or a removal.

    Args:
        entity: The entity.
        config: The keys and values.
        children: Lists the names below a path, called only if `config` is empty.
        config_of: Reads the keys and values of a path, called only if `config` is empty.
    """
    path = znode_path(entity)
    if config or children(path):
        return ZnodeChange(path=path, data=encode_config(config))
    return ZnodeChange(path=_useless_path(entity, path, children=children, config_of=config_of), data=None)


def _useless_path(
    entity: Entity,
    path: str,
    *,
    children: Callable[[str], Sequence[str]],
    config_of: Callable[[str], Mapping[str, str]],
) -> str:
    """Return the outermost znode that holds nothing once the childless znode at `path` is empty."""
    parents = parent_paths(entity)
    if not parents:
        return path
    user_path, clients_path = parents
    if list(children(clients_path)) != [path.removeprefix(f"{clients_path}/")]:
        return path
    alone = list(children(user_path)) == [clients_path.removeprefix(f"{user_path}/")]
    return user_path if alone and not config_of(user_path) else clients_path
