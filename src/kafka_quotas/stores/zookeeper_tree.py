"""Reading quotas out of ZooKeeper: one entity, or all of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from kafka_quotas.core.entity import Entity
from kafka_quotas.core.errors import StoreError, StoreRefusedError
from kafka_quotas.core.quota_key import QUOTA_KEYS
from kafka_quotas.core.zookeeper_layout import (
    CONFIG_ROOT,
    ENTITY_FOLDERS,
    decode_config,
    entity_of_path,
    parse_value,
    znode_path,
)
from kafka_quotas.stores.store import QuotaEntry
from kafka_quotas.stores.znode_names import has_znode
from kafka_quotas.stores.zookeeper_plan import Node
from kafka_quotas.stores.zookeeper_session import ZooKeeperSession

_CLIENTS = "clients"


class Znodes(Protocol):
    """Whatever znodes can be read by: a session, or one that passes over what is denied."""

    def nodes(self, paths: Sequence[str]) -> list[Node | None]:
        """The znodes at some paths, in order, None where there is none."""
        ...

    def children(self, paths: Sequence[str]) -> list[list[str]]:
        """The names of the children of some znodes, in order."""
        ...


def check_kafka_root(session: ZooKeeperSession, *, url: str) -> None:
    """Nothing, where a Kafka cluster keeps its configuration under the chroot.

    Raises `StoreRefusedError` where it does not: a mistyped chroot would otherwise look like a cluster without quotas.
    """
    if session.node(CONFIG_ROOT) is None:
        raise StoreRefusedError(
            f"no Kafka cluster at {url}: there is no {CONFIG_ROOT}",
            hint="the address ends in the chroot that the brokers' zookeeper.connect names",
        )


def read_one(session: ZooKeeperSession, entity: Entity) -> list[QuotaEntry]:
    """The entry of one entity, none where it has no quotas.

    Raises `StoreError` where its znode holds what is no quota.
    """
    if not has_znode(entity):
        return []
    path = znode_path(entity)
    return list(_entries([(path, session.node(path))]))


def read_all(session: Znodes, *, unreadable: Callable[[str, StoreError], None] | None = None) -> list[QuotaEntry]:
    """Every entry, sorted by entity; what is no quota is told to `unreadable`, by path, and left out.

    Without that, raises `StoreError` where a znode holds what is no quota.
    """
    paths = _below(session, ENTITY_FOLDERS)
    nodes = session.nodes(paths)
    folders = [f"{path}/{_CLIENTS}" for path, node in zip(paths, nodes, strict=True) if node and node.children]
    pair_paths = _below(session, folders)
    pairs = zip(pair_paths, session.nodes(pair_paths), strict=True)
    entries = _entries([*zip(paths, nodes, strict=True), *pairs], unreadable)
    return sorted(entries, key=lambda entry: entry.entity.sort_key)


def _below(session: Znodes, folders: Sequence[str]) -> list[str]:
    """The paths of the children of some znodes."""
    children = session.children(folders)
    return [f"{folder}/{name}" for folder, names in zip(folders, children, strict=True) for name in names]


def _entries(
    found: Iterable[tuple[str, Node | None]], unreadable: Callable[[str, StoreError], None] | None = None
) -> Iterator[QuotaEntry]:
    """The entries of znodes that hold quotas."""
    for path, node in found:
        try:
            quotas = _quotas(path, node) if node is not None else {}
            if quotas:
                yield QuotaEntry(entity=entity_of_path(path), quotas=quotas)
        except StoreError as error:
            if unreadable is None:
                raise
            unreadable(path, error)


def _quotas(path: str, node: Node) -> Mapping[str, float]:
    """The quotas in a znode; whatever else it holds is passed over."""
    try:
        config = decode_config(node.data)
        return {key: parse_value(value) for key, value in sorted(config.items()) if key in QUOTA_KEYS}
    except StoreError as error:
        raise StoreError(
            f"{path} holds what is no quota: {error.message}", hint="brokers can't read it either; mend the znode"
        ) from error
