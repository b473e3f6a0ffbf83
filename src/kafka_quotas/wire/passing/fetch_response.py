"""A Fetch response: the bytes to charge, the empty one of a refused fetch, and the brokers at its end.

A broker charges the size of the body plus four bytes, which is the frame's length without the header's tag section of
version 12 and later. A throttled response names no topics. It names the session of an incremental fetch, and none for a
fetch of all partitions, so that the client repeats that in full.

A Fetch response can be 2 GB long, and from version 16 on the addresses of new leaders are at its end, after the
records. So only that end is buffered: `FetchTail` skips records and finds it, at any chunk boundaries, and
`rewrite_tail` replaces the addresses without changing the length, which the client has already received. If the new
addresses are shorter, an unknown tagged field fills the gap. If they are longer they are left out, and the client asks
for Metadata as it does with an older broker.

**Source:** `FetchResponse.sizeOf`, `KafkaApis.processResponseCallback`, `FetchContext.getThrottledResponse`,
`FetchResponse.json` (versions 16 to 18), Kafka 4.1; KIP-951.
"""

from struct import Struct
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import framed
from kafka_quotas.wire.codec.skip import Buffer, encode_unsigned_varint, read_unsigned_varint
from kafka_quotas.wire.passing.broker_addresses import (
    Translate,
    lengthened_varint,
    padded_tags,
    replaced_list,
    tagged_list,
)
from kafka_quotas.wire.passing.fetch_request import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, SESSIONS_SINCE
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import RESPONSE_HEAD_BYTES

THROTTLE_SINCE: Final = 1
_FLEXIBLE_SINCE: Final = API_TABLE[ApiKey.FETCH].flexible_since

_INT32: Final = Struct(">i")
_SESSION: Final = Struct(">hi")
"""Error code, session id."""


def charged_bytes(api_version: int, frame_length: int) -> int:
    """Return the bytes that a response counts for the fetch quota, by the value of its length field."""
    # The charge excludes the header's tag section, which is one byte because no header tag exists.
    return frame_length - 1 if api_version >= _FLEXIBLE_SINCE else frame_length


def answered_session(session_id: int, epoch: int) -> int:
    """Return the session that an empty response names, by the session and epoch of the request."""
    # A fetch of all partitions gets no session, so that the client repeats it in full (KIP-227).
    return NO_SESSION if epoch in (INITIAL_EPOCH, FINAL_EPOCH) else session_id


def empty_fetch_response(
    api_version: int, correlation_id: int, *, session_id: int, throttle_ms: int, error_code: int = 0
) -> bytes:
    """Return the frame of a response without data, with throttle time and error if the version has them."""
    is_flexible = api_version >= _FLEXIBLE_SINCE
    pieces = [_INT32.pack(correlation_id), b"\0" if is_flexible else b""]
    if api_version >= THROTTLE_SINCE:
        pieces.append(_INT32.pack(throttle_ms))
    # Before sessions no error is of the response as a whole, only of partitions.
    if api_version >= SESSIONS_SINCE:
        pieces.append(_SESSION.pack(error_code, session_id))
    # No topics, and in flexible versions no tagged fields.
    pieces.append(b"\1\0" if is_flexible else bytes(4))
    return framed(b"".join(pieces))


def fetch_result(api_version: int, buffer: Buffer, start: int) -> tuple[int, int] | None:
    """Return error code and fetch session of the response at `start`, or None if more bytes are needed.

    Both are of the response as a whole. Versions before sessions give (0, `NO_SESSION`).
    """
    if api_version < SESSIONS_SINCE:
        return 0, NO_SESSION
    # Error code and session follow the throttle time of 4 bytes.
    offset = start + RESPONSE_HEAD_BYTES + (api_version >= _FLEXIBLE_SINCE) + 4
    if len(buffer) < offset + _SESSION.size:
        return None
    error_code, session_id = _SESSION.unpack_from(buffer, offset)
    return error_code, session_id


