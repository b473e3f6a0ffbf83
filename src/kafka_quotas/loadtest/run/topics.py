"""The topics of a run: created under its prefix, filled, probed and deleted; and the embedded cluster.

The connection is of the same kind as the one that administers quotas.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import Final, Self, TypeVar

from kafka_quotas.core.errors import KafkaQuotasError, StoreError
from kafka_quotas.loadtest.clients.cluster_check import ClusterUnreachableError, LoadRefusedError, open_client
from kafka_quotas.loadtest.results.result import ProbeResult
from kafka_quotas.loadtest.run.target_watch import RunWatch
from kafka_quotas.stores.address import StoreSettings, parse_store_url
from kafka_quotas.stores.kafka.cluster_client import ClusterClient
from kafka_quotas.stores.store import Polling
from kafka_quotas.wire.client.admin import CreateTopics, DeleteTopics, MetadataRequest, NewTopic
from kafka_quotas.wire.protocol.api_table import ErrorCode, error_name

_BATCH: Final = 200  # topics in one request: brokers refuse more than 10,000 partitions in one
_READY_S: Final = 60.0
_LOOK_S: Final = 0.1
# After NOT_CONTROLLER, `remove` retries.
_DELETED_OR_RETRIED: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_CONTROLLER)
_Item = TypeVar("_Item")


class TopicAdmin:
    """The administrator of one cluster's topics, connected at the first call."""

    def __init__(self, bootstrap: str, *, settings: StoreSettings) -> None:
        self._connection = ClusterClient(parse_store_url(f"kafka://{bootstrap}"), settings=settings)
        self._timeout_ms = int(settings.timeout_s * 1000)
        self._ready_s = max(_READY_S, settings.timeout_s)

    def make(self, topics: Sequence[NewTopic]) -> None:
        """Create topics and wait until each partition has a leader."""
        for batch in _batches(topics):
            self.ask_for(*batch)
        wanted = {topic.name: topic.partitions for topic in topics}
        if not Polling(_LOOK_S).until(lambda: self.are_led(wanted), timeout_s=self._ready_s):
            raise LoadRefusedError(f"the run's topics got no leaders within {self._ready_s:.0f} s")

    def ask_for(self, *topics: NewTopic) -> None:
        """Request the creation of topics, without a wait until they are visible."""
        request = CreateTopics(topics=topics, timeout_ms=self._timeout_ms)
        for outcome in self._connection.send(request, node_id=self._connection.controller_id()).topics:
            if outcome.error_code:
                reason = outcome.error_message or error_name(outcome.error_code)
                raise LoadRefusedError(
                    f"topic {outcome.name} can't be made: {reason}",
                    hint="an account that may create topics is named with --command-config",
                )

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
                request = DeleteTopics(topics=[NewTopic(name, 0) for name in batch], timeout_ms=self._timeout_ms)
                for outcome in self._connection.send(request, node_id=self._connection.controller_id()).topics:
                    if outcome.error_code not in _DELETED_OR_RETRIED:
                        raise self._connection.error(outcome.error_code, f"topic {outcome.name}", missing_acl="Delete")
        if names:
            raise StoreError(
                f"{len(names)} topics are still there after {self._ready_s:.0f} s: {names[0]} ...",
                hint="kafka-quotas load-test restore tries again",
            )
        return tuple(removed)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def are_led(self, wanted: Mapping[str, int]) -> bool:
        """Return whether metadata show the topics with as many partitions each, and a leader for every one."""
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
    """
    from confluent_kafka import Producer  # noqa: PLC0415 - loads librdkafka

    settings = {"bootstrap.servers": bootstrap, "client.id": "kafka-quotas-fill", "log_level": 0, **properties}
    own = {"batch.num.messages": 50, "linger.ms": 5, "queue.buffering.max.messages": 20_000}
    producer = open_client(Producer, {**settings, **own})
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


MAX_AT_ONCE: Final = 100
"""Most probes without a result, beyond which no new one starts: the outstanding ones show the delay."""
_PROBE_LOOK_S: Final = 0.02


class TopicProbes(RunWatch):
    """Probes that each create a new topic under `prefix`, every `every_s` seconds.

    `opened` returns a connection of its own for each probe, so that none waits for another. At the end, the probes
    without a result get `grace_s` seconds more.
    """

    def __init__(self, opened: Callable[[], TopicAdmin], *, prefix: str, every_s: float, grace_s: float) -> None:
        super().__init__(interval_s=every_s)
        self._opened = opened
        self._prefix = prefix
        self._grace_s = grace_s
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._answers: list[ProbeResult] = []

    @property
    def answers(self) -> tuple[ProbeResult, ...]:
        """The results, in the order in which the probes started."""
        return tuple(sorted(self._answers, key=lambda answer: answer.at_s))

    def ask_until(self, after_s: float) -> None:
        """Wait until `after_s` seconds after the start, while the probes continue.

        The effects of a load on the controller last longer than its responses.
        """
        time.sleep(max(0.0, after_s - self.now_s()))

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        deadline_s = time.monotonic() + self._grace_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        self._over.set()
        for thread in self._threads:
            thread.join()

    def watch(self) -> None:
        """Start the probes, and skip those beyond `MAX_AT_ONCE`."""
        number = 0
        while not self.stop.wait(max(0.0, number * self.interval_s - self.now_s())):
            if sum(thread.is_alive() for thread in self._threads) < MAX_AT_ONCE:
                thread = threading.Thread(target=self._probe, args=(f"{self._prefix}{number}",), daemon=True)
                self._threads.append(thread)
                thread.start()
            number += 1

    def _probe(self, topic: str) -> None:
        at_s = self.now_s()
        try:
            is_there = self._is_made(topic)
        except KafkaQuotasError as error:
            self._answers.append(ProbeResult(at_s=at_s, wait_ms=None, error=error.message))
            return
        wait_ms = (self.now_s() - at_s) * 1000 if is_there else None
        self._answers.append(ProbeResult(at_s=at_s, wait_ms=wait_ms, error="" if is_there else "not visible in time"))

    def _is_made(self, topic: str) -> bool:
        with closing(self._opened()) as admin:
            admin.ask_for(NewTopic(topic, 1))
            while not admin.are_led({topic: 1}):
                if self._over.wait(_PROBE_LOOK_S):
                    return False
        return True


_EMBEDDED_READY_S = 10.0


class EmbeddedCluster:
    """Mock brokers that live until `close`, with their addresses in `bootstrap` as host:port,host:port."""

    def __init__(self, *, brokers: int = 1) -> None:
        from confluent_kafka import KafkaException, Producer  # noqa: PLC0415 - loads librdkafka

        self._owner = Producer({"test.mock.num.brokers": brokers, "log_level": 0})
        try:
            metadata = self._owner.list_topics(timeout=_EMBEDDED_READY_S)
        except KafkaException as error:
            raise ClusterUnreachableError(f"the embedded cluster does not start: {error.args[0].str()}") from error
        self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in metadata.brokers.values())

    def make_topic(self, topic: str) -> int:
        """Create the topic if it does not exist, and return its number of partitions."""
        return len(self._owner.list_topics(topic, timeout=_EMBEDDED_READY_S).topics[topic].partitions)

    def fill(self, topic: str, *, records: int, record_size: int) -> None:
        """Write `records` records to the topic, in equal shares for its partitions."""
        partitions = self.make_topic(topic)
        fill_topic(self.bootstrap, topic, partitions=partitions, records=records, record_size=record_size)

    def close(self) -> None:
        """Stop the brokers."""
        self._owner.flush(0)
        del self._owner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
