"""The topics that a run creates under its prefix and deletes again.

The connection is of the same kind as the one that administers quotas.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

from kafka_quotas.core.errors import StoreError
from kafka_quotas.loadtest.clients.errors import LoadRefusedError
from kafka_quotas.stores.kafka.cluster_client import ClusterClient
from kafka_quotas.stores.polling import Polling
from kafka_quotas.stores.settings import StoreSettings
from kafka_quotas.stores.url import parse_store_url
from kafka_quotas.wire.client.metadata import MetadataRequest
from kafka_quotas.wire.client.topics import CreateTopics, DeleteTopics, NewTopic
from kafka_quotas.wire.protocol.error_code import ErrorCode, error_name

_BATCH: Final = 200  # topics in one request: brokers refuse more than 10,000 partitions in one
_READY_S: Final = 60.0
_LOOK_S: Final = 0.1
# After NOT_CONTROLLER, `remove` retries.
_DELETED_OR_RETRIED: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_CONTROLLER)
_Item = TypeVar("_Item")


class TopicAdmin:
    """The administrator of one cluster's topics, connected at the first call.

    Raises:
        StoreUnreachableError: From every call, if no broker answers.
        StoreRefusedError: From every call, if the brokers refuse it.
    """

    def __init__(self, bootstrap: str, *, settings: StoreSettings) -> None:
        self._connection = ClusterClient(parse_store_url(f"kafka://{bootstrap}"), settings=settings)
        self._timeout_ms = int(settings.timeout_s * 1000)
        self._ready_s = max(_READY_S, settings.timeout_s)

    def make(self, topics: Sequence[NewTopic]) -> None:
        """Create topics and wait until each partition has a leader.

        Raises:
            LoadRefusedError: If the cluster refuses a topic, or the leaders are missing for too long.
        """
        for batch in _batches(topics):
            self.ask_for(*batch)
        wanted = {topic.name: topic.partitions for topic in topics}
        if not Polling(_LOOK_S).until(lambda: self._led(wanted), timeout_s=self._ready_s):
            raise LoadRefusedError(f"the run's topics got no leaders within {self._ready_s:.0f} s")

    def ask_for(self, *topics: NewTopic) -> None:
        """Request the creation of topics, without a wait until they are visible.

        Raises:
            LoadRefusedError: If the cluster refuses a topic.
        """
        request = CreateTopics(topics=topics, timeout_ms=self._timeout_ms)
        for outcome in self._connection.send(request, node_id=self._controller()).topics:
            if outcome.error_code:
                reason = outcome.error_message or error_name(outcome.error_code)
                raise LoadRefusedError(
                    f"topic {outcome.name} can't be made: {reason}",
                    hint="an account that may create topics is named with --command-config",
                )

    def is_led(self, name: str) -> bool:
        """Return whether metadata show the topic with a leader for each partition."""
        return self._led({name: 1})

    def named(self, prefix: str) -> tuple[str, ...]:
        """Return the names of all topics that begin with the prefix, sorted."""
        topics = self._connection.send(MetadataRequest(topics=None)).topics
        return tuple(sorted(topic.name for topic in topics if topic.name.startswith(prefix)))

    def missing(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the topics that do not exist, in the given order."""
        topics = self._connection.send(MetadataRequest(topics=tuple(names))).topics
        unknown = {topic.name for topic in topics if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        return tuple(name for name in names if name in unknown)

    def remove(self, prefix: str) -> tuple[str, ...]:
        """Delete all topics that begin with the prefix, wait until none is left, and return their names.

        Raises:
            StoreError: If a topic can't be deleted, or is still there at the time limit.
        """
        removed: list[str] = []
        deadline_s = time.monotonic() + self._ready_s
        while (names := self.named(prefix)) and time.monotonic() < deadline_s:
            removed += [name for name in names if name not in removed]
            for batch in _batches(names):
                self._delete(batch)
        if names:
            raise StoreError(
                f"{len(names)} topics are still there after {self._ready_s:.0f} s: {names[0]} ...",
                hint="kafka-quotas load-test restore tries again",
            )
        return tuple(removed)

    def answers(self) -> None:
        """Check that a broker answers."""
        self._connection.send(MetadataRequest())

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _delete(self, names: Sequence[str]) -> None:
        request = DeleteTopics(topics=[NewTopic(name, 0) for name in names], timeout_ms=self._timeout_ms)
        for outcome in self._connection.send(request, node_id=self._controller()).topics:
            if outcome.error_code not in _DELETED_OR_RETRIED:
                raise self._connection.error(outcome.error_code, f"topic {outcome.name}", missing_acl="Delete")

    def _controller(self) -> int:
        """Return the broker that takes changes of topics, to which others forward them under KRaft."""
        self._connection.node_ids()
        return self._connection.send(MetadataRequest()).controller_id

    def _led(self, wanted: dict[str, int]) -> bool:
        topics = self._connection.send(MetadataRequest(topics=tuple(wanted))).topics
        return all(
            not topic.error_code
            and len(topic.partitions) >= wanted[topic.name]
            and all(partition.leader_id >= 0 for partition in topic.partitions)
            for topic in topics
        )


def fill_topic(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    records: int,
    record_size: int,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the records to the topic, in equal shares for its partitions.

    Batches have a few dozen records, so that a consumer with a small quota can fetch them.

    Raises:
        LoadRefusedError: If the topic does not take the records in time.
    """
    from confluent_kafka import Producer  # noqa: PLC0415 - loads librdkafka

    settings = {"bootstrap.servers": bootstrap, "client.id": "kafka-quotas-fill", "log_level": 0, **properties}
    producer = Producer({**settings, "batch.num.messages": 50, "linger.ms": 5, "queue.buffering.max.messages": 20_000})
    payload = bytes(record_size)
    for number in range(records):
        while True:
            try:
                producer.produce(topic, payload, partition=number % partitions)
                break
            except BufferError:
                producer.poll(_LOOK_S)
    if producer.flush(_READY_S):
        raise LoadRefusedError(
            f"topic {topic} did not take its {records} records within {_READY_S:.0f} s",
            hint="is there a quota on those who name themselves kafka-quotas-fill?",
        )


def _batches(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]
