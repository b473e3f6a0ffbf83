"""A record batch of one record, for callers that need only a few of them.

**Source:** KIP-98; `DefaultRecordBatch`, `DefaultRecord`, Kafka 4.3; CRC-32C as in RFC 3720, appendix B.4.
"""

from functools import cache
from struct import Struct
from typing import Final

from kafka_quotas.wire.codec.skip import encode_unsigned_varint

_BEFORE_CRC: Final = Struct(">qiib")
_AFTER_CRC: Final = Struct(">hiqqqhii")
_LENGTH_FROM: Final = 12
"""Bytes before those that the batch's length counts."""
_NO_LEADER_EPOCH: Final = -1
_MAGIC: Final = 2
_NO_PRODUCER: Final = (-1, -1, -1)  # its id, epoch and first sequence
_POLYNOMIAL: Final = 0x82F63B78  # Castagnoli's, its bits reversed
_ALL_ONES: Final = 0xFFFFFFFF


def single_record_batch(value: bytes, *, now_ms: int) -> bytes:
    """Return a batch of magic 2 with one record: no key, no headers, not compressed.

    Args:
        value: The record's value.
        now_ms: The record's time (milliseconds since the epoch).
    """
    attributes_and_deltas, no_key, no_headers = bytes(3), b"\x01", b"\0"
    record = attributes_and_deltas + no_key + _signed_varint(len(value)) + value + no_headers
    records = _signed_varint(len(record)) + record
    checked = _AFTER_CRC.pack(0, 0, now_ms, now_ms, *_NO_PRODUCER, 1) + records
    length = _BEFORE_CRC.size + 4 + len(checked) - _LENGTH_FROM
    return _BEFORE_CRC.pack(0, length, _NO_LEADER_EPOCH, _MAGIC) + crc32c(checked).to_bytes(4, "big") + checked


def crc32c(data: bytes) -> int:
    """Return the CRC-32C checksum of some bytes."""
    table, crc = _table(), _ALL_ONES
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ _ALL_ONES


@cache
def _table() -> tuple[int, ...]:
    """Return the remainder of each byte."""
    remainders = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        remainders.append(crc)
    return tuple(remainders)


def _signed_varint(value: int) -> bytes:
    """Return a number of 0 or more as a signed varint."""
    return encode_unsigned_varint(2 * value)
