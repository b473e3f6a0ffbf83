"""A raw producer: prebuilt batches, each sent once, or again where `request.timeout.ms` bounds the wait for an answer.

A quota is charged with the whole request, header included, and the recorder gets the same number.
**Source:** `KafkaApis.handleProduceRequest` (`request.sizeInBytes`), Kafka 4.1.
"""

import random
import time
from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.clients.engine import RunClock, WireCount
from kafka_quotas.loadtest.clients.raw.cluster import Leaders
from kafka_quotas.loadtest.clients.raw.connected_client import ConnectedClient
from kafka_quotas.loadtest.clients.raw.connection import CORRELATION_ID_AT, InFlight, RawConnection
from kafka_quotas.loadtest.clients.raw.record_batch import RecordBatch
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.wire.client.records import PRODUCE_VERSION, ProduceAnswer, ProduceRequest, read_records_answer
from kafka_quotas.wire.client.request import request_frame
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES

ACKS: Final = {"0": 0, "1": 1, "all": -1, "-1": -1}
_COMPRESSIONS: Final = ("none", "gzip")
_BATCH_MEMORY: Final = 256 * 1024 * 1024  # of all clients of a run
_SMALLEST_SHARE: Final = 16 * 1024
_RECORD_OVERHEAD: Final = 12
_SENDS_IN_A_ROW: Final = 32  # then others have their turn
_LATENCIES_PER_BATCH: Final = 4
_SMALL_BATCH: Final = 50
_PADDING_BYTES: Final = 65_536
_INT32: Final = Struct(">i")
_PARTITION: Final = Struct(">ii")  # partition, length of the records


class _Sent(NamedTuple):
    """A batch that was sent and has no response."""

    partition: int
    records: int
    first_sequence: int
    size: int
    due_ns: tuple[tuple[int, int], ...]
    """When the records were due, each time with its number of records."""


class ProduceFrames:
    """The frames of one client's requests to one topic, each with a batch for one partition."""

    def __init__(self, request: ProduceRequest, *, client_id: str | None, batch: RecordBatch) -> None:
        # It ends with the partition and the length of its records.
        self._head = bytearray(request_frame(request, PRODUCE_VERSION, correlation_id=0, client_id=client_id))
        self._batch = batch

    def frame(self, correlation_id: int, *, partition: int, records: int, first_sequence: int, now_ms: int) -> bytes:
        """Return the whole frame of a request with `records` records for one partition."""
        batch = self._batch.made(records=records, first_sequence=first_sequence, now_ms=now_ms)
        head = self._head
        _INT32.pack_into(head, 0, len(head) - FRAME_LENGTH_BYTES + len(batch))
        _INT32.pack_into(head, CORRELATION_ID_AT, correlation_id)
        _PARTITION.pack_into(head, len(head) - _PARTITION.size, partition, len(batch))
        return b"".join((head, batch))


