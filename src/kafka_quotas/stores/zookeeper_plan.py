"""What one alteration does to the znodes, decided without I/O from what was read.

Contract: every step carries the version it was decided on, so that the whole fails when anything changed meanwhile; the
change notification is the last step. Keys that are no quotas (SCRAM credentials live in the same znode) stay.
**Source:** `kafka.zk.AdminZkClient.changeEntityConfig` and `tryCleanQuotaNodes` (Kafka 3.9), which do the same steps
one by one and without versions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.entity import Entity
from kafka_quotas.core.zookeeper_layout import (
    CHANGE_PREFIX,
    change_notification,
    decode_config,
    encode_config,
    format_value,
    parent_paths,
    znode_path,
)

ANY_VERSION: Final = -1
_CREDENTIALS_PREFIX: Final = "SCRAM-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A znode as it was read: `version` counts the writes of its data."""

    data: bytes | None
    version: int
    children: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """A new znode; with `sequence` ZooKeeper appends a number to its name."""

    path: str
    data: bytes = b""
    sequence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetData:
    """New data for a znode that is still of this version."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """A znode that goes, if it is still of this version and has no children."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A znode that must still be of this version."""

    path: str
    version: int


Step = Create | SetData | Delete | Check


def chain_paths(entity: Entity) -> tuple[str, ...]:
    """The znodes that an alteration of an entity has to read: those above its own, outermost first, then its own."""
    return (*parent_paths(entity), znode_path(entity))


def planned_steps(
    entity: Entity, changes: Mapping[str, float | None], chain: Sequence[Node | None]
) -> tuple[Step, ...]:
    """The steps that apply `changes`, given the nodes at `chain_paths(entity)` (None: there is none).

    Raises `InvalidQuotaError` for a value that ZooKeeper can't hold, `StoreError` where the znode holds what is no
    configuration.
    """
    path, node = znode_path(entity), chain[-1]
    before = decode_config(node.data) if node else {}
    after = _changed(before, changes)
    steps: list[Step] = []
    if node is None:
        if after:
            missing = [p for p, n in zip(chain_paths(entity)[:-1], chain[:-1], strict=True) if n is None]
            steps = [*(Create(path=parent) for parent in missing), Create(path=path, data=encode_config(after))]
    elif not after and not node.children:
        steps = _clean_up(entity, chain, node)
    elif after != before or not after:
        steps = [SetData(path=path, data=encode_config(after), version=node.version)]
    return (*steps, Create(path=CHANGE_PREFIX, data=change_notification(entity), sequence=True))


def _changed(config: Mapping[str, str], changes: Mapping[str, float | None]) -> dict[str, str]:
    """The configuration after the changes, every other key as it was."""
    after = dict(config)
    for key, value in changes.items():
        if value is not None:
            after[key] = format_value(key, value)
        elif not key.startswith(_CREDENTIALS_PREFIX):
            after.pop(key, None)
    return after


def _clean_up(entity: Entity, chain: Sequence[Node | None], node: Node) -> list[Step]:
    """The deletion of a znode without content, and of those above it that hold nothing else."""
    paths = chain_paths(entity)
    steps: list[Step] = [Delete(path=paths[-1], version=node.version)]
    if len(chain) == 3:
        user, clients = chain[0], chain[1]
        if clients is not None and clients.children == 1:
            steps.append(Delete(path=paths[1]))
            if user is not None and user.children == 1 and not decode_config(user.data):
                steps.append(Delete(path=paths[0], version=user.version))
    return steps
