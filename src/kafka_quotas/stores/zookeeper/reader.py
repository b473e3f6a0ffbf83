"""Reading quotas out of ZooKeeper: one entity, or all of them.

Reading znodes of which some can't be read: those are noted down, and the rest is read.

Contract: access denied to one znode hides that one alone; whatever concerns the whole connection is raised as ever.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from kafka_quotas.core.errors import StoreError, StoreRefusedError
from kafka_quotas.core.formats.zookeeper import (
    CONFIG_ROOT,
    ENTITY_FOLDERS,
    decode_config,
    entity_of_path,
    parse_value,
    znode_path,
)
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.stores.acceptance import has_znode
from kafka_quotas.stores.cluster_info import UnreadableZnode
from kafka_quotas.stores.store import QuotaEntry
from kafka_quotas.stores.zookeeper.session import ZooKeeperSession
from kafka_quotas.stores.zookeeper.transaction import ZnodeState

_CLIENTS = "clients"


class Znodes(Protocol):
    """Whatever znodes can be read by: a session, or one that passes over what is denied."""

    def nodes(self, paths: Sequence[str]) -> list[ZnodeState | None]:
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
    found: Iterable[tuple[str, ZnodeState | None]], unreadable: Callable[[str, StoreError], None] | None = None
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


def _quotas(path: str, node: ZnodeState) -> Mapping[str, float]:
    """The quotas in a znode; whatever else it holds is passed over."""
    try:
        config = decode_config(node.data)
        return {key: parse_value(value) for key, value in sorted(config.items()) if key in QUOTA_KEYS}
    except StoreError as error:
        raise StoreError(
            f"{path} holds what is no quota: {error.message}", hint="brokers can't read it either; mend the znode"
        ) from error


T = TypeVar("T")


class ReadableZnodes:
    """The znodes that a session may read.

    Raises `StoreRefusedError` when made, where the session may not even read the root of the configuration.
    """

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._reasons: dict[str, str] = {}
        session.node(CONFIG_ROOT)

    @property
    def unreadable(self) -> tuple[UnreadableZnode, ...]:
        """What could not be read so far, sorted by path."""
        return tuple(UnreadableZnode(path=path, reason=reason) for path, reason in sorted(self._reasons.items()))

    def node(self, path: str) -> ZnodeState | None:
        """The znode at a path, None where there is none or it can't be read."""
        return self.nodes([path])[0]

    def nodes(self, paths: Sequence[str]) -> list[ZnodeState | None]:
        """The znodes at some paths, in order, None where there is none or it can't be read."""
        return self._read(self._session.nodes, paths, None)

    def children(self, paths: Sequence[str]) -> list[list[str]]:
        """The names of the children of some znodes, in order; none where there is no znode or it can't be read."""
        return self._read(self._session.children, paths, [])

    def entries(self) -> tuple[QuotaEntry, ...]:
        """The quotas that can be read, sorted by entity."""
        return tuple(read_all(self, unreadable=self._note))

    def _note(self, path: str, error: StoreError) -> None:
        self._reasons[path] = error.message

    def _read(self, read: Callable[[Sequence[str]], list[T]], paths: Sequence[str], instead: T) -> list[T]:
        """The answers to one kind of read; one by one where one of them is denied."""
        try:
            return read(paths)
        except StoreRefusedError as error:
            if len(paths) == 1:
                self._note(paths[0], error)
                return [instead]
        return [answer for path in paths for answer in self._read(read, [path], instead)]