MAX_TAIL_BYTES: Final = 1024 * 1024
"""Longest tail that is gathered: some ten thousand brokers."""

_SHORTEST: Final = 17
"""Frame length of a response without topics: correlation id, no tags, throttle time, error, session, none, no tags."""
_HEAD, _BODY_HEAD, _TOPIC_ID, _PARTITION_HEAD, _ABORTED_TRANSACTION, _REPLICA = 8, 10, 16, 30, 16, 4
"""Bytes of fixed size: length and correlation id; throttle time, error and session; topic id; of a partition up to its
aborted transactions; one of these; the preferred replica before the records."""
_MAX_SHIFT: Final = 28

# Which varint comes next. The tag sections are counted up from `_FIRST_TAGS`, what is inside of one is above them.
_TAIL, _TOPICS, _PARTITIONS, _ABORTED, _RECORDS = 0, 1, 2, 3, 4
_HEADER_TAGS, _ABORTED_TAGS, _PARTITION_TAGS, _TOPIC_TAGS = 5, 6, 7, 8
_FIRST_TAGS, _LAST_TAGS = _HEADER_TAGS, _TOPIC_TAGS
_TAG, _SIZE = 9, 10


def is_bare(buffer: Buffer, start: int, end: int) -> bool:
    """Return whether the whole response from `start` to `end` certainly names no brokers, as most do.

    Such a response ends with the empty tag sections of partition, topic and body: three zeros. With brokers it would
    end with a port, a rack without zeros and a tag section, so three zeros could only follow the two upper bytes of the
    port.
    """
    if end - start == _SHORTEST + 4:
        return True
    return buffer[end - 3 : end] == b"\0\0\0" and buffer[end - 6 : end - 4] != b"\0\0"


