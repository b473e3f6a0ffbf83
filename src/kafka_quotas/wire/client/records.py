"""Requests that carry records, and the batches within them: Produce to one partition, Fetch from partitions of a topic.

The versions are among the last of the classic encoding, which brokers from Kafka 2.4 to 4.x take.

**Source:** `ProduceRequest.json`, `FetchRequest.json` and their responses, Kafka 4.1; KIP-98, `DefaultRecordBatch` and
`DefaultRecord`, Kafka 4.3; CRC-32C as in RFC 3720, appendix B.4.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Any, Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.client.request import ClientRequest, VersionRange
from kafka_quotas.wire.codec.fields import INT16, INT32, FieldReader, fields_of
from kafka_quotas.wire.codec.skip import encode_unsigned_varint

_HEAD_BYTES: Final = 8  # the length and the correlation id of a response's frame
BATCH_HEAD_BYTES: Final = 61
_BATCH_HEAD: Final = Struct(">qiibIhiqqqhii")
_LENGTH_FROM: Final = 12
"""Bytes before those that the batch's length counts."""
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_NO_LEADER_EPOCH: Final = -1
_MAGIC: Final = 2
_NO_PRODUCER: Final = (-1, -1, -1)  # its id, epoch and first sequence
_POLYNOMIAL: Final = 0x82F63B78  # Castagnoli's, its bits reversed
_ALL_ONES: Final = 0xFFFFFFFF


def single_record_batch(value: bytes, *, now_ms: int) -> bytes:
    """Return a batch of magic 2 with one record from `now_ms`: no key, no headers, not compressed."""
    attributes_and_deltas, no_key, no_headers = bytes(3), b"\x01", b"\0"
    # A varint is signed: 2n stands for n.
    record = attributes_and_deltas + no_key + encode_unsigned_varint(2 * len(value)) + value + no_headers
    batch = bytearray(BATCH_HEAD_BYTES) + encode_unsigned_varint(2 * len(record)) + record
    seal_batch(batch, records=1, now_ms=now_ms)
    return bytes(batch)


def seal_batch(
    batch: bytearray | memoryview,
    *,
    records: int,
    now_ms: int,
    attributes: int = 0,
    checksum: Callable[[bytearray | memoryview], int] | None = None,
) -> None:
    """Write the header and the checksum of a batch over its first `BATCH_HEAD_BYTES` bytes."""
    times_and_producer = (now_ms, now_ms, *_NO_PRODUCER)
    head = (0, len(batch) - _LENGTH_FROM, _NO_LEADER_EPOCH, _MAGIC, 0, attributes, records - 1, *times_and_producer)
    _BATCH_HEAD.pack_into(batch, 0, *head, records)
    batch[_CRC_AT:_CRC_FROM] = (checksum or crc32c)(batch[_CRC_FROM:]).to_bytes(4, "big")


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32C checksum of some bytes."""
    table, crc = _table(), _ALL_ONES
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ _ALL_ONES


@cache
def _table() -> tuple[int, ...]:
    remainders = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        remainders.append(crc)
    return tuple(remainders)


class ProduceAnswer(NamedTuple):
    """The response for the one partition of a request."""

    error_code: int
    throttle_ms: int


PRODUCE_VERSION: Final = 7
_PRODUCE_END: Final = 30
"""Bytes from the error code on: it, three offsets and times, the throttle time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest(ClientRequest[ProduceAnswer]):
    """A request to append a batch to a partition, acknowledged by nobody, the leader or all (0, 1, -1)."""

    topic: str
    partition: int = 0
    acks: int = 1
    records: bytes = b""

    api_key = ApiKey.PRODUCE
    versions = VersionRange(PRODUCE_VERSION, PRODUCE_VERSION)
    broker_since = "2.1"
    fields = fields_of("_:text? acks:int16 timeout:int32 topics[name:text partitions[number:int32 records:bytes]]")

    def values(self) -> Iterable[Any]:
        return self.acks, 30_000, [(self.topic, [(self.partition, self.records)])]

    def read(self, reader: FieldReader, version: int) -> ProduceAnswer:
        # Those of the only partition end the response, and a table would take a raw client ten times as long.
        if reader.left < _PRODUCE_END:
            raise ProtocolError("an answer to Produce is too short")
        reader.skip(reader.left - _PRODUCE_END)
        error_code = reader.fixed(INT16)
        reader.skip(reader.left - INT32.size)
        return self.answer(error_code, reader.fixed(INT32))

    def answer(self, *values: Any) -> ProduceAnswer:
        return ProduceAnswer(*values)


