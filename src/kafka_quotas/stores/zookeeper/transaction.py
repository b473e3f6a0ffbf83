"""The effect of one alteration on the znodes, decided without I/O from what was read.

Contract: every step has the version that it depends on, so that the whole transaction fails after any change in
between. The change notification is the last step. SCRAM credentials, which are in the same znode, stay as they are.
`core.formats.zookeeper` decides what is written. Kafka does the same steps one by one and without versions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kafka_quotas.core.changes.validation import SCRAM_MECHANISMS
from kafka_quotas.core.formats.zookeeper import (
    CHANGE_PREFIX,
    change_notification,
    changed_config,
    decode_config,
    encode_config,
    parent_paths,
    znode_path,
)
from kafka_quotas.core.model.entity import Entity


@dataclass(frozen=True, slots=True, kw_only=True)
class ZnodeState:
    """A znode as it was read."""

    data: bytes | None
    version: int
    children: int


@dataclass(frozen=True, slots=True)
class ZnodeStep:
    """One step of a transaction, which fails if its znode is not as expected."""

    action: Literal["create", "set_data", "delete", "check"]
    path: str
    data: bytes = b""
    version: int = -1
    sequence: bool = False
    """Whether ZooKeeper appends a number to the name of a new znode."""


def chain_paths(entity: Entity) -> tuple[str, ...]:
    """Return the paths that an alteration has to read, outermost first, the entity's own last."""
    return (*parent_paths(entity), znode_path(entity))


def planned_steps(
    entity: Entity, changes: Mapping[str, float | None], chain: Sequence[ZnodeState | None]
) -> tuple[ZnodeStep, ...]:
    """Return the steps that apply the changes, by the nodes at `chain_paths(entity)`."""
    paths = chain_paths(entity)
    nodes = dict(zip(paths, chain, strict=True))
    before = _config(chain[-1])
    kept = ((key, value) for key, value in changes.items() if value is not None or key not in SCRAM_MECHANISMS)
    after = changed_config(before, kept)
    own = chain[-1]
    steps: list[ZnodeStep] = []
    if not after and (own is None or not own.children):
        useless = _useless_paths(paths, nodes)
        steps = [
            ZnodeStep("delete", path, version=node.version) for path in useless if (node := nodes[path]) is not None
        ]
    elif own is None:
        missing = [path for path in paths[:-1] if nodes[path] is None]
        steps = [
            *(ZnodeStep("create", path) for path in missing),
            ZnodeStep("create", paths[-1], data=encode_config(after)),
        ]
    elif after != before or not after:
        steps = [ZnodeStep("set_data", paths[-1], data=encode_config(after), version=own.version)]
    return (*steps, ZnodeStep("create", CHANGE_PREFIX, data=change_notification(entity), sequence=True))


def _config(node: ZnodeState | None) -> dict[str, str]:
    return decode_config(node.data) if node is not None else {}


def _useless_paths(paths: Sequence[str], nodes: Mapping[str, ZnodeState | None]) -> list[str]:
    """Return a childless znode and the znodes above that hold nothing but it, innermost first."""
    found = [paths[-1]]
    for path in reversed(paths[:-1]):
        node = nodes[path]
        alone = node is not None and node.children == 1 and nodes[found[-1]] is not None
        # A user's znode may hold quotas of its own, or credentials; the folder of its client-ids holds nothing.
        if not alone or (path == paths[0] and _config(node)):
            break
        found.append(path)
    return found
