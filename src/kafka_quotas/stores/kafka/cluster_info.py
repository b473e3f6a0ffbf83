"""Questions to brokers about themselves: settings that decide what quotas mean, leaders, throttles and age."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final

from kafka_quotas.core.errors import StoreError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.quota_key import LONG_MAX
from kafka_quotas.stores.address import StoreSettings, StoreUrl
from kafka_quotas.stores.kafka.cluster_client import DESCRIBE_ACL, ClusterClient, FanOut, ask_each
from kafka_quotas.stores.store import BROKER_THROTTLES, TOPIC_THROTTLES, ClusterInfo, ReplicationThrottle
from kafka_quotas.wire.client.admin import BROKER, TOPIC, DescribeConfigsRequest
from kafka_quotas.wire.client.metadata import ListReassignmentsRequest, MetadataRequest
from kafka_quotas.wire.client.request import VersionRequest

CALLBACK_CLASS: Final = "client.quota.callback.class"
"""The property with which a broker replaces Kafka's own quota resolution."""
_BATCH: Final = 500
_DEFAULTS = StoreSettings()


Properties = Mapping[str, str]
"""Settings by Kafka's property name, without those that are not set."""


class KafkaCluster:
    """Read-only requests to the brokers of a cluster, connected at the first one.

    Each call raises a `StoreUnreachableError` without any answer, a `StoreRefusedError` where credentials are refused.
    """

    def __init__(self, address: StoreUrl, *, settings: StoreSettings = _DEFAULTS) -> None:
        self._connection = ClusterClient(address, settings=settings)

    def broker_ids(self) -> tuple[int, ...]:
        """Return the ids of the brokers that are up, sorted."""
        return self._connection.node_ids()

    def broker_settings(self, names: Sequence[str]) -> FanOut[Properties]:
        """Return the named settings of every broker that answers, each asked for its own."""
        found = ask_each(self.broker_ids(), lambda node_id: properties_of(self._connection, node_id, names))
        found.raise_refusal()
        return found

    def leaders(self, topic: str) -> Mapping[int, int]:
        """Return the id of the leader by partition of a topic, without partitions that have none."""
        (found,) = self._connection.send(MetadataRequest(topics=(topic,))).topics
        if found.error_code:
            raise self._connection.error(found.error_code, f"topic {topic}", missing_acl="Describe")
        leaders = {part.number: part.leader_id for part in found.partitions if part.leader_id >= 0}
        return dict(sorted(leaders.items()))

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()


def properties_of(connection: ClusterClient, node_id: int, names: Sequence[str]) -> Properties:
    """Return the named settings of one broker, which answers for itself."""
    found = configs(connection, BROKER, [str(node_id)], names, node_id=node_id)
    if str(node_id) not in found:
        raise StoreError(f"broker {node_id} answered for {', '.join(found) or 'none'}")
    return found[str(node_id)]


def configs(
    connection: ClusterClient, kind: int, places: Sequence[str], names: Sequence[str], *, node_id: int | None = None
) -> dict[str, Mapping[str, str]]:
    """Return the named settings that are set, by broker or topic, or refuse for want of an ACL."""
    found: dict[str, Mapping[str, str]] = {}
    for start in range(0, len(places), _BATCH):
        asked = tuple(places[start : start + _BATCH])
        request = DescribeConfigsRequest(resource_type=kind, resource_names=asked, config_names=tuple(names))
        results = connection.send(request) if node_id is None else connection.send_to(request, node_id=node_id)
        for result in results:
            if result.error_code:
                raise connection.error(result.error_code, result.error_message, missing_acl=DESCRIBE_ACL)
            found[result.resource_name] = {name: value for name, value in result.configs.items() if value}
    return found


_CREATE_TOPICS_OF_2_7: Final = 6
_THREADS: Final = ("num.io.threads", "num.network.threads")
_NOT_LIMITED: Final = str(LONG_MAX)
_TIMEOUT_MS: Final = 10_000