class FetchTail:
    """A streaming search for the tag section of a response's body, fed the frame from its length field on.

    It steps from one varint to the next: `_field` is the kind of the next one, `_skip` the number of bytes before it.
    All other fields have a fixed size, or the size in a varint. It uses plain ints and one loop because it runs per
    partition.
    """

    __slots__ = (
        "_aborted",
        "_field",
        "_left",
        "_partitions",
        "_resume",
        "_shift",
        "_skip",
        "_tags",
        "_topics",
        "_value",
    )

    def __init__(self, frame_length: int) -> None:
        self._left = frame_length + 4
        self._skip = _HEAD
        self._field = _HEADER_TAGS
        self._value = self._shift = self._topics = self._partitions = self._aborted = self._tags = 0
        self._resume = _HEADER_TAGS

    def find(self, chunk: memoryview, start: int, end: int) -> int | None:
        """Return the offset in the next piece, `chunk[start:end]`, or just after it, where the tail starts.

        None if that is in a later piece, or the tail is one zero, as it is without any tagged field, and in this one.

        Raises:
            ProtocolError: This is no Fetch response, or its tail is longer than `MAX_TAIL_BYTES`.
        """
        position = start + self._skip
        # The tail may start where this piece ends: then it is all in the next one.
        while position < end or (position == end and self._field == _TAIL):
            if self._field == _TAIL:
                return self._found(chunk, position, end, self._left - (position - start))
            value = chunk[position]
            position += 1
            # A varint of several bytes may be split between two chunks.
            if value >= 0x80 or self._shift:
                if self._continues(value):
                    continue
                value, self._value = self._value, 0
            position += self._bytes_after(value)
        self._skip = position - end
        self._left -= end - start
        return None

    def _bytes_after(self, value: int) -> int:
        """Return how many bytes come before the next varint, after one of this value."""
        field = self._field
        if field == _RECORDS:
            self._field = _PARTITION_TAGS
            # A compact size is one more than the number of bytes, 0 is null.
            return value - 1 if value else 0
        # Transactions that were aborted, of clients that read committed records only (KIP-98).
        if field == _ABORTED:
            return self._aborted_or_records(value - 1)
        # An empty tag section is a single zero, and has nothing inside.
        if field >= _FIRST_TAGS:
            return self._bytes_within_tags(value) if value or field > _LAST_TAGS else self._after_tags(field)
        if field == _PARTITIONS:
            # A compact count is one more than the number of elements (KIP-482).
            self._partitions = value - 1
            self._field = _ABORTED if value > 1 else _TOPIC_TAGS
            return _PARTITION_HEAD if value > 1 else 0
        self._topics = value - 1
        return self._topic()

    def _after_tags(self, field: int) -> int:
        """Return how many bytes come before the next varint, after the tag section of some structure."""
        if field == _PARTITION_TAGS:
            self._partitions -= 1
            self._field = _ABORTED if self._partitions else _TOPIC_TAGS
            return _PARTITION_HEAD if self._partitions else 0
        if field == _TOPIC_TAGS:
            self._topics -= 1
            return self._topic()
        if field == _ABORTED_TAGS:
            return self._aborted_or_records(self._aborted - 1)
        self._field = _TOPICS
        return _BODY_HEAD

    def _topic(self) -> int:
        self._field = _PARTITIONS if self._topics > 0 else _TAIL
        return _TOPIC_ID if self._topics > 0 else 0

    def _aborted_or_records(self, aborted: int) -> int:
        self._aborted = aborted
        self._field = _ABORTED_TAGS if aborted > 0 else _RECORDS
        return _ABORTED_TRANSACTION if aborted > 0 else _REPLICA

    def _bytes_within_tags(self, value: int) -> int:
        """Return how many bytes come before the next varint within a tag section that holds something."""
        if self._field <= _LAST_TAGS:
            self._resume, self._tags, self._field = self._field, value, _TAG
            return 0
        if self._field == _TAG:
            self._field = _SIZE
            return 0
        # The value is a field's size: its bytes come before the next field, or before what follows the section.
        self._tags -= 1
        if self._tags:
            self._field = _TAG
            return value
        return value + self._after_tags(self._resume)

    def _continues(self, byte: int) -> bool:
        """Add a byte to the varint, and return whether more bytes follow."""
        self._value |= (byte & 0x7F) << self._shift
        if byte < 0x80:
            self._shift = 0
            return False
        self._shift += 7
        if self._shift > _MAX_SHIFT:
            raise ProtocolError("a variable-length integer holds more than 32 bits")
        return True

    def _found(self, chunk: memoryview, position: int, end: int, tail_bytes: int) -> int | None:
        # A tail of a single zero has no tagged field, so there are no brokers to rewrite.
        if tail_bytes == 1 and position < end and not chunk[position]:
            return None
        if tail_bytes > MAX_TAIL_BYTES:
            raise ProtocolError(f"a Fetch response ends with {tail_bytes} bytes of tagged fields")
        return position


def rewrite_tail(api_version: int, tail: Buffer, translate: Translate) -> bytes:
    """Return the tag section of a response's body at its length, with the brokers' addresses translated.

    Raises:
        ProtocolError: The tail is no tag section.
    """
    if not tail[0]:
        return bytes(tail)
    found = tagged_list(ApiKey.FETCH, api_version, tail, 0)
    if found is None or not found.places:
        return bytes(tail)
    content = replaced_list(tail, found, translate)
    # Field 0 comes first in its section (KIP-482), so all others follow it.
    count, _ = read_unsigned_varint(tail, 0, len(tail))
    others = bytes(tail[found.content_end :])
    field = b"\0" + encode_unsigned_varint(len(content)) + content
    gap = len(tail) - len(encode_unsigned_varint(count)) - len(field) - len(others)
    # The response's length has gone out: longer addresses don't fit, so padding replaces the brokers.
    if gap < 0:
        return padded_tags(count - 1, others, len(tail))
    if gap <= 2:  # too short for a field: the size can be written with more bytes than it needs
        size = lengthened_varint(len(content), len(encode_unsigned_varint(len(content))) + gap)
        return encode_unsigned_varint(count) + b"\0" + size + content + others
    return padded_tags(count, field + others, len(tail))
