"""Fetch requests of a raw client, without sessions, and what a load test reads of their responses.

Version 11 is the last with plain fields and topic names. Brokers from Kafka 2.4 to 4.x take it.

**Source:** `FetchRequest.json`, `FetchResponse.json`, Kafka 4.1; `DefaultRecordBatch` for the batch headers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.reader import FieldReader
from kafka_quotas.wire.codec.writer import FieldWriter
from kafka_quotas.wire.passing.fetch_request import FINAL_EPOCH, NO_REPLICA, NO_SESSION

VERSION: Final = 11
_INT32: Final = Struct(">i")
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
    """Longest wait, in ms."""
    min_bytes: int
    """Bytes that end the wait."""
    max_bytes: int
    """Most bytes to return."""


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
    """Bytes of the records on the wire."""
    next_offset: int | None
    """Offset after the last record, None without records."""


class FetchAnswer(NamedTuple):
    """A response to a Fetch request."""

    throttle_ms: int
    error_code: int
    """Error of the whole request."""
    partitions: tuple[FetchedPartition, ...]


def fetch_frame(
    correlation_id: int, *, client_id: str | None, topic: str, offsets: Mapping[int, int], limits: FetchSizes
) -> bytes:
    """Return the whole frame of a Fetch for partitions of one topic, from these offsets by partition."""
    writer = FieldWriter(flexible=False)
    writer.int16(ApiKey.FETCH)
    writer.int16(VERSION)
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
    """Read a response from its whole frame.

    Raises:
        ProtocolError: If the frame holds no Fetch response.
    """
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
