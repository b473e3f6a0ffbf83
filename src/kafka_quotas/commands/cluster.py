"""What the cluster behind a store adds to an answer: how many brokers there are, whether a callback replaces it all."""

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.commands.cluster_view import ClusterView
from kafka_quotas.core.errors import StoreRefusedError, UsageError
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.store_url import StoreKind, parse_store_url

_CALLBACK = "client.quota.callback.class"

if TYPE_CHECKING:
    from kafka_quotas.stores.kafka_cluster import KafkaCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFindings:
    """The cluster's size (None: unknown), and warnings about its brokers."""

    view: ClusterView | None
    warnings: tuple[str, ...] = ()


def look_at_cluster(
    store_url: str, *, settings: StoreSettings, brokers: int | None = None, topic: str | None = None
) -> ClusterFindings:
    """What is known of the cluster: from `brokers` alone, or from the brokers of a Kafka store.

    Raises `UsageError` for a topic without a Kafka store, and what asking the brokers raises.
    """
    address = parse_store_url(store_url)
    if address.kind is not StoreKind.KAFKA:
        if topic is not None:
            raise UsageError(
                "--topic needs a Kafka store", hint="only brokers know who leads a topic: --bootstrap-server HOST:PORT"
            )
        return ClusterFindings(view=None if brokers is None else ClusterView(brokers=brokers))
    from kafka_quotas.stores.kafka_cluster import KafkaCluster  # noqa: PLC0415 - only a Kafka store needs it

    with closing(KafkaCluster(address, settings=settings)) as cluster:
        leading = None if topic is None else len(set(cluster.leaders(topic).values()))
        view = ClusterView(brokers=brokers or len(cluster.broker_ids()), topic=topic, leading_brokers=leading)
        return ClusterFindings(view=view, warnings=_callback_warnings(cluster))


def _callback_warnings(cluster: "KafkaCluster") -> tuple[str, ...]:
    """One warning per callback class that brokers run in the place of Kafka's resolution."""
    from kafka_quotas.stores.kafka_cluster import CALLBACK_CLASS  # noqa: PLC0415 - only a Kafka store needs it

    try:
        settings = cluster.broker_settings([CALLBACK_CLASS])
    except StoreRefusedError as error:
        return (_not_known(error.message),)
    brokers_of: dict[str, list[str]] = {}
    for broker in settings.brokers:
        if CALLBACK_CLASS in broker.properties:
            brokers_of.setdefault(broker.properties[CALLBACK_CLASS], []).append(str(broker.node_id))
    found = tuple(
        f"{CALLBACK_CLASS}={name} on broker {', '.join(nodes)} replaces all of this: what it decides is not shown here"
        for name, nodes in sorted(brokers_of.items())
    )
    return found if settings.missing is None else (*found, _not_known(settings.missing))


def _not_known(reason: str) -> str:
    return f"can't tell whether every broker is without {_CALLBACK}, which would replace all of this: {reason}"
