"""Produce requests of one partition and one prebuilt batch, and what a load test reads of responses.

Version 7 is one of the last before responses got a list of errors per record: every field that a load test needs has a
fixed offset from the end. Brokers from Kafka 2.1 to 4.x take it.

**Source:** `ProduceRequest.json`, `ProduceResponse.json`, Kafka 4.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.fields import FieldReader, FieldWriter
from kafka_quotas.wire.proxying.fetch_request import FINAL_EPOCH, NO_REPLICA, NO_SESSION

if TYPE_CHECKING:
    from kafka_quotas.loadtest.clients.raw.record_batch import RecordBatch

PRODUCE_VERSION: Final = 7
TIMEOUT_MS: Final = 30_000
_INT32: Final = Struct(">i")
_PARTITION: Final = Struct(">ii")  # partition, length of the records
_CORRELATION_ID_AT: Final = 8
_ANSWER_TAIL: Final = Struct(">ihqqqi")  # partition, error, base offset, append time, log start, throttle time


class ProduceAnswer(NamedTuple):
    """The response for the one partition of a request."""

    error_code: int
    throttle_ms: int


class ProduceRequest:
    """The Produce requests of one client to one topic, with `acks` of 0, 1 or -1."""

    def __init__(self, *, client_id: str | None, topic: str, acks: int, batch: "RecordBatch") -> None:
        writer = FieldWriter(flexible=False)
        writer.int32(0)  # length of the frame
        writer.int16(ApiKey.PRODUCE)
        writer.int16(PRODUCE_VERSION)
        writer.int32(0)  # correlation id
        writer.string(client_id)
        writer.string(None)  # transactional id
        writer.int16(acks)
        writer.int32(TIMEOUT_MS)
        writer.count(1)
        writer.string(topic)
        writer.count(1)
        writer.raw(_PARTITION.pack(0, 0))
        self._head = bytearray(writer.content())
        self._batch = batch

    def frame(self, correlation_id: int, *, partition: int, records: int, first_sequence: int, now_ms: int) -> bytes:
        """Return the whole frame of a request with `records` records for one partition."""
        batch = self._batch.made(records=records, first_sequence=first_sequence, now_ms=now_ms)
        head = self._head
        _INT32.pack_into(head, 0, len(head) - 4 + len(batch))
        _INT32.pack_into(head, _CORRELATION_ID_AT, correlation_id)
        _PARTITION.pack_into(head, len(head) - _PARTITION.size, partition, len(batch))
        return b"".join((head, batch))


def read_produce_answer(frame: bytes) -> ProduceAnswer:
    """Read a response from the end of its frame, where the fields have fixed offsets."""
    at = len(frame) - _ANSWER_TAIL.size
    if at < 0:
        raise ProtocolError("an answer to Produce is too short")
    _, error_code, _, _, _, throttle_ms = _ANSWER_TAIL.unpack_from(frame, at)
    return ProduceAnswer(error_code, throttle_ms)


FETCH_VERSION: Final = 11
_INT64: Final = Struct(">q")
_ANY_LEADER_EPOCH: Final = -1
_FOLLOWERS_LOG_START: Final = -1
_BATCH_LENGTH: Final = Struct(">qi")  # base offset, bytes that follow
_BATCH_OVERHEAD: Final = 12
_LAST_OFFSET_DELTA_AT: Final = 23
_RECORD_COUNT_AT: Final = 57
_MAGIC_AT: Final = 16
_MAGIC: Final = 2
_HEAD_BYTES: Final = 61


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSizes:
    """The limits of a fetch: the broker's wait, the bytes that end it, and the bytes of the response."""

    max_wait_ms: int
    min_bytes: int
    """Bytes that end the wait."""
    max_bytes: int


class FetchedPartition(NamedTuple):
    """One partition of a response."""

    partition: int
    error_code: int
    high_watermark: int
    """End of the log, -1 where the broker does not report it."""
    log_start_offset: int
    """Start of the log, -1 where the broker does not report it."""
    records: int
    size: int
    next_offset: int | None
    """Offset after the last record, None without records."""


class FetchAnswer(NamedTuple):
    """A response to a Fetch request."""

    throttle_ms: int
    error_code: int
    partitions: tuple[FetchedPartition, ...]


def fetch_frame(
    correlation_id: int, *, client_id: str | None, topic: str, offsets: Mapping[int, int], limits: FetchSizes
) -> bytes:
    """Return the whole frame of a Fetch for partitions of one topic, from these offsets by partition."""
    writer = FieldWriter(flexible=False)
    writer.int16(ApiKey.FETCH)
    writer.int16(FETCH_VERSION)
    writer.int32(correlation_id)
    writer.string(client_id)
    for value in (NO_REPLICA, limits.max_wait_ms, limits.min_bytes, limits.max_bytes):
        writer.int32(value)
    writer.int8(0)  # isolation level: uncommitted
    writer.int32(NO_SESSION)
    writer.int32(FINAL_EPOCH)
    writer.count(1)
    writer.string(topic)
    writer.count(len(offsets))
    for partition, offset in offsets.items():
        writer.int32(partition)
        writer.int32(_ANY_LEADER_EPOCH)
        writer.raw(_INT64.pack(offset))
        writer.raw(_INT64.pack(_FOLLOWERS_LOG_START))
        writer.int32(limits.max_bytes)
    writer.count(0)  # forgotten topics
    writer.string("")  # rack
    content = writer.content()
    return _INT32.pack(len(content)) + content


def read_fetch_answer(frame: bytes) -> FetchAnswer:
    """Read a response from its whole frame."""
    reader = FieldReader(frame, offset=8, flexible=False)
    throttle_ms, error_code = reader.int32(), reader.int16()
    reader.int32()  # session id
    partitions: list[FetchedPartition] = []
    for _ in range(reader.count()):
        reader.string()
        partitions += [_partition(reader) for _ in range(reader.count())]
    return FetchAnswer(throttle_ms, error_code, tuple(partitions))


def _partition(reader: FieldReader) -> FetchedPartition:
    partition, error_code, high_watermark = reader.int32(), reader.int16(), reader.int64()
    reader.int64()  # last stable offset
    log_start_offset = reader.int64()
    for _ in range(reader.count()):  # aborted transactions
        reader.skip(16)
    reader.int32()  # preferred replica
    content = reader.byte_string()
    records, next_offset = _batches(content)
    return FetchedPartition(partition, error_code, high_watermark, log_start_offset, records, len(content), next_offset)


def _batches(content: bytes) -> tuple[int, int | None]:
    """Return the number of records in the whole batches, and the offset after the last of them."""
    at, records, next_offset = 0, 0, None
    while at + _HEAD_BYTES <= len(content):
        base_offset, length = _BATCH_LENGTH.unpack_from(content, at)
        if content[at + _MAGIC_AT] != _MAGIC:
            raise ProtocolError("the topic holds messages from before Kafka 0.11, which raw clients can't count")
        end = at + _BATCH_OVERHEAD + length
        if length < 0 or end > len(content):
            break
        records += _INT32.unpack_from(content, at + _RECORD_COUNT_AT)[0]
        next_offset = base_offset + _INT32.unpack_from(content, at + _LAST_OFFSET_DELTA_AT)[0] + 1
        at = end
    return records, next_offset
