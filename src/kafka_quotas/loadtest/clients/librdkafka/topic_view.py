"""A check of the cluster before any load: connection, login, the topic, and the records in it."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_quotas.loadtest.clients.errors import LoadRefusedError, is_fatal, property_error, translated
from kafka_quotas.loadtest.clients.librdkafka.settings import probe_properties
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.throttle_cycles import Direction

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient

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


def look_at_topic(plan: LoadPlan, entity: ClientLoad) -> TopicView:
    """Return a client's topic as that client sees it, within about `connect_timeout_s`.

    Raises:
        ClusterUnreachableError: If no broker answers.
        LoadRefusedError: If the cluster refuses the client, the topic does not exist, or a consumer's topic is empty.
        UsageError: If librdkafka refuses a property.
    """
    from confluent_kafka import Consumer, KafkaException  # noqa: PLC0415 - loads librdkafka

    errors: list[KafkaError] = []
    properties = probe_properties(plan, entity)
    try:
        consumer = Consumer({**properties, "group.id": "kafka-quotas-load-test", "error_cb": errors.append})
    except (KafkaException, ValueError, TypeError) as error:
        raise property_error(error) from error
    try:
        leaders = _leaders(consumer, plan, entity.topic, errors)
        filled = _filled(consumer, plan, entity.topic, sorted(leaders)) if entity.direction is Direction.CONSUME else ()
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
    from confluent_kafka import KafkaException  # noqa: PLC0415 - loads librdkafka
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    errors: list[KafkaError] = []
    properties: dict[str, Any] = {**probe_properties(plan, entity), "error_cb": errors.append}
    try:
        client = AdminClient(properties)  # a consumer would look up its group, for which brokers create a topic
    except (KafkaException, ValueError, TypeError) as error:
        raise property_error(error) from error
    deadline = time.monotonic() + plan.connect_timeout_s
    while not _answers(client, plan, errors, deadline):
        pass


def _answers(client: "AdminClient", plan: LoadPlan, errors: "list[KafkaError]", deadline: float) -> bool:
    """Return whether the cluster answers a short attempt.

    Raises:
        KafkaQuotasError: If the cluster refuses the client, or the deadline is over.
    """
    from confluent_kafka import KafkaException  # noqa: PLC0415 - loads librdkafka

    try:
        client.list_topics(timeout=_ATTEMPT_S)
    except KafkaException as error:
        client.poll(0)  # runs error_cb, whose errors are more precise than "timed out"
        refusal = next((each for each in errors if is_fatal(each)), None)
        if refusal is None and time.monotonic() < deadline:
            return False
        reason = refusal or (errors[0] if errors else error.args[0])
        raise translated(reason, bootstrap=plan.bootstrap) from error
    return True


def _leaders(consumer: "Consumer", plan: LoadPlan, name: str, errors: "list[KafkaError]") -> dict[int, int]:
    """Return the leader of each partition, in short attempts that end as soon as the cluster refuses."""
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - loads librdkafka

    deadline = time.monotonic() + plan.connect_timeout_s
    while True:
        try:
            topic = consumer.list_topics(name, timeout=_ATTEMPT_S).topics[name]
        except KafkaException as error:
            consumer.poll(0)  # runs error_cb, whose errors are more precise than "timed out"
            refusal = next((each for each in errors if is_fatal(each)), None)
            if refusal is None and time.monotonic() < deadline:
                continue
            reason = refusal or (errors[0] if errors else error.args[0])
            raise translated(reason, bootstrap=plan.bootstrap) from error
        if topic.error is None and topic.partitions:
            return {partition: each.leader for partition, each in topic.partitions.items()}
        if topic.error is not None and topic.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise translated(topic.error, bootstrap=plan.bootstrap)
        raise LoadRefusedError(
            f"topic {name} does not exist at {plan.bootstrap}",
            hint="create it first, or name another with --topic; this tool makes no topics on a cluster",
        )


def _filled(consumer: "Consumer", plan: LoadPlan, name: str, partitions: list[int]) -> tuple[PartitionRange, ...]:
    """Return the partitions that hold records."""
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
