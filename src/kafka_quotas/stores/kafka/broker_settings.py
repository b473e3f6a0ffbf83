"""Questions to brokers about themselves: the settings that decide what quotas mean, and the leaders of a topic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.errors import StoreError
from kafka_quotas.stores.kafka.cluster_client import DESCRIBE_ACL, ClusterClient
from kafka_quotas.stores.kafka.fan_out import ask_each
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.url import StoreUrl
from kafka_quotas.wire.client.describe_configs import BROKER, DescribeConfigsRequest
from kafka_quotas.wire.client.metadata import MetadataRequest

CALLBACK_CLASS: Final = "client.quota.callback.class"
"""The property with which a broker replaces Kafka's own quota resolution."""
_BATCH: Final = 500
"""Number of topics or brokers in one request for settings."""
_DEFAULTS = StoreSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Settings of one broker."""

    node_id: int
    properties: Mapping[str, str]
    """Values by Kafka's property name, without the properties that are not set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsOfBrokers:
    """The settings of the brokers that answered."""

    brokers: tuple[BrokerSettings, ...]
    """The settings, in the order of broker ids."""
    missing: str | None = None
    """The brokers that did not answer, with the reasons, None where all did."""


class KafkaCluster:
    """Read-only requests to the brokers of a cluster, connected at the first one.

    Each call raises a `StoreUnreachableError` without any answer, a `StoreRefusedError` where credentials are refused.
    """

    def __init__(self, address: StoreUrl, *, settings: StoreSettings = _DEFAULTS) -> None:
        self._connection = ClusterClient(address, settings=settings)

    def broker_ids(self) -> tuple[int, ...]:
        """Return the ids of the brokers that are up, sorted."""
        return self._connection.node_ids()

    def broker_settings(self, names: Sequence[str]) -> SettingsOfBrokers:
        """Return the named settings of every broker that answers, each asked for its own.

        Raises:
            StoreRefusedError: The ACL DescribeConfigs on the cluster is missing.
        """
        found = ask_each(self.broker_ids(), lambda node_id: properties_of(self._connection, node_id, names))
        found.raise_refusal()
        return SettingsOfBrokers(brokers=tuple(found.answers.values()), missing=found.missing)

    def leaders(self, topic: str) -> Mapping[int, int]:
        """Return the id of the leader by partition of a topic, without partitions that have none.

        Raises:
            StoreError: The topic does not exist or may not be seen.
        """
        (found,) = self._connection.send(MetadataRequest(topics=(topic,))).topics
        if found.error_code:
            raise self._connection.error(found.error_code, f"topic {topic}", missing_acl="Describe")
        leaders = {part.number: part.leader_id for part in found.partitions if part.leader_id >= 0}
        return dict(sorted(leaders.items()))

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()


def properties_of(connection: ClusterClient, node_id: int, names: Sequence[str]) -> BrokerSettings:
    """Return the named settings of one broker, which answers for itself."""
    found = configs(connection, BROKER, [str(node_id)], names, node_id=node_id)
    if str(node_id) not in found:
        raise StoreError(f"broker {node_id} answered for {', '.join(found) or 'none'}")
    return BrokerSettings(node_id=node_id, properties=found[str(node_id)])


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
