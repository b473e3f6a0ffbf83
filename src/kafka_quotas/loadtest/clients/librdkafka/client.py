"""The base of all librdkafka clients of a run, with the library's callbacks and statistics.

Invariant: one thread drives one client, and callbacks run in that thread, inside the client's own calls.
"""

import json
import time
from typing import TYPE_CHECKING

from kafka_quotas.loadtest.clients.engine import SoloClient, WireCount
from kafka_quotas.loadtest.clients.errors import is_fatal, translated
from kafka_quotas.loadtest.plan.workload import Workload

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, ThrottleEvent

LONGEST_WAIT_S = 0.05
"""Longest wait between two looks at the end of the run."""
_SAMPLES_PER_S = 2000
"""Latencies recorded per second and client: a delivery callback costs about a microsecond, and so do its entries."""


class LibrdkafkaClient(SoloClient):
    """The base of producers and consumers, with the callbacks that write their state."""

    def callbacks(self) -> dict[str, object]:
        """Return the properties that set librdkafka's callbacks."""
        return {"error_cb": self.on_error, "throttle_cb": self.on_throttle, "stats_cb": self.on_statistics}

    def on_error(self, error: "KafkaError") -> None:
        """Keep the client's last error, and end the run if the error is fatal."""
        self.trouble = translated(error, bootstrap=self.plan.bootstrap)
        if is_fatal(error) and self.error is None:
            self.error = self.trouble

    def on_throttle(self, event: "ThrottleEvent") -> None:
        """Record a throttle time, which librdkafka reports in seconds."""
        self.recorder.throttled(time.monotonic_ns(), round(event.throttle_time * 1000))

    def on_statistics(self, statistics: str) -> None:
        """Update the bytes on the wire and the number of requests."""
        self.wire = wire_count(statistics, topic=self.entity.topic, workload=self.entity.workload)
        self.recorder.responded(time.monotonic_ns(), self.wire.requests)

    def sample_every(self) -> int:
        """Return N, where every Nth record has its latency recorded: 100 without a rate."""
        rate = self.entity.arrivals_per_second
        return 100 if rate is None else max(1, int(rate) // _SAMPLES_PER_S)

    def wait_until_due_s(self, now_ns: int) -> float:
        """Return the seconds until the next record is due, at most `LONGEST_WAIT_S`, and 0 without a schedule."""
        return min(max((self.pacer.next_ns(now_ns) - now_ns) / 1e9, 0.0), LONGEST_WAIT_S)


def wire_count(statistics: str, *, topic: str, workload: Workload) -> WireCount:
    """Return the counts of one topic and workload from a statistics document (JSON) of librdkafka.

    Source:
        librdkafka STATISTICS.md: `brokers.*.txbytes|rxbytes|req`, `topics.*.partitions.*.txbytes|rxbytes`.
    """
    document = json.loads(statistics)
    brokers = document.get("brokers", {}).values()
    partitions = document.get("topics", {}).get(topic, {}).get("partitions", {}).values()
    if workload is Workload.CONSUME:
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