class RawProducer(ConnectedClient):
    """One raw producer of a run."""

    def __init__(self, plan: LoadPlan, entity: ClientLoad, clock: RunClock, leaders: Leaders) -> None:
        super().__init__(plan, entity, clock, leaders)
        if entity.compression not in _COMPRESSIONS:
            raise UsageError(
                f"raw clients can't compress with {entity.compression}",
                hint="--compression gzip or none, or --client librdkafka",
            )
        self._batch = RecordBatch(
            record_size=entity.record_size,
            capacity=_capacity(plan, entity),
            owner=(plan.run_id, self.index),
            padding=random.Random(self.index).randbytes(_PADDING_BYTES),  # noqa: S311 - only incompressible
            compressed=entity.compression != "none",
        )
        self._acks = ACKS[entity.acks]
        self._request = ProduceRequest(topic=entity.topic, acks=self._acks)
        self._frames = ProduceFrames(self._request, client_id=entity.name.client_id, batch=self._batch)
        self._partition_turn = 0
        self._sequence = 0
        self._wire_bytes = 0
        self._again: deque[InFlight] = deque()
        """Requests without an answer in time, whose batches are retried on the next connection."""

    def send_due(self, now_ns: int) -> None:
        for _ in range(_SENDS_IN_A_ROW):
            if self._again:
                connection = self.free_connection(now_ns)
                if connection is None:
                    return
                self._write(connection, self._again.popleft().matter, now_ns)
                continue
            due = self.pacer.due(now_ns, most=self._batch.capacity)
            if due <= 0:
                break
            connection = self.free_connection(now_ns)
            if connection is None:
                return
            self._send(connection, due, now_ns)
        else:
            self.wake_at(now_ns, now_ns)
            return
        self.wake_when_due(now_ns)

    def size_of(self, request: InFlight) -> int:
        sent: _Sent = request.matter
        return sent.records

    def due_times(self, request: InFlight) -> Sequence[tuple[int, int]]:
        sent: _Sent = request.matter
        return sent.due_ns

    def abandoned(self, connection: RawConnection) -> None:
        """Retry the batches of an ended connection where the wait for an answer is bounded, else count them."""
        if self.timeout_ns and self.is_active:
            self._again.extend(connection.in_flight)
            connection.in_flight.clear()
        super().abandoned(connection)

    def end(self) -> None:
        """Stop sending now and count the records that wait for a retry as unfinished."""
        super().end()
        self.count_unfinished(self._again)
        self._again.clear()

    def _send(self, connection: RawConnection, records: int, now_ns: int) -> None:
        partitions = self.connections[connection]
        self._partition_turn += 1
        partition = partitions[self._partition_turn % len(partitions)]
        batch = _Sent(partition, records, self._sequence, 0, self._due_times(records, now_ns))
        self._sequence += records
        self.pacer.taken += records
        self.recorder.sent += records
        self._write(connection, batch, now_ns)

    def _write(self, connection: RawConnection, batch: _Sent, now_ns: int) -> None:
        correlation_id, records = connection.next_correlation_id(), batch.records
        frame = self._frames.frame(
            correlation_id,
            partition=batch.partition,
            records=records,
            first_sequence=batch.first_sequence,
            now_ms=time.time_ns() // 1_000_000,
        )
        sent = batch._replace(size=len(frame))
        self._wire_bytes += len(frame)
        self.wire = WireCount(wire_bytes=self._wire_bytes, payload_bytes=self._sequence * self.entity.record_size)
        if self._acks:
            connection.send(frame, InFlight(correlation_id, now_ns, self._answered, sent))
            return
        # With acks=0 a broker sends no response, and so no throttle time.
        connection.send(frame, None)
        self._respond(connection, sent, now_ns, throttle_ms=0)
        self.recorder.acknowledged(now_ns, records=records, size=records * self.entity.record_size)

    def _due_times(self, records: int, now_ns: int) -> tuple[tuple[int, int], ...]:
        first = self.pacer.taken
        step = records if records < _SMALL_BATCH else -(-records // _LATENCIES_PER_BATCH)
        return tuple(
            (self.pacer.intended_ns(first + at, now_ns), min(step, records - at)) for at in range(0, records, step)
        )

    def _answered(self, connection: RawConnection, frame: bytes, request: InFlight) -> None:
        now_ns = time.monotonic_ns()
        answer: ProduceAnswer = read_records_answer(self._request, frame)
        sent: _Sent = request.matter
        if not answer.error_code and len(sent.due_ns) == 1:
            self.recorder.answered(
                now_ns,
                charged=sent.size - FRAME_LENGTH_BYTES,
                throttle_ms=answer.throttle_ms,
                broker=connection.broker,
                records=sent.records,
                size=sent.records * self.entity.record_size,
                intended_ns=sent.due_ns[0][0],
                sent_ns=request.sent_ns,
            )
            self.proceed(connection, now_ns, answer.throttle_ms)
            return
        self._respond(connection, sent, now_ns, throttle_ms=answer.throttle_ms)
        if answer.error_code:
            self.refused(answer.error_code, sent.records, operation="Write")
        else:
            self.recorder.acknowledged(now_ns, records=sent.records, size=sent.records * self.entity.record_size)
            for intended_ns, count in sent.due_ns:
                self.recorder.latency(intended_ns=intended_ns, sent_ns=request.sent_ns, acked_ns=now_ns, count=count)
        self.proceed(connection, now_ns, answer.throttle_ms)

    def _respond(self, connection: RawConnection, sent: _Sent, now_ns: int, *, throttle_ms: int) -> None:
        charged = sent.size - FRAME_LENGTH_BYTES
        self.recorder.response(now_ns, charged=charged, throttle_ms=throttle_ms, broker=connection.broker)


def _capacity(plan: LoadPlan, entity: ClientLoad) -> int:
    share = max(_BATCH_MEMORY // len(plan.entities), _SMALLEST_SHARE)
    size = min(entity.request_bytes, share)
    records = size // (entity.record_size + _RECORD_OVERHEAD)
    if entity.arrivals_per_second is not None:
        records = min(records, max(int(entity.arrivals_per_second), entity.burst_size))
    return max(1, records)
