"""Reading from ZooKeeper: quotas of one entity or all, configurations of users, and facts about the cluster.

Contract: `ReadableZnodes` notes a znode to which access is denied and reads the others. Errors of the whole connection
are always raised. `ZooKeeperUserConfigs` reads what `kafka-configs --zookeeper --describe` shows. Nothing is written.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kafka_quotas.core.errors import StoreError, StoreRefusedError
from kafka_quotas.core.formats.documents import load_json
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
from kafka_quotas.stores.address import StoreSettings, StoreUrl
from kafka_quotas.stores.store import (
    BROKER_THROTTLES,
    TOPIC_THROTTLES,
    ClusterInfo,
    QuotaEntry,
    ReplicationThrottle,
    has_znode,
)
from kafka_quotas.stores.zookeeper.session import ZnodeState, ZooKeeperSession

_CLIENTS = "clients"


def check_kafka_root(session: ZooKeeperSession, *, url: str) -> None:
    """Check that a Kafka cluster keeps its configuration under the chroot.

    Without this a mistyped chroot would look like a cluster without quotas.
    """
    if session.node(CONFIG_ROOT) is None:
        raise StoreRefusedError(
            f"no Kafka cluster at {url}: there is no {CONFIG_ROOT}",
            hint="the address ends in the chroot that the brokers' zookeeper.connect names",
        )


def read_one(session: ZooKeeperSession, entity: Entity) -> list[QuotaEntry]:
    """Return the entry of one entity, none where it has no quotas."""
    if not has_znode(entity):
        return []
    path = znode_path(entity)
    return list(_entries([(path, session.node(path))]))


def read_all(
    session: ZooKeeperSession, *, unreadable: Callable[[str, StoreError], None] | None = None
) -> list[QuotaEntry]:
    """Return every entry, sorted by entity.

    A znode that holds no valid quota is passed to `unreadable` with its error, or without it that error is raised.
    """
    entries = _entries(_walked(session)[0], unreadable)
    return sorted(entries, key=lambda entry: entry.entity.sort_key)


def _walked(session: ZooKeeperSession) -> tuple[list[tuple[str, ZnodeState | None]], list[str]]:
    """Return the znodes of entities, and the folders of users' client-ids."""
    found = session.below(ENTITY_FOLDERS)
    folders = [f"{path}/{_CLIENTS}" for path, node in found if node and node.children]
    return [*found, *session.below(folders)], folders


def _entries(
    found: Iterable[tuple[str, ZnodeState | None]], unreadable: Callable[[str, StoreError], None] | None = None
) -> Iterator[QuotaEntry]:
    for path, node in found:
        try:
            quotas = _quotas(path, node) if node is not None else {}
            if quotas:
                yield QuotaEntry(entity_of_path(path), quotas)
        except StoreError as error:
            if unreadable is None:
                raise
            unreadable(path, error)


def _quotas(path: str, node: ZnodeState) -> Mapping[str, float]:
    try:
        config = decode_config(node.data)
        return {key: parse_value(value) for key, value in sorted(config.items()) if key in QUOTA_KEYS}
    except StoreError as error:
        raise StoreError(
            f"{path} holds something that is not a quota: {error.message}",
            hint="brokers can't read it either; repair the znode",
        ) from error


class ReadableZnodes(ZooKeeperSession):
    """A session that notes the znodes to which access is denied, but for their root, and reads the others."""

    def __init__(self, address: StoreUrl, *, settings: StoreSettings) -> None:
        super().__init__(address, settings=settings)
        self.unreadable: dict[str, str] = {}
        """The reasons by path."""

    def note(self, path: str, error: StoreError) -> None:
        """Note that a znode can't be read."""
        self.unreadable[path] = error.message

    def _gather(self, method: str, paths: Sequence[str]) -> list[Any]:
        try:
            return super()._gather(method, paths)
        except StoreRefusedError as error:
            if len(paths) > 1:  # the refusal of a batch does not name the znode, so its paths are read one by one
                return [answer for path in paths for answer in self._gather(method, [path])]
            if paths[0] == CONFIG_ROOT:
                raise
            self.note(paths[0], error)
            return [None]


