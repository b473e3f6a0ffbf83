"""The base of all librdkafka clients of a run, with the library's callbacks and statistics.

Invariant: one thread drives one client, and callbacks run in that thread, inside the client's own calls.
"""

import json
import time
from collections import Counter
from typing import TYPE_CHECKING

from kafka_quotas.loadtest.clients.engine import RunClock, SoloClient, WireCount
from kafka_quotas.loadtest.clients.errors import is_fatal, translated
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.workload import Workload

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, ThrottleEvent

LONGEST_WAIT_S = 0.05
"""Longest wait between two looks at the end of the run."""
_SAMPLES_PER_S = 2000
"""Latencies recorded per second and client: a delivery callback costs about a microsecond, and so do its entries."""


class LibrdkafkaClient(SoloClient):
    """The base of producers and consumers, with the callbacks that write their state."""

    def __init__(self, plan: LoadPlan, entity: ClientLoad, clock: RunClock) -> None:
        super().__init__(plan, entity, clock)
        self._wires = WireCounter(topic=entity.topic, workload=entity.workload)

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
        self.wire = self._wires.counted(statistics)
        self.recorder.responded(time.monotonic_ns(), self.wire.requests)

    def sample_every(self) -> int:
        """Return N, where every Nth record has its latency recorded: 100 without a rate."""
        rate = self.entity.arrivals_per_second
        return 100 if rate is None else max(1, int(rate) // _SAMPLES_PER_S)

    def wait_until_due_s(self, now_ns: int) -> float:
        """Return the seconds until the next record is due, at most `LONGEST_WAIT_S`, and 0 without a schedule."""
        return min(max((self.pacer.next_ns(now_ns) - now_ns) / 1e9, 0.0), LONGEST_WAIT_S)


class WireCounter:
    """The bytes and requests of one topic and workload, over all statistics of a client.

    librdkafka drops a lost broker from its statistics, and counts from 0 when it finds the broker again. So each count
    is summed by its growth, and a reconnect takes nothing away.

    Source:
        librdkafka STATISTICS.md: `brokers.*.txbytes|rxbytes|req`, `topics.*.partitions.*.txbytes|rxbytes`.
    """

    def __init__(self, *, topic: str, workload: Workload) -> None:
        self._topic = topic
        self._workload = workload
        self._last: dict[tuple[str, str], int] = {}
        self._sums: Counter[str] = Counter()

    def counted(self, statistics: str) -> WireCount:
        """Return the counts since the start, from a further statistics document (JSON)."""
        document = json.loads(statistics)
        brokers = document.get("brokers", {})
        partitions = document.get("topics", {}).get(self._topic, {}).get("partitions", {})
        reads = self._workload is Workload.CONSUME
        for name, broker in brokers.items():
            self._grow("wire", name, broker["rxbytes" if reads else "txbytes"])
            self._grow("requests", name, broker.get("req", {}).get("Fetch" if reads else "Produce", 0))
        for name, partition in partitions.items():
            self._grow("payload", name, partition["rxbytes" if reads else "txbytes"])
            self._grow("records", name, 0 if reads else partition["txmsgs"])
        payload = self._sums["payload"]
        if self._sums["records"]:
            waiting = sum(broker["outbuf_msg_cnt"] for broker in brokers.values())  # in requests built and not yet sent
            payload -= waiting * payload // self._sums["records"]
        return WireCount(wire_bytes=self._sums["wire"], payload_bytes=payload, requests=self._sums["requests"])

    def _grow(self, count: str, name: str, now: int) -> None:
        before = self._last.get((count, name), 0)
        self._sums[count] += now - before if now >= before else now
        self._last[count, name] = now
