"""Bytes on the wire per byte of payload, from librdkafka's statistics.

A quota counts whole requests and responses, an application counts record values. At 1 KiB records the difference is
about 1 %, which is half of what a verdict tolerates; with compression it is far larger.
"""

import json
from dataclasses import dataclass

from kafka_quotas.loadtest.plan.throttle_cycles import Direction


@dataclass(frozen=True, slots=True, kw_only=True)
class WireCount:
    """The bytes and requests of one client since it started."""

    wire_bytes: int
    """Bytes on the wire."""
    payload_bytes: int
    """Bytes of payload within them."""
    requests: int = 0
    """Requests that moved them."""

    @property
    def ratio(self) -> float:
        """Wire bytes per byte of payload, or 1 before there is any payload."""
        return self.wire_bytes / self.payload_bytes if self.payload_bytes else 1.0


def wire_count(statistics: str, *, topic: str, direction: Direction) -> WireCount:
    """Return the counts of one topic and direction from a statistics document (JSON) of librdkafka.

    Source:
        librdkafka STATISTICS.md: `brokers.*.txbytes|rxbytes|req`, `topics.*.partitions.*.txbytes|rxbytes`.
    """
    document = json.loads(statistics)
    brokers = document.get("brokers", {}).values()
    partitions = document.get("topics", {}).get(topic, {}).get("partitions", {}).values()
    if direction is Direction.CONSUME:
        return WireCount(
            wire_bytes=sum(broker["rxbytes"] for broker in brokers),
            payload_bytes=sum(partition["rxbytes"] for partition in partitions),
            requests=sum(broker.get("req", {}).get("Fetch", 0) for broker in brokers),
        )
    built, records = (sum(partition[field] for partition in partitions) for field in ("txbytes", "txmsgs"))
    waiting = sum(broker["outbuf_msg_cnt"] for broker in brokers)  # in requests that were built and not yet sent
    return WireCount(
        wire_bytes=sum(broker["txbytes"] for broker in brokers),
        payload_bytes=built - waiting * built // records if records else 0,
        requests=sum(broker.get("req", {}).get("Produce", 0) for broker in brokers),
    )
