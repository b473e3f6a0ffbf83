"""A raw producer: prebuilt batches, each sent once, or again if `request.timeout.ms` bounds the wait for an answer.

A quota is charged with the whole request, header included, and the recorder gets the same number.

Batches have magic 2 and records of one size without keys and headers. A record's value starts with its stamp (run id 8
bytes, client index 4, sequence 8, all big-endian), so that a read of the topic shows which records are missing or
duplicated. Between two batches only sequences, time stamps and the checksum differ, which numpy and the processor's own
CRC instruction write at memory speed.

**Source:** `KafkaApis.handleProduceRequest` (`request.sizeInBytes`), `DefaultRecordBatch`, `DefaultRecord`, Kafka 4.1;
KIP-98.
"""

import random
import time
import zlib
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from struct import Struct
from typing import Any, Final, NamedTuple

import crc32c
import numpy as np

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.clients.engine import RunClock, WireCount
from kafka_quotas.loadtest.clients.raw.connected_client import ConnectedClient
from kafka_quotas.loadtest.clients.raw.connection import CORRELATION_ID_AT, InFlight, Leaders, RawConnection
from kafka_quotas.loadtest.measurement.delivery import STAMP
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.wire.client.records import (
    BATCH_HEAD_BYTES,
    PRODUCE_VERSION,
    ProduceAnswer,
    ProduceRequest,
    read_records_answer,
    seal_batch,
)
from kafka_quotas.wire.client.request import request_frame
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES
from kafka_quotas.wire.codec.skip import encode_unsigned_varint

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

MAX_RECORDS: Final = 100_000
_SEQUENCE_AT: Final = 12
_NO_KEY: Final = b"\x01"
_NO_HEADERS: Final = b"\0"
_GZIP: Final = 1
_FASTEST: Final = 1
_GZIP_FORMAT: Final = 31
_SAME_WIDTH_UNTIL: Final = (0, 64, 8192, 1_048_576)
"""Offsets from which a record's own offset takes another byte: a varint has 7 bits a byte, and one is the sign."""


class RecordBatch:
    """A batch of up to `capacity` records of `record_size` bytes, rebuilt in the same memory.

    `padding` repeats to fill the values. The records are contiguous, so that fewer of them are a shorter batch.
    """

    def __init__(
        self, *, record_size: int, capacity: int, owner: tuple[int, int], padding: bytes, compressed: bool = False
    ) -> None:
        self.capacity = min(capacity, MAX_RECORDS)
        self.is_stamped = record_size >= STAMP.size
        self._compressed = compressed
        value = (padding * (record_size // len(padding) + 1))[:record_size]
        if self.is_stamped:
            value = STAMP.pack(*owner, 0) + value[STAMP.size :]
        spans = [range(first, min(until, self.capacity)) for first, until in pairwise(_SAME_WIDTH_UNTIL)]
        parts = [(span, _records(span, value)) for span in spans if span]
        self._bytes = bytearray(b"".join((bytes(BATCH_HEAD_BYTES), *(part for _, part in parts))))
        self._view = memoryview(self._bytes)
        self._runs: list[tuple[range, int, int, Any]] = []
        """Records of one length: their numbers, where they begin, their length, and a view of their sequences."""
        start = BATCH_HEAD_BYTES
        for span, part in parts:
            stride, sequences = len(part) // len(span), None
            if self.is_stamped:
                at = start + stride - len(_NO_HEADERS) - len(value) + _SEQUENCE_AT
                sequences = np.ndarray((len(span),), dtype=">u8", buffer=self._bytes, offset=at, strides=(stride,))
            self._runs.append((span, start, stride, sequences))
            start += len(part)

    def made(self, *, records: int, first_sequence: int, now_ms: int) -> memoryview:
        """Return the batch with its first `records` records (1 to `capacity`), valid until the next call.

        Sequences count up from `first_sequence`, and all records have the time stamp `now_ms`.
        """
        end = BATCH_HEAD_BYTES
        for span, start, stride, sequences in self._runs:
            count = min(span.stop, records) - span.start
            if count <= 0:
                break
            if sequences is not None:
                first = first_sequence + span.start
                sequences[:count] = np.arange(first, first + count, dtype=np.uint64)
            end = start + count * stride
        batch, attributes = self._view[:end], 0
        if self._compressed:
            packer = zlib.compressobj(_FASTEST, zlib.DEFLATED, _GZIP_FORMAT)
            packed = packer.compress(self._view[BATCH_HEAD_BYTES:end]) + packer.flush()
            batch, attributes = memoryview(bytearray(BATCH_HEAD_BYTES) + packed), _GZIP
        seal_batch(batch, records=records, now_ms=now_ms, attributes=attributes, checksum=crc32c.crc32c)
        return batch


def _records(numbers: range, value: bytes) -> bytes:
    """Encode consecutive records of one length, which differ in their offsets alone."""
    end = _NO_KEY + encode_unsigned_varint(2 * len(value)) + value + _NO_HEADERS  # a varint is signed: 2n stands for n
    head = b"\0\0"  # no attributes, the time of the batch
    length = len(head) + len(encode_unsigned_varint(2 * numbers.start)) + len(end)
    head = encode_unsigned_varint(2 * length) + head
    return head + (end + head).join(_offsets(numbers)) + end


@lru_cache(maxsize=len(_SAME_WIDTH_UNTIL))
def _offsets(numbers: range) -> list[bytes]:
    # The batches of hundreds of clients have the same, and one takes most of the time to make a batch.
    return [encode_unsigned_varint(2 * number) for number in numbers]


class _Sent(NamedTuple):
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
        first, step = self.pacer.taken, records if records < _SMALL_BATCH else -(-records // _LATENCIES_PER_BATCH)
        due_ns = tuple(
            (self.pacer.intended_ns(first + at, now_ns), min(step, records - at)) for at in range(0, records, step)
        )
        batch = _Sent(partition, records, self._sequence, 0, due_ns)
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

    def _answered(self, connection: RawConnection, frame: bytes, request: InFlight) -> None:
        now_ns = time.monotonic_ns()
        answer: ProduceAnswer = read_records_answer(self._request, frame)
        sent: _Sent = request.matter
        size = sent.records * self.entity.record_size
        if not answer.error_code and len(sent.due_ns) == 1:
            self.recorder.answered(
                now_ns,
                charged=sent.size - FRAME_LENGTH_BYTES,
                throttle_ms=answer.throttle_ms,
                broker=connection.broker,
                records=sent.records,
                size=size,
                intended_ns=sent.due_ns[0][0],
                sent_ns=request.sent_ns,
            )
        else:
            self._respond(connection, sent, now_ns, throttle_ms=answer.throttle_ms)
            if answer.error_code:
                self.refused(answer.error_code, sent.records, operation="Write")
            else:
                self.recorder.acknowledged(now_ns, records=sent.records, size=size)
                for due_ns, count in sent.due_ns:
                    self.recorder.latency(intended_ns=due_ns, sent_ns=request.sent_ns, acked_ns=now_ns, count=count)
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
