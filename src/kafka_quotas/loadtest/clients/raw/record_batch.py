"""Record batches built once and stamped in place: magic 2, records of one size, no keys, no headers.

A record's value starts with its stamp (run id 8 bytes, client index 4, sequence 8, all big-endian), so that a read of
the topic shows which records are missing or duplicated. The rest is padding. Between two batches only sequences, time
stamps and the checksum differ, which numpy and the processor's own CRC instruction write at memory speed.

**Source:** KIP-98; `DefaultRecordBatch`, `DefaultRecord`, Kafka 4.1.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

import crc32c
import numpy as np

from kafka_quotas.loadtest.measurement.delivery import STAMP
from kafka_quotas.wire.client.records import BATCH_HEAD_BYTES
from kafka_quotas.wire.codec.skip import encode_unsigned_varint

MAX_RECORDS: Final = 100_000
_HEAD: Final = Struct(">qiibIhiqqqhii")
_SEQUENCE_AT: Final = 12
_LENGTH_FROM: Final = 12
_NONE: Final = -1  # no leader epoch, no producer's id, epoch or sequence
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_MAGIC: Final = 2
_NO_KEY: Final = b"\x01"
_NO_HEADERS: Final = b"\0"
_GZIP: Final = 1
_FASTEST: Final = 1
_GZIP_FORMAT: Final = 31
_SAME_WIDTH_UNTIL: Final = (64, 8192, 1_048_576)
"""Offsets from which a record's own offset takes another byte: a varint has 7 bits a byte, and one is the sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Consecutive records that take the same number of bytes."""

    first: int
    count: int
    start: int
    """Offset of the first record in the batch."""
    stride: int
    sequences: Any
    """A numpy view of the records' sequences, None where they are too short for a stamp."""


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
        spans = list(_same_width_spans(self.capacity))
        content = (_records(first, count, value) for first, count in spans)
        self._bytes = bytearray(b"".join((bytes(BATCH_HEAD_BYTES), *content)))
        self._view = memoryview(self._bytes)
        self._runs = tuple(self._runs_of(spans, value))

    def made(self, *, records: int, first_sequence: int, now_ms: int) -> memoryview | bytes:
        """Return the batch with its first `records` records (1 to `capacity`), valid until the next call.

        Sequences count up from `first_sequence`, and all records have the time stamp `now_ms`.
        """
        end = BATCH_HEAD_BYTES
        for run in self._runs:
            count = min(run.count, records - run.first)
            if count <= 0:
                break
            if run.sequences is not None:
                first = first_sequence + run.first
                run.sequences[:count] = np.arange(first, first + count, dtype=np.uint64)
            end = run.start + count * run.stride
        if not self._compressed:
            return _sealed(self._view[:end], records=records, now_ms=now_ms, attributes=0)
        packer = zlib.compressobj(_FASTEST, zlib.DEFLATED, _GZIP_FORMAT)
        packed = packer.compress(self._view[BATCH_HEAD_BYTES:end]) + packer.flush()
        whole = memoryview(bytearray(BATCH_HEAD_BYTES) + packed)
        return _sealed(whole, records=records, now_ms=now_ms, attributes=_GZIP)

    def _runs_of(self, spans: list[tuple[int, int]], value: bytes) -> Iterator[_Run]:
        start = BATCH_HEAD_BYTES
        for first, count in spans:
            stride = len(_record(first, value))
            at = start + stride - len(_NO_HEADERS) - len(value) + _SEQUENCE_AT
            sequences = None
            if self.is_stamped:
                sequences = np.ndarray((count,), dtype=">u8", buffer=self._bytes, offset=at, strides=(stride,))
            yield _Run(first=first, count=count, start=start, stride=stride, sequences=sequences)
            start += count * stride


def _same_width_spans(capacity: int) -> Iterator[tuple[int, int]]:
    first = 0
    for until in _SAME_WIDTH_UNTIL:
        count = min(until, capacity) - first
        if count <= 0:
            return
        yield first, count
        first = until


def _records(first: int, count: int, value: bytes) -> bytes:
    """Encode consecutive records of the same number of bytes: one pattern, each with its own offset."""
    pattern = _record(first, value)
    table = np.frombuffer(bytearray(pattern * count), dtype=np.uint8).reshape(count, len(pattern))
    width = len(encode_unsigned_varint(2 * first))
    at = len(pattern) - len(_record_end(value)) - width
    doubled = 2 * np.arange(first, first + count, dtype=np.uint64)
    for byte in range(width):
        more = 0x80 if byte < width - 1 else 0
        table[:, at + byte] = (doubled >> np.uint64(7 * byte)) & np.uint64(0x7F) | np.uint64(more)
    return table.tobytes()


def _record(index: int, value: bytes) -> bytes:
    no_attributes, same_time = b"\0", b"\0"  # and a varint is signed: 2n stands for n
    body = no_attributes + same_time + encode_unsigned_varint(2 * index) + _record_end(value)
    return encode_unsigned_varint(2 * len(body)) + body


def _record_end(value: bytes) -> bytes:
    """Encode a record's part after its offset: no key, the value, no headers."""
    return _NO_KEY + encode_unsigned_varint(2 * len(value)) + value + _NO_HEADERS


def _sealed(batch: memoryview, *, records: int, now_ms: int, attributes: int) -> memoryview:
    """Write the batch's header and checksum over its first bytes and return it."""
    length = len(batch) - _LENGTH_FROM
    facts = (0, length, _NONE, _MAGIC, 0, attributes, records - 1, now_ms, now_ms, _NONE, _NONE, _NONE, records)
    _HEAD.pack_into(batch, 0, *facts)
    batch[_CRC_AT:_CRC_FROM] = crc32c.crc32c(batch[_CRC_FROM:]).to_bytes(4, "big")
    return batch
