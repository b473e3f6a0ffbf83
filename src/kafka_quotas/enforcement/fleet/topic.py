"""The topic that carries a fleet's reports: made where it is missing, written and read by a thread of its own.

Invariants: the event loop never waits for it; a report that the topic does not take within `DELIVERY_MS` is dropped,
for the next one says the same and more; the thread lives through every failure of the broker and reports only whether
the topic works.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafka_quotas.enforcement.config.address import TopicTarget

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

CLIENT_ID: Final = "kafka-quotas-fleet"
DELIVERY_MS: Final = 1_500
"""Longest time for which a report is tried to be delivered."""
POLL_S: Final = 0.02
"""Longest time that a report waits for the thread."""
CREATE_EVERY_S: Final = 5.0
_AT_ONCE: Final = 500
_JOIN_S: Final = 3.0
TOPIC_CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "600000",
    "segment.ms": "600000",
    "segment.bytes": "16777216",
    "max.message.bytes": "131072",
}
"""Reports are of use for seconds: ten minutes of them, for people who look into a fleet."""
_COMMON: Final[dict[str, str | int | float]] = {
    "client.id": CLIENT_ID,
    "log_level": 0,
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1000,
    "socket.connection.setup.timeout.ms": 3000,
    "topic.metadata.refresh.interval.ms": 5000,
    "topic.metadata.propagation.max.ms": 1000,
}


class FleetTopic:
    """The thread between a topic and one member."""

    def __init__(self, target: TopicTarget, *, deliver: Callable[[bytes, int], None]) -> None:
        """Make it, without a connection.

        Args:
            target: The topic.
            deliver: Called by the thread with each report and its offset.
        """
        self.target = target
        self.trouble: str | None = None
        """Why the topic does not work at present, None where nothing is known to be wrong."""
        self._deliver = deliver
        self._outgoing: deque[bytes] = deque(maxlen=4)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fleet-topic", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def publish(self, report: bytes) -> None:
        """Have the thread write a report, in place of an older one that still waits."""
        self._outgoing.append(report)

    def close(self) -> None:
        """Write what waits, if that takes no more than a moment, and end."""
        self._stop.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._serve()
            except Exception as error:  # noqa: BLE001 - a defect, or a wrong property, must not end the thread
                self.trouble = str(error)
                self._stop.wait(CREATE_EVERY_S)

    def _serve(self) -> None:
        from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition  # noqa: PLC0415 - only fleets
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - as above

        common: dict[str, str | int | float] = {
            **_COMMON,
            "bootstrap.servers": self.target.bootstrap,
            **self.target.properties,
        }
        producer = Producer(
            {
                **common,
                "linger.ms": 0,
                "acks": 1,
                "message.timeout.ms": DELIVERY_MS,
                "queue.buffering.max.messages": 100,
                "error_cb": self._failed,
            }
        )
        consumer = Consumer(
            {
                **common,
                "group.id": CLIENT_ID,
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "fetch.wait.max.ms": 100,
                # A transaction that somebody leaves open must not hide what comes after it.
                "isolation.level": "read_uncommitted",
                # Whoever can write to the topic can write more than can be read, which must not fill the memory.
                "queued.max.messages.kbytes": 1024,
                "fetch.message.max.bytes": 262144,
                "allow.auto.create.topics": False,
            }
        )
        admin = AdminClient(common)
        with contextlib.closing(consumer):
            consumer.assign([TopicPartition(self.target.topic, 0, OFFSET_END)])
            next_create_s = 0.0
            while not self._stop.is_set():
                if (self.trouble is not None or not next_create_s) and time.monotonic() >= next_create_s:
                    self._create(admin)
                    next_create_s = time.monotonic() + CREATE_EVERY_S
                self._read(consumer)
                self._write(producer)
            self._write(producer)
            producer.flush(1.0)
            producer.purge()

    def _create(self, admin: "AdminClient") -> None:
        """Have the topic made, unless it is there."""
        from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415 - only fleets

        topic = NewTopic(self.target.topic, num_partitions=1, replication_factor=-1, config=dict(TOPIC_CONFIG))
        # Not waited for: without a controller it takes seconds, in which reports would be late. That the topic is
        # there is an error as well, and the next report says what is wrong.
        admin.create_topics([topic], request_timeout=3.0, operation_timeout=3.0)

    def _read(self, consumer: "Consumer") -> None:
        for record in consumer.consume(_AT_ONCE, POLL_S):
            error, value, offset = record.error(), record.value(), record.offset()
            if error is not None:
                self._failed(error)
            elif value is not None and offset is not None:
                self.trouble = None
                self._deliver(value if isinstance(value, bytes) else value.encode(), offset)

    def _write(self, producer: "Producer") -> None:
        while self._outgoing:
            with contextlib.suppress(BufferError, IndexError):
                producer.produce(self.target.topic, self._outgoing.popleft(), partition=0, on_delivery=self._delivered)
        producer.poll(0)

    def _delivered(self, error: "KafkaError | None", record: object) -> None:
        del record
        if error is not None:
            self._failed(error)

    def _failed(self, error: "KafkaError") -> None:
        self.trouble = error.str()
