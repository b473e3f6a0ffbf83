"""A producer that sends as fast as it is let: what was acknowledged when, to be judged by whole throttle cycles."""

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, Message, Producer

RECORD_BYTES = 10_000
"""Large enough that framing, which the quota counts as well, is a quarter of a per cent."""


def acknowledgements(
    bootstrap: str,
    topic: str,
    client_id: str,
    *,
    duration_s: float,
    properties: Mapping[str, str] | None = None,
    throttled_ms: list[float] | None = None,
) -> list[tuple[float, int]]:
    """(time in ms, bytes) of every record that a broker acknowledged within `duration_s`, in order.

    The throttle times that the producer was told are added to `throttled_ms`. Raises `RuntimeError` if a record failed.
    """
    acks: list[tuple[float, int]] = []
    failures: list[KafkaError] = []
    told_ms: list[float] = [] if throttled_ms is None else throttled_ms

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            acks.append((time.monotonic() * 1000, len(message.value() or b"")))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "acks": "1",
            "linger.ms": "5",
            "batch.size": "100000",
            "queue.buffering.max.messages": "500",
            "message.timeout.ms": "60000",
            "throttle_cb": lambda event: told_ms.append(event.throttle_time * 1000),
            **(properties or {}),
        }
    )
    payload = bytes(RECORD_BYTES)
    end_s = time.monotonic() + duration_s
    while time.monotonic() < end_s and not failures:
        try:
            producer.produce(topic, payload, on_delivery=delivered)
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
    producer.purge()
    producer.flush(10)
    producer.poll(0)
    lost = [error for error in failures if error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)]
    if lost:
        raise RuntimeError(f"records failed: {lost[0]}")
    return acks
