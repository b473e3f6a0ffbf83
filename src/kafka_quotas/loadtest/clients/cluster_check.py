"""The check of a cluster before the load, by librdkafka, whose errors become ours: one line for each, and a hint."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.stores.address import network_reason
from kafka_quotas.stores.security.librdkafka import NO_KERBEROS, librdkafka_properties

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import ClusterMetadata

_Client = TypeVar("_Client")
LOGIN_HINT = "check sasl.username, sasl.password and sasl.mechanism (-X KEY=VALUE)"
TLS_HINT = "check ssl.ca.location and the listener's protocol"


class ClusterUnreachableError(KafkaQuotasError):
    """A failure to reach any broker at the bootstrap address, at the start or during the run."""


class LoadRefusedError(KafkaQuotasError):
    """A refusal by the cluster: authentication, authorization, or a topic that is missing or empty."""


def unreachable(bootstrap: str, reason: str | OSError) -> ClusterUnreachableError:
    """Return the error of a target that does not answer."""
    text = reason if isinstance(reason, str) else network_reason(reason)
    return ClusterUnreachableError(
        f"no broker answers at {bootstrap}: {text}", hint="check --bootstrap-server HOST:PORT"
    )


def translated(error: "KafkaError", *, bootstrap: str) -> KafkaQuotasError:
    """Return this project's error for an error of librdkafka."""
    from confluent_kafka import KafkaError  # noqa: PLC0415 - loads librdkafka

    code = error.code()
    if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):  # noqa: SLF001 - their public names
        return LoadRefusedError(f"authentication failed at {bootstrap}: {_one_line(error)}", hint=LOGIN_HINT)
    if code == KafkaError._SSL:  # noqa: SLF001
        return LoadRefusedError(f"TLS failed at {bootstrap}: {_one_line(error)}", hint=TLS_HINT)
    if code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT):  # noqa: SLF001
        return unreachable(bootstrap, _one_line(error))
    missing = {
        KafkaError.TOPIC_AUTHORIZATION_FAILED: "--topic NAME --operation Write (Read for consumers)",
        KafkaError.GROUP_AUTHORIZATION_FAILED: "--group NAME --operation Read",
    }
    if code in missing:
        return LoadRefusedError(
            f"not authorized at {bootstrap}: {_one_line(error)}",
            hint=f"kafka-acls --add {missing[code]} --allow-principal User:NAME",
        )
    return KafkaQuotasError(f"the Kafka client failed: {_one_line(error)}")


def open_client(kind: Callable[[dict[str, Any]], _Client], properties: Mapping[str, object]) -> _Client:
    """Open a client of librdkafka."""
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - loads librdkafka

    try:
        return kind(librdkafka_properties(properties))
    except (KafkaException, ValueError, TypeError) as error:
        reason = error.args[0] if error.args else error
        shown = _one_line(reason) if isinstance(reason, KafkaError) else str(reason)
        hint = NO_KERBEROS if "GSSAPI" in shown else "-X takes librdkafka's names, see its CONFIGURATION.md"
        raise UsageError(f"a client property is refused: {shown}", hint=hint) from error


def is_fatal(error: "KafkaError") -> bool:
    """Return whether a librdkafka error is permanent, which ends a run at once."""
    from confluent_kafka import KafkaError  # noqa: PLC0415 - loads librdkafka

    return error.fatal() or error.code() in (
        KafkaError._AUTHENTICATION,  # noqa: SLF001
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._SSL,  # noqa: SLF001
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    )


def _one_line(error: "KafkaError") -> str:
    return " ".join(error.str().split()).rstrip(".")


_ATTEMPT_S = 1.0


_NAMELESS = "kafka-quotas-load-test"  # librdkafka always sends a client-id, even for a raw client without one


def probe_properties(plan: LoadPlan, entity: ClientLoad) -> dict[str, object]:
    """Return the properties of a short-lived client that checks the cluster before the load."""
    properties = plan.properties_of(entity).items()
    security = {key: value for key, value in properties if key.startswith(("security.", "sasl.", "ssl.", "enable.ssl"))}
    client_id = _NAMELESS if entity.name.client_id is None else entity.name.client_id
    return {"bootstrap.servers": plan.bootstrap, "client.id": client_id, "log_level": 0, **security}


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
    filled: tuple[PartitionRange, ...] = ()
    """Partitions that hold records, for consumers."""


TopicUse = tuple[str, Workload]
TopicViews = Mapping[TopicUse, TopicView]


def look_at_topic(plan: LoadPlan, entity: ClientLoad) -> TopicView:
    """Return a client's topic as that client sees it, within about `connect_timeout_s`."""
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
    """Check that the cluster answers and accepts the client's login."""
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - loads librdkafka

    errors: list[KafkaError] = []
    # A consumer would look up its group, for which brokers create a topic.
    client = open_client(AdminClient, {**probe_properties(plan, entity), "error_cb": errors.append})
    _cluster_metadata(client, plan, errors)


def _cluster_metadata(
    client: "AdminClient | Consumer", plan: LoadPlan, errors: "list[KafkaError]", topic: str | None = None
) -> "ClusterMetadata":
    """Return the cluster's metadata, in short attempts that end as soon as the cluster refuses."""
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
