"""A topic of events, fed by librdkafka: a line per record, keyed so that one client's events stay in order.

Invariants: the library's queue is bounded; what does not fit, and what no broker took in time, is lost and counted.
"""

from typing import TYPE_CHECKING, Final

from kafka_quotas.enforcement.config.topic_target import TopicTarget
from kafka_quotas.enforcement.event_log.files import EventLogError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException, Message, Producer

CLIENT_ID: Final = "kafka-quotas-event-log"
_QUEUE_RECORDS: Final = 100_000
_QUEUE_KIB: Final = 32 * 1024
_FLUSH_S: Final = 5.0
_DEFAULTS: Final = {
    "client.id": CLIENT_ID,
    "linger.ms": 100,
    "compression.type": "lz4",
    "enable.idempotence": True,
    "delivery.timeout.ms": 120_000,
    "log_level": 0,
    "queue.buffering.max.messages": _QUEUE_RECORDS,
    "queue.buffering.max.kbytes": _QUEUE_KIB,
}


class EventTopic:
    """The sink that passes lines to the producer of a topic.

    For one thread at a time.
    """

    def __init__(self, target: TopicTarget) -> None:
        self._target = target
        self._producer = _opened(target)
        self._undelivered = 0

    def write(self, lines: list[str]) -> int:
        """Produce the lines and return how many were taken, less those lost since the last call.

        Raises:
            EventLogError: The producer takes none, for another reason than that it has no room.
        """
        from confluent_kafka import KafkaException  # noqa: PLC0415 - only daemons that log to a topic

        taken = 0
        for line in lines:
            try:
                self._producer.produce(self._target.topic, line[:-1], key=_key(line), on_delivery=self._delivered)
                taken += 1
            except BufferError:
                break
            except KafkaException as error:
                if taken:
                    break  # the next call reports why
                self._recover(error)
                raise EventLogError(f"can't log to {self._target}: {error}") from error
        self._producer.poll(0)
        lost, self._undelivered = self._undelivered, 0
        return taken - lost

    def settle(self) -> None:
        """Serve the producer's delivery reports."""
        self._producer.poll(0)

    def close(self) -> None:
        """Deliver what the producer holds, drop what is left after some seconds, and end the producer.

        The callback of a record that was not served would keep this sink, in a way that garbage collection can't see.
        """
        self._producer.flush(_FLUSH_S)
        self._producer.purge()
        self._producer.flush(0)
        del self._producer

    def _recover(self, error: "KafkaException") -> None:
        """Replace a producer that has failed for good, as an idempotent one may."""
        if error.args[0].fatal():
            self._producer.purge()
            self._producer.flush(0)
            self._producer = _opened(self._target)

    def _delivered(self, error: "KafkaError | None", record: "Message") -> None:
        del record
        if error is not None:
            self._undelivered += 1


def _opened(target: TopicTarget) -> "Producer":
    from confluent_kafka import KafkaException, Producer  # noqa: PLC0415 - only daemons that log to a topic

    try:
        return Producer({**_DEFAULTS, "bootstrap.servers": target.bootstrap, **target.properties})
    except KafkaException as error:
        raise EventLogError(f"can't log to {target}: {error}") from error


def _key(line: str) -> str:
    broker, user = line.index('"broker_id"'), line.index('"user"')
    return line[broker : line.index(",", broker) + 1] + line[user : line.index(',"ip"')]