class ZooKeeperUserConfigs:
    """The configurations of users in a ZooKeeper, connected at the first call.

    A call raises a `StoreRefusedError` where there is no Kafka cluster under the chroot or access is denied.
    """

    def __init__(self, address: StoreUrl, *, settings: StoreSettings) -> None:
        self._url = str(address)
        self._session = ZooKeeperSession(address, settings=settings)

    def of_user(self, name: str | None) -> Mapping[str, str]:
        check_kafka_root(self._session, url=self._url)
        node = self._session.node(znode_path(Entity.of(user=name)))
        return decode_config(node.data) if node is not None else {}

    def of_all_users(self) -> list[tuple[str | None, Mapping[str, str]]]:
        """Return every user with the stored configuration, sorted by name, the default user (None) last."""
        check_kafka_root(self._session, url=self._url)
        found: list[tuple[str | None, Mapping[str, str]]] = []
        for path, node in self._session.below([f"{CONFIG_ROOT}/users"]):
            name = entity_of_path(path).user
            if node is not None and (name is None or isinstance(name, str)):
                found.append((name, decode_config(node.data)))
        return sorted(found, key=lambda user: (user[0] is None, user[0] or ""))

    def close(self) -> None:
        self._session.close()


_REASSIGNMENT: Final = "/admin/reassign_partitions"
_NOT_THERE: Final = "the settings of the brokers are not in ZooKeeper: threads and quota callbacks were not looked at"
_BROKERS: Final = "/brokers/ids"
_CLUSTER_ID: Final = "/cluster/id"
_REGISTRATION_OF_2_7: Final = 5
"""The version with which brokers since 2.7 register. **Source:** `kafka.zk.BrokerIdZNode` (Kafka 3.9)."""


def cluster_info(session: ReadableZnodes) -> ClusterInfo:
    """Return the facts that the znodes hold."""
    session.node(CONFIG_ROOT)
    entries = tuple(read_all(session, unreadable=session.note))
    info = ClusterInfo(
        empty_znodes=tuple(_empty(session)),
        replication_throttles=(
            *_throttles(session, f"{CONFIG_ROOT}/brokers", "broker", BROKER_THROTTLES),
            *_throttles(session, f"{CONFIG_ROOT}/topics", "topic", TOPIC_THROTTLES),
        ),
        reassigning=session.node(_REASSIGNMENT) is not None,
        too_old=tuple(old_brokers(session)),
        unknown=(_NOT_THERE,),
    )
    unreadable = tuple(sorted(session.unreadable.items()))
    return replace(info, unreadable=unreadable, readable=entries if unreadable else ())


def cluster_id(session: ZooKeeperSession) -> str | None:
    """Return the id of the cluster, None if its brokers never started."""
    found = _field(session.node(_CLUSTER_ID), "id")
    return found if isinstance(found, str) else None


def _empty(session: ZooKeeperSession) -> Iterator[str]:
    found, folders = _walked(session)
    every = [*found, *zip(folders, session.nodes(folders), strict=True)]
    yield from sorted(path for path, node in every if node is not None and not node.children and not _config(node))


def _throttles(
    session: ZooKeeperSession, folder: str, kind: str, names: Sequence[str]
) -> Iterator[ReplicationThrottle]:
    for path, node in sorted(session.below([folder])):
        config = _config(node)
        place = path.rpartition("/")[2].replace("<default>", "defaults")
        for name in names:
            if config.get(name):
                yield (f"{kind} {place}", name, config[name])


def old_brokers(session: ZooKeeperSession) -> Iterator[str]:
    """Yield the ids of brokers that register like those before 2.7."""
    for path, node in sorted(session.below([_BROKERS])):
        version = _field(node, "version")
        if isinstance(version, int) and version < _REGISTRATION_OF_2_7:
            yield path.rpartition("/")[2]


def _field(node: ZnodeState | None, name: str) -> object:
    """Return a field of the JSON document in a znode, None if there is none."""
    try:
        return None if node is None else load_json(node.data or b"")[name]
    except (ValueError, TypeError, KeyError):
        return None


def _config(node: ZnodeState | None) -> dict[str, str]:
    """Return the keys and values in a znode, which counts as not empty where it can't be parsed."""
    try:
        return decode_config(node.data) if node is not None else {}
    except StoreError:
        return {"": "unreadable"}
