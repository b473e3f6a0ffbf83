"""The configurations of users in ZooKeeper, as `kafka-configs --zookeeper --describe` shows them.

Contract: it never writes. Names are raw, and None is the default user.
"""

from collections.abc import Mapping

from kafka_quotas.core.formats.zookeeper import CONFIG_ROOT, decode_config, entity_of_path, znode_path
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.url import StoreUrl
from kafka_quotas.stores.zookeeper.reader import check_kafka_root
from kafka_quotas.stores.zookeeper.session import ZooKeeperSession

_USERS = f"{CONFIG_ROOT}/users"


class ZooKeeperUserConfigs:
    """The configurations of users in a ZooKeeper, connected at the first call.

    Every call may raise a `StoreUnreachableError` where no server answers, a `StoreRefusedError` where there is no
    Kafka cluster under the chroot or access is denied, or a `StoreError` for a znode that can't be parsed.
    """

    def __init__(self, address: StoreUrl, *, settings: StoreSettings) -> None:
        self._url = str(address)
        self._session = ZooKeeperSession(address, settings=settings)

    def of_user(self, name: str | None) -> Mapping[str, str]:
        """Return the stored configuration of a user, empty where there is none."""
        check_kafka_root(self._session, url=self._url)
        node = self._session.node(znode_path(Entity.of(user=name)))
        return decode_config(node.data) if node is not None else {}

    def of_all_users(self) -> list[tuple[str | None, Mapping[str, str]]]:
        """Return every user with the stored configuration, sorted by name, the default user last."""
        check_kafka_root(self._session, url=self._url)
        paths = [f"{_USERS}/{child}" for child in self._session.children([_USERS])[0]]
        found: list[tuple[str | None, Mapping[str, str]]] = []
        for path, node in zip(paths, self._session.nodes(paths), strict=True):
            name = entity_of_path(path).user
            if node is not None and (name is None or isinstance(name, str)):
                found.append((name, decode_config(node.data)))
        return sorted(found, key=lambda user: (user[0] is None, user[0] or ""))

    def close(self) -> None:
        """End the session."""
        self._session.close()