class FetchedPartition(NamedTuple):
    """One partition of a response."""

    partition: int
    error_code: int
    high_watermark: int
    """End of the log, -1 where the broker does not report it."""
    log_start_offset: int
    """Start of the log, -1 where the broker does not report it."""
    records: int
    next_offset: int | None
    """Offset after the last record, None without records."""


class FetchAnswer(NamedTuple):
    """A response to a Fetch request."""

    throttle_ms: int
    error_code: int
    partitions: tuple[FetchedPartition, ...]


FETCH_VERSION: Final = 11
_NONE: Final = -1
"""No replica asks, outside of any session, and no leader epoch or follower's log start is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest(ClientRequest[FetchAnswer]):
    """A request for records of one topic, without a session."""

    topic: str
    offsets: Mapping[int, int]
    """The first offset to fetch by partition."""
    max_wait_ms: int = 0
    min_bytes: int = 0
    """Bytes that end the wait."""
    max_bytes: int
    """Most bytes of the response."""

    api_key = ApiKey.FETCH
    versions = VersionRange(FETCH_VERSION, FETCH_VERSION)
    broker_since = "2.3"
    # The isolation level is that of uncommitted records, and there is no session.
    fields = fields_of(
        "replica:int32 wait:int32 least:int32 most:int32 _:int8 _:int32 epoch:int32"
        " topics[name:text partitions[number:int32 leader_epoch:int32 offset:int64 log_start:int64 most:int32]]"
        " forgotten:[int32] rack:text"
    )
    answer_fields = fields_of(
        "throttle:int32 code:int16 _:int32 topics[_:text partitions[number:int32 code:int16 end:int64 _:int64"
        " log_start:int64 _[_:int64 _:int64] _:int32 records:bytes]]"
    )

    def values(self) -> Iterable[Any]:
        partitions = [(number, _NONE, offset, _NONE, self.max_bytes) for number, offset in self.offsets.items()]
        limits = (_NONE, self.max_wait_ms, self.min_bytes, self.max_bytes, _NONE)
        return *limits, [(self.topic, partitions)], (), ""

    def answer(self, *values: Any) -> FetchAnswer:
        throttle_ms, error_code, topics = values
        listed = (each for (partitions,) in topics for each in partitions)
        found = tuple(FetchedPartition._make((*each, *_counted(content))) for *each, content in listed)
        return FetchAnswer(throttle_ms, error_code, found)


def read_records_answer(request: ClientRequest[Any], frame: bytes) -> Any:
    """Return the response to a request of this module, from its whole frame."""
    reader = FieldReader(frame, offset=_HEAD_BYTES, flexible=False)
    return request.read(reader, request.versions.highest)


_BATCH_LENGTH: Final = Struct(">qi")  # base offset, bytes that follow
_LAST_OFFSET_DELTA_AT: Final = 23
_RECORD_COUNT_AT: Final = 57
_MAGIC_AT: Final = 16


def _counted(content: bytes) -> tuple[int, int | None]:
    """Return the number of records in the whole batches, and the offset after the last of them."""
    at, records, next_offset = 0, 0, None
    while at + BATCH_HEAD_BYTES <= len(content):
        base_offset, length = _BATCH_LENGTH.unpack_from(content, at)
        if content[at + _MAGIC_AT] != _MAGIC:
            raise ProtocolError("the topic holds messages from before Kafka 0.11, which raw clients can't count")
        end = at + _BATCH_LENGTH.size + length
        if length < 0 or end > len(content):
            break
        records += INT32.unpack_from(content, at + _RECORD_COUNT_AT)[0]
        next_offset = base_offset + INT32.unpack_from(content, at + _LAST_OFFSET_DELTA_AT)[0] + 1
        at = end
    return records, next_offset
