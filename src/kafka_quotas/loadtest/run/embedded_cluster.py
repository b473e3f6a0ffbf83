"""A Kafka cluster inside this process: librdkafka's own mock brokers, on 127.0.0.1.

It keeps about 5 MB per partition, never throttles and knows no quotas: the daemon in front of it enforces them. The
cluster creates a topic when a client asks for its metadata.
"""

from types import TracebackType
from typing import Self

from kafka_quotas.loadtest.clients.errors import ClusterUnreachableError
from kafka_quotas.loadtest.run.topics import fill_topic

_READY_S = 10.0


class EmbeddedCluster:
    """Mock brokers that live until `close`, with their addresses in `bootstrap` as host:port,host:port."""

    def __init__(self, *, brokers: int = 1) -> None:
        from confluent_kafka import KafkaException, Producer  # noqa: PLC0415 - loads librdkafka

        self._owner = Producer({"test.mock.num.brokers": brokers, "log_level": 0})
        try:
            metadata = self._owner.list_topics(timeout=_READY_S)
        except KafkaException as error:
            raise ClusterUnreachableError(f"the embedded cluster does not start: {error.args[0].str()}") from error
        self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in metadata.brokers.values())

    def make_topic(self, topic: str) -> int:
        """Create the topic if it does not exist, and return its number of partitions."""
        return len(self._owner.list_topics(topic, timeout=_READY_S).topics[topic].partitions)

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
