"""A daemon's part in its fleet: the timers, the buckets, and the topic that carries the reports of all members.

Invariants: everything happens between requests, in steps of a millisecond. The topic is made where it is missing, and
written and read by a thread of its own, for which the event loop never waits. A report that the topic does not take
within `DELIVERY_MS` is dropped, for the next one says the same and more. The thread lives through every failure of the
broker and reports only whether the topic works.
"""

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from secrets import randbits
from typing import TYPE_CHECKING, Final, TypeAlias

from kafka_quotas.enforcement.config.address import TopicTarget
from kafka_quotas.enforcement.config.settings import FleetSettings, acls_needed
from kafka_quotas.enforcement.proxy.proxy_quotas import ProxyQuotas
from kafka_quotas.enforcement.quotas.quota_registry import BucketId
from kafka_quotas.enforcement.sharing.buckets import BucketRecorder, DaemonBuckets, bucket_number
from kafka_quotas.enforcement.sharing.fleet import ADJUST_MS, Sharing
from kafka_quotas.enforcement.sharing.report import MAX_REPORT_BYTES, Refusal
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel
from kafka_quotas.enforcement.telemetry.status import FleetRow

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

Waiting: TypeAlias = Callable[[int], Mapping[BucketId, int]]
"""Returns how many clients are throttled for each bucket at a time."""

MAX_INBOX_BYTES: Final = 1024 * 1024
"""Most bytes of reports that wait to be taken up: ten times what all members may publish in a second."""
SLICE_BYTES: Final = MAX_REPORT_BYTES
"""Bytes of reports that are taken up before clients are served again: 5 ms at most."""
_RECORD_BYTES: Final = 1_000
"""What a report of no bytes counts for."""
UNSIGNED: Final = "fleet: reports are not signed: whoever writes to the topic decides on all limits"


class FleetMembership:
    """The membership of one daemon in its fleet."""

    def __init__(
        self, quotas: ProxyQuotas, fleet: FleetSettings, *, waiting: Waiting, recorder: BucketRecorder | None = None
    ) -> None:
        """Make a member, which joins with `start`."""
        self._settings = fleet
        self._buckets = DaemonBuckets(quotas, recorder=recorder)
        self._clock = quotas.clock
        self._notify = quotas.notify
        self._waiting = waiting
        settings, rules = quotas.settings, quotas.settings.rules
        self.sharing = Sharing(
            randbits(64),
            fleet,
            self._clock.now_ms(),
            name=f"{socket.gethostname()}:{settings.listeners[0].listen.port or os.getpid()}",
            windows=(rules.window, rules.mutation_window),
            notify=self._notify,
            secrets=lambda: quotas.fleet_secrets,
            recorder=self._buckets.recorder,
        )
        self._loop = asyncio.get_running_loop()
        self._topic = FleetTopic(fleet.target, deliver=self._deliver)
        self._running: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()
        self._reported_ms = 0
        self._inbox: deque[tuple[bytes, int]] = deque()
        self._came_bytes = self._taken_bytes = self._last_offset = 0

    async def start(self) -> None:
        """Start, and return once the member has joined or has found the topic out of reach."""
        if self._settings.secret_file is None:
            topic = self._settings.target.topic
            self._notify(LogEvent.of(UNSIGNED, LogLevel.WARNING, needs=acls_needed(topic)))
        self._topic.start()
        self._running = self._loop.create_task(self._run())
        await self._joined.wait()
        if self.sharing.is_cut_off:
            return
        name, topic = self._settings.name, str(self._settings.target)
        self._notify(LogEvent.of("fleet: joined", fleet=name, members=self.sharing.members.count, topic=topic))

    async def close(self) -> None:
        """Report to the others that this member ends, and end."""
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        self._topic.publish(self.sharing.leave(self._clock.now_ms()))
        await asyncio.to_thread(self._topic.close)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(ADJUST_MS / 1000.0)
            try:
                self._step(self._clock.now_ms())
            except Exception as error:  # noqa: BLE001 - a defect must not end the sharing of all other buckets
                self._notify(LogEvent.failure("fleet: a step failed", error))

    def _step(self, now_ms: int) -> None:
        sharing = self.sharing
        self._buckets.pool.idle_share = sharing.idle_share
        for number, bucket in self._buckets.used(now_ms):
            sharing.offer(number, bucket, now_ms)
        sharing.adjust(now_ms)
        if sharing.is_joined:
            self._joined.set()
        # Half a step early rather than a whole one late.
        if now_ms - self._reported_ms >= sharing.interval_ms - ADJUST_MS // 2:
            self._reported_ms = now_ms
            waiting = {bucket_number(of): clients for of, clients in self._waiting(now_ms).items()}
            self._topic.publish(sharing.report(now_ms, waiting))

    def _deliver(self, report: bytes, offset: int) -> None:
        """Leave a report to the event loop, unless more wait there than members can have written."""
        report = report[: MAX_REPORT_BYTES + 1]  # too long is too long
        size = len(report) + _RECORD_BYTES
        if self._came_bytes - self._taken_bytes + size > MAX_INBOX_BYTES:
            self.sharing.checks.refused[Refusal.TOO_MANY] += 1
            return
        self._came_bytes += size
        self._inbox.append((report, offset))
        if len(self._inbox) == 1:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._receive)

    def _receive(self) -> None:
        """Take up some reports, and the rest after other work of the loop."""
        taken_bytes = 0
        try:
            while self._inbox and taken_bytes < SLICE_BYTES:
                report, offset = self._inbox.popleft()
                taken_bytes += len(report) + _RECORD_BYTES
                if offset < self._last_offset:
                    self.sharing.begin_again()
                self._last_offset = offset
                self.sharing.receive(report, offset, self._clock.now_ms())
        finally:
            self._taken_bytes += taken_bytes
            if self._inbox:
                self._loop.call_soon(self._receive)

    def status(self) -> FleetRow:
        """Return what an operator should know."""
        sharing, checks = self.sharing, self.sharing.checks
        alive = sharing.members.alive.values()
        return FleetRow(
            name=self._settings.name,
            topic=str(self._settings.target),
            member=sharing.name,
            members=sharing.members.count,
            others=tuple(sorted(member.report.name for member in alive)),
            not_trusted=len(sharing.members.strangers),
            strangers=tuple(sorted(f"{each.name}: {each.reason}" for each in sharing.members.strangers.values())),
            signs=bool(checks.secrets()),
            signing=tuple(sorted(member.report.name for member in alive if member.report.signed)),
            refused={reason.value: checks.refused[reason] for reason in Refusal},
            wrong_clocks=sum(member.has_wrong_clock for member in alive),
            cut_off=sharing.is_cut_off,
            fallback=self._settings.fallback.value,
            trouble=self._topic.trouble,
            shared_buckets=sharing.shared_buckets,
            unnamed_buckets=self._buckets.unnamed,
            published_bytes=sharing.published_bytes,
            received_bytes=sharing.received_bytes,
        )


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
        """Make it, without a connection, and have the thread `deliver` each report with its offset."""
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

        from kafka_quotas.stores.security.librdkafka import librdkafka_properties  # noqa: PLC0415 - as above

        common = librdkafka_properties(
            {**_COMMON, "bootstrap.servers": self.target.bootstrap, **self.target.properties}
        )
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
