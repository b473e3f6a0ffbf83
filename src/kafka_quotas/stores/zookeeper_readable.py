"""Reading znodes of which some can't be read: those are noted down, and the rest is read.

Contract: access denied to one znode hides that one alone; whatever concerns the whole connection is raised as ever.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from kafka_quotas.core.errors import StoreError, StoreRefusedError
from kafka_quotas.core.zookeeper_layout import CONFIG_ROOT
from kafka_quotas.stores.cluster_facts import UnreadableZnode
from kafka_quotas.stores.store import QuotaEntry
from kafka_quotas.stores.zookeeper_plan import Node
from kafka_quotas.stores.zookeeper_session import ZooKeeperSession
from kafka_quotas.stores.zookeeper_tree import read_all

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

    def node(self, path: str) -> Node | None:
        """The znode at a path, None where there is none or it can't be read."""
        return self.nodes([path])[0]

    def nodes(self, paths: Sequence[str]) -> list[Node | None]:
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