def kafka_cluster_info(address: StoreUrl, *, settings: StoreSettings) -> ClusterInfo:
    """Return the facts that the brokers report, with what they refuse in `unknown`."""
    with closing(ClusterClient(address, settings=settings)) as connection:
        nodes = connection.node_ids()
        unknown: list[str] = []
        old = ask_each(nodes, lambda node: not _knows_2_7(connection, node))
        old.raise_refusal()
        brokers = _broker_settings(connection, tuple(old.answers), unknown)
        return ClusterInfo(
            callbacks={str(node): found[CALLBACK_CLASS] for node, found in brokers.items() if CALLBACK_CLASS in found},
            threads={str(node): sum(int(found.get(name, "0")) for name in _THREADS) for node, found in brokers.items()},
            replication_throttles=(*_of_brokers(brokers), *_of_topics(connection, unknown)),
            reassigning=_reassigning(connection, unknown),
            too_old=_old(old),
            unanswered={str(node): error.message for node, error in old.failures.items()},
            unknown=tuple(unknown),
        )


def old_kafka_brokers(address: StoreUrl, *, settings: StoreSettings) -> tuple[str, ...]:
    """Return the ids of the answering brokers older than 2.7, with the errors of `kafka_cluster_info`."""
    with closing(ClusterClient(address, settings=settings)) as connection:
        return _old(ask_each(connection.node_ids(), lambda node: not _knows_2_7(connection, node)))


def kafka_cluster_id(address: StoreUrl, *, settings: StoreSettings) -> str | None:
    """Return the id of the cluster, with the errors of `kafka_cluster_info`."""
    with closing(ClusterClient(address, settings=settings)) as connection:
        return connection.send(MetadataRequest()).cluster_id


def _old(found: FanOut[bool]) -> tuple[str, ...]:
    return tuple(str(node) for node, is_old in found.answers.items() if is_old)


def _broker_settings(connection: ClusterClient, nodes: Sequence[int], unknown: list[str]) -> Mapping[int, Properties]:
    names = (CALLBACK_CLASS, *_THREADS, *BROKER_THROTTLES)
    found = ask_each(nodes, lambda node: properties_of(connection, node, names))
    if found.missing is not None:
        which = "some of the brokers" if found.answers else "the brokers"
        unknown.append(f"the settings of {which} were not looked at: {found.missing}")
    return found.answers


def _of_brokers(brokers: Mapping[int, Properties]) -> Iterator[ReplicationThrottle]:
    for node_id, properties in brokers.items():
        for name in BROKER_THROTTLES:
            value = properties.get(name, _NOT_LIMITED)
            if value != _NOT_LIMITED:
                yield (f"broker {node_id}", name, value)


def _of_topics(connection: ClusterClient, unknown: list[str]) -> list[ReplicationThrottle]:
    response = connection.send(MetadataRequest(topics=None))
    topics = sorted(topic.name for topic in response.topics if not topic.error_code)
    try:
        settings = configs(connection, TOPIC, topics, TOPIC_THROTTLES)
    except StoreError as error:
        unknown.append(f"the settings of the topics were not looked at: {error.message}")
        return []
    return [
        (f"topic {topic}", name, settings[topic][name])
        for topic in topics
        for name in TOPIC_THROTTLES
        if settings.get(topic, {}).get(name)
    ]


def _reassigning(connection: ClusterClient, unknown: list[str]) -> bool | None:
    request = ListReassignmentsRequest(timeout_ms=_TIMEOUT_MS)
    try:
        response = connection.send(request)
        if response.error_code:
            raise connection.error(response.error_code, response.error_message, missing_acl="Describe")
    except StoreError as error:
        unknown.append(f"whether partitions are being moved is not known: {error.message}")
        return None
    return bool(response.topics)


def _knows_2_7(connection: ClusterClient, node_id: int) -> bool:
    newest = connection.send_to(VersionRequest(), node_id=node_id).ranges.get(ApiKey.CREATE_TOPICS)
    return newest is not None and newest.highest >= _CREATE_TOPICS_OF_2_7
