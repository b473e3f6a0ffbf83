"""A check of the cluster before any load: connection, login, the topic, and the records in it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.loadtest.clients.errors import LoadRefusedError, is_fatal, open_client, translated
from kafka_quotas.loadtest.clients.librdkafka.settings import probe_properties
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.workload import Workload

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import ClusterMetadata

_ATTEMPT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """A partition and the offsets that it holds: from `low`, up to but without `high`."""

    partition: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic as a client saw it before the load."""

    leaders: int
    """Number of brokers that lead its partitions."""
    filled: tuple[PartitionRange, ...] = ()
    """Partitions that hold records, for consumers."""


TopicUse = tuple[str, Workload]
"""A topic and a workload on it."""
TopicViews = Mapping[TopicUse, TopicView]
"""Topics before the load, as the clients that use them see them."""


def look_at_topic(plan: LoadPlan, entity: ClientLoad) -> TopicView:
    """Return a client's topic as that client sees it, within about `connect_timeout_s`.

    Raises:
        ClusterUnreachableError: If no broker answers.
        LoadRefusedError: If the cluster refuses the client, the topic does not exist, or a consumer's topic is empty.
        UsageError: If librdkafka refuses a property.
    """
    from confluent_kafka import Consumer, KafkaException  # noqa: PLC0415 - loads librdkafka

    errors: list[KafkaError] = []
    own = {"group.id": "kafka-quotas-load-test", "error_cb": errors.append}
    consumer = open_client(Consumer, {**probe_properties(plan, entity), **own})
    try:
        leaders = _leaders(consumer, plan, entity.topic, errors)
        filled = _filled(consumer, plan, entity.topic, sorted(leaders)) if entity.workload is Workload.CONSUME else ()
        return TopicView(leaders=len(set(leaders.values())), filled=filled)
    except KafkaException as error:
        raise translated(error.args[0], bootstrap=plan.bootstrap) from error
    finally:
        consumer.close()


def reach_cluster(plan: LoadPlan, entity: ClientLoad) -> None:
    """Check that the cluster answers and accepts the client's login.

    Raises:
        ClusterUnreachableError: If no broker answers.
        LoadRefusedError: If the cluster refuses the client.
        UsageError: If librdkafka refuses a property.
    """
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - loads librdkafka

    errors: list[KafkaError] = []
    # A consumer would look up its group, for which brokers create a topic.
    client = open_client(AdminClient, {**probe_properties(plan, entity), "error_cb": errors.append})
    _cluster_metadata(client, plan, errors)


def _cluster_metadata(
    client: "AdminClient | Consumer", plan: LoadPlan, errors: "list[KafkaError]", topic: str | None = None
) -> "ClusterMetadata":
    """Return the cluster's metadata, in short attempts that end as soon as the cluster refuses.

    Raises:
        KafkaQuotasError: If the cluster refuses the client, or does not answer within `connect_timeout_s`.
    """
    from confluent_kafka import KafkaException  # noqa: PLC0415 - loads librdkafka

    deadline_s = time.monotonic() + plan.connect_timeout_s
    while True:
        try:
            return client.list_topics(topic, timeout=_ATTEMPT_S)
        except KafkaException as error:
            client.poll(0)  # runs error_cb, whose errors are more precise than "timed out"
            refusal = next((each for each in errors if is_fatal(each)), None)
            if refusal is None and time.monotonic() < deadline_s:
                continue
            reason = refusal or (errors[0] if errors else error.args[0])
            raise translated(reason, bootstrap=plan.bootstrap) from error


def _leaders(consumer: "Consumer", plan: LoadPlan, name: str, errors: "list[KafkaError]") -> dict[int, int]:
    from confluent_kafka import KafkaError  # noqa: PLC0415 - loads librdkafka

    topic = _cluster_metadata(consumer, plan, errors, name).topics[name]
    if topic.error is None and topic.partitions:
        return {partition: each.leader for partition, each in topic.partitions.items()}
    if topic.error is not None and topic.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise translated(topic.error, bootstrap=plan.bootstrap)
    raise LoadRefusedError(
        f"topic {name} does not exist at {plan.bootstrap}",
        hint="create it first, or name another with --topic; this tool makes no topics on a cluster",
    )


def _filled(consumer: "Consumer", plan: LoadPlan, name: str, partitions: list[int]) -> tuple[PartitionRange, ...]:
    from confluent_kafka import TopicPartition  # noqa: PLC0415 - loads librdkafka

    ranges = []
    for partition in partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=plan.connect_timeout_s)
        ranges.append(PartitionRange(partition=partition, low=low, high=high))
    filled = tuple(each for each in ranges if each.high > each.low)
    if not filled:
        raise LoadRefusedError(
            f"topic {name} holds no records to consume",
            hint="fill it first, for instance with: kafka-quotas load-test produce",
        )
    return filled
