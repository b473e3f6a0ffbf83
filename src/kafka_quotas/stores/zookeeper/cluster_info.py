"""Facts from a cluster's ZooKeeper, beside its quotas: empty znodes, replication throttles and old brokers."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

from kafka_quotas.core.errors import StoreError
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.core.formats.zookeeper import CONFIG_ROOT, ENTITY_FOLDERS, decode_config
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.store import BROKER_THROTTLES, TOPIC_THROTTLES, ClusterInfo, ReplicationThrottle
from kafka_quotas.stores.url import StoreUrl
from kafka_quotas.stores.zookeeper.reader import ReadableZnodes, Znodes, below
from kafka_quotas.stores.zookeeper.session import ZooKeeperSession
from kafka_quotas.stores.zookeeper.transaction import ZnodeState

_REASSIGNMENT: Final = "/admin/reassign_partitions"
_NOT_THERE: Final = "the settings of the brokers are not in ZooKeeper: threads and quota callbacks were not looked at"
_BROKERS: Final = "/brokers/ids"
_CLUSTER_ID: Final = "/cluster/id"
_REGISTRATION_OF_2_7: Final = 5
"""The version with which brokers since 2.7 register. **Source:** `kafka.zk.BrokerIdZNode` (Kafka 3.9)."""


def zookeeper_cluster_info(address: StoreUrl, *, settings: StoreSettings) -> ClusterInfo:
    """Return the facts that the znodes hold.

    Raises:
        StoreUnreachableError: No server answers.
        StoreRefusedError: Access is denied.
    """
    with closing(ZooKeeperSession(address, settings=settings)) as session:
        znodes = ReadableZnodes(session)
        entries = znodes.entries()
        info = ClusterInfo(
            empty_znodes=tuple(_empty(znodes)),
            replication_throttles=(
                *_throttles(znodes, f"{CONFIG_ROOT}/brokers", "broker", BROKER_THROTTLES),
                *_throttles(znodes, f"{CONFIG_ROOT}/topics", "topic", TOPIC_THROTTLES),
            ),
            reassigning=znodes.node(_REASSIGNMENT) is not None,
            too_old=tuple(_too_old(znodes)),
            unknown=(_NOT_THERE,),
        )
        return replace(info, unreadable=znodes.unreadable, readable=entries if znodes.unreadable else ())


def old_zookeeper_brokers(address: StoreUrl, *, settings: StoreSettings) -> tuple[str, ...]:
    """Return the ids of brokers that register like those before 2.7, with the same errors."""
    with closing(ZooKeeperSession(address, settings=settings)) as session:
        return tuple(_too_old(session))


def zookeeper_cluster_id(address: StoreUrl, *, settings: StoreSettings) -> str | None:
    """Return the id of the cluster, None if its brokers never started.

    The errors are those of `zookeeper_cluster_info`.
    """
    with closing(ZooKeeperSession(address, settings=settings)) as session:
        node = session.node(_CLUSTER_ID)
        try:
            found = None if node is None else load_json(node.data or b"")["id"]
        except (ValueError, TypeError, KeyError):
            return None
        return found if isinstance(found, str) else None


def _empty(session: Znodes) -> Iterator[str]:
    """Yield the paths of entities' znodes that have neither configuration nor children, sorted."""
    paths = below(session, ENTITY_FOLDERS)
    nodes = session.nodes(paths)
    parents = [f"{path}/clients" for path, node in zip(paths, nodes, strict=True) if node and node.children]
    pairs = below(session, parents)
    every = [*zip(paths, nodes, strict=True), *zip(pairs, session.nodes(pairs), strict=True)]
    every += [(path, node) for path, node in zip(parents, session.nodes(parents), strict=True)]
    yield from sorted(path for path, node in every if node is not None and not node.children and not _config(node))


def _throttles(session: Znodes, folder: str, kind: str, names: Sequence[str]) -> Iterator[ReplicationThrottle]:
    """Yield the replication throttles that are set below one folder."""
    paths = sorted(below(session, [folder]))
    for path, node in zip(paths, session.nodes(paths), strict=True):
        config = _config(node)
        place = path.rpartition("/")[2].replace("<default>", "defaults")
        for name in names:
            if config.get(name):
                yield ReplicationThrottle(place=f"{kind} {place}", name=name, value=config[name])


def _too_old(session: Znodes) -> Iterator[str]:
    """Yield the ids of brokers that register like those before 2.7."""
    paths = sorted(below(session, [_BROKERS]))
    for path, node in zip(paths, session.nodes(paths), strict=True):
        if node is not None and _registration(node) < _REGISTRATION_OF_2_7:
            yield path.rpartition("/")[2]


def _registration(node: ZnodeState) -> int:
    """Return the version of a broker's registration, the new one where it can't be parsed."""
    try:
        version = load_json(node.data or b"")["version"]
    except (ValueError, TypeError, KeyError):
        return _REGISTRATION_OF_2_7
    return version if isinstance(version, int) else _REGISTRATION_OF_2_7


def _config(node: ZnodeState | None) -> dict[str, str]:
    """Return the keys and values in a znode, which counts as not empty where it can't be parsed."""
    try:
        return decode_config(node.data) if node is not None else {}
    except StoreError:
        return {"": "unreadable"}
