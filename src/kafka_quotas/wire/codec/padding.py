"""Padding of a message part to its original length, after that length was sent.

**Source:** KIP-482: readers skip unknown tagged fields; `ByteUtils.readUnsignedVarint`, Kafka 4.3, reads a varint that
is longer than necessary.
"""

from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.codec.skip import encode_unsigned_varint, read_unsigned_varint

PADDING_TAG: Final = 9999
"""A tagged field that no message defines."""


def padded_tags(count: int, fields: bytes, length: int) -> bytes:
    """Return a tag section of `length` bytes: `count` encoded tagged fields and one more that fills it.

    Three bytes more than those of the fields are always enough.

    Raises:
        ProtocolError: Too few bytes for one more field.
    """
    head = encode_unsigned_varint(count + 1) + fields
    tag = encode_unsigned_varint(max(PADDING_TAG, _last_tag(fields) + 1))
    gap = length - len(head) - len(tag)
    size_bytes = len(encode_unsigned_varint(max(gap - 1, 0)))
    if gap < size_bytes:
        raise ProtocolError("the addresses in a response can't be replaced")
    return head + tag + lengthened_varint(gap - size_bytes, size_bytes) + bytes(gap - size_bytes)


def lengthened_varint(value: int, size: int) -> bytes:
    """Return a varint of `size` bytes, at least as many as the value needs."""
    groups = [value >> 7 * index & 0x7F | 0x80 for index in range(size)]
    groups[-1] &= 0x7F
    return bytes(groups)


def _last_tag(fields: bytes) -> int:
    """Return the highest tag of some tagged fields, -1 if there is none."""
    tag, offset = -1, 0
    while offset < len(fields):
        tag, offset = read_unsigned_varint(fields, offset, len(fields))
        size, offset = read_unsigned_varint(fields, offset, len(fields))
        offset += size
    return tag
