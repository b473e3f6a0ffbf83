"""What the cluster of a store adds to an answer.

This is the number of its brokers, with the total of a limit per broker (the most common misreading of a quota), whether
a callback replaces Kafka's resolution, and whether brokers are too old for a stored key and ignore it.
"""

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.core.errors import KafkaQuotasError, StoreError, StoreRefusedError, UsageError
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE, QuotaKey
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.store import Store
from kafka_quotas.stores.url import StoreKind, StoreUrl, parse_store_url

if TYPE_CHECKING:
    from kafka_quotas.stores.kafka.cluster_info import KafkaCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The number of brokers of a cluster."""

    brokers: int
    topic: str | None = None
    leading_brokers: int | None = None
    """How many of them lead a partition of the topic, None where no topic was named."""

    def total(self, key: QuotaKey, limit: float | None) -> float | None:
        """Return the most that all brokers together let through, in the unit of the key, None for other keys."""
        return None if limit is None or not multiplies(key, limit) else limit * self.brokers

    def topic_total(self, key: QuotaKey, limit: float | None) -> float | None:
        """Return the most that the leaders of the topic together let through, None for other keys."""
        if limit is None or self.leading_brokers is None or not multiplies(key, limit) or key.for_ip:
            return None
        return limit * self.leading_brokers


def multiplies(key: QuotaKey, limit: float) -> bool:
    """Return whether a limit adds up over brokers, as mutations at one controller and shares don't."""
    return key not in (CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE) and limit < key.unlimited


_CALLBACK = "client.quota.callback.class"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFindings:
    """The cluster's size and warnings about its brokers."""

    view: ClusterView | None
    """None where the size is unknown."""
    warnings: tuple[str, ...] = ()


def look_at_cluster(
    store: Store, *, settings: StoreSettings, brokers: int | None = None, topic: str | None = None
) -> ClusterFindings:
    """Return the size of the cluster from `brokers` alone, or from the brokers of a Kafka store.

    Raises:
        UsageError: A topic is named without a Kafka store.
    """
    if store.kind is not StoreKind.KAFKA:
        if topic is not None:
            raise UsageError(
                "--topic needs a Kafka store", hint="only brokers know who leads a topic: --bootstrap-server HOST:PORT"
            )
        return ClusterFindings(view=None if brokers is None else ClusterView(brokers=brokers))
    from kafka_quotas.stores.kafka.cluster_info import KafkaCluster  # noqa: PLC0415 - only a Kafka store needs it

    with closing(KafkaCluster(parse_store_url(store.url), settings=settings)) as cluster:
        leading = None if topic is None else len(set(cluster.leaders(topic).values()))
        view = ClusterView(brokers=brokers or len(cluster.broker_ids()), topic=topic, leading_brokers=leading)
        return ClusterFindings(view=view, warnings=_callback_warnings(cluster))


def _callback_warnings(cluster: "KafkaCluster") -> tuple[str, ...]:
    """Return one warning per callback class that brokers run in the place of Kafka's resolution."""
    from kafka_quotas.stores.kafka.cluster_info import CALLBACK_CLASS  # noqa: PLC0415 - only a Kafka store needs it

    try:
        settings = cluster.broker_settings([CALLBACK_CLASS])
    except StoreRefusedError as error:
        return (_not_known(error.message),)
    brokers_of: dict[str, list[str]] = {}
    for node_id, properties in settings.answers.items():
        if CALLBACK_CLASS in properties:
            brokers_of.setdefault(properties[CALLBACK_CLASS], []).append(str(node_id))
    found = tuple(
        f"{CALLBACK_CLASS}={name} on broker {', '.join(nodes)} replaces all of this: what it decides is not shown here"
        for name, nodes in sorted(brokers_of.items())
    )
    return found if settings.missing is None else (*found, _not_known(settings.missing))


def _not_known(reason: str) -> str:
    return f"it is unknown whether every broker is without {_CALLBACK}, which would replace all of this: {reason}"


def cluster_id(address: StoreUrl, settings: StoreSettings) -> str | None:
    """Return the id of the cluster whose quotas are at an address, None for files, or if it is unknown."""
    try:
        if address.kind is StoreKind.KAFKA:
            from kafka_quotas.stores.kafka.cluster_info import kafka_cluster_id  # noqa: PLC0415 - one kind of several

            return kafka_cluster_id(address, settings=settings)
        if address.kind is StoreKind.ZOOKEEPER:
            from kafka_quotas.stores.zookeeper.reader import zookeeper_cluster_id  # noqa: PLC0415 - loads kazoo

            return zookeeper_cluster_id(address, settings=settings)
    except KafkaQuotasError:
        return None
    return None


def old_brokers(store: Store, *, settings: StoreSettings) -> tuple[str, ...]:
    """Return the brokers older than Kafka 2.7, none where the cluster can't be asked."""
    try:
        if store.kind is StoreKind.KAFKA:
            from kafka_quotas.stores.kafka.cluster_info import old_kafka_brokers  # noqa: PLC0415 - one kind of several

            return old_kafka_brokers(parse_store_url(store.url), settings=settings)
        if store.kind is StoreKind.ZOOKEEPER:
            from kafka_quotas.stores.zookeeper.reader import old_zookeeper_brokers  # noqa: PLC0415 - loads kazoo

            return old_zookeeper_brokers(parse_store_url(store.url), settings=settings)
    except StoreError:
        return ()
    return ()
