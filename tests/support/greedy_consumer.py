"""A consumer that reads as fast as it is let: what arrived when, to be judged by whole throttle cycles."""

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError


def arrivals(
    bootstrap: str, topic: str, client_id: str, *, duration_s: float, properties: Mapping[str, str] | None = None
) -> list[tuple[float, int]]:
    """(time in ms, bytes) of every record that arrived within `duration_s` of the first, in order.

    Each fetch is small, so that a burst of many makes the sawtooth of a quota and not a single one.
    Raises `RuntimeError` where the broker reports an error.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": client_id,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": "40000",
            "fetch.wait.max.ms": "100",
            **(properties or {}),
        }
    )
    arrived: list[tuple[float, int]] = []
    try:
        consumer.subscribe([topic])
        deadline_s = time.monotonic() + 30
        while time.monotonic() < deadline_s:
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() in (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART):
                    continue
                raise RuntimeError(f"consuming failed: {error}")
            now_s = time.monotonic()
            if not arrived:
                deadline_s = now_s + duration_s
            arrived.append((now_s * 1000, len(message.value() or b"")))
    finally:
        consumer.close()
    return arrived
