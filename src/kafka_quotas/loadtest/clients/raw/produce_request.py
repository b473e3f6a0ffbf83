"""Produce requests of one partition and one prebuilt batch, and what a load test reads of responses.

Version 7 is one of the last before responses got a list of errors per record: every field that a load test needs has a
fixed offset from the end. Brokers from Kafka 2.1 to 4.x take it.

**Source:** `ProduceRequest.json`, `ProduceResponse.json`, Kafka 4.1.
"""

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.writer import FieldWriter

if TYPE_CHECKING:  # its libraries are an extra, which floods without records do without
    from kafka_quotas.loadtest.clients.raw.record_batch import RecordBatch

VERSION: Final = 7
TIMEOUT_MS: Final = 30_000
_INT32: Final = Struct(">i")
_PARTITION: Final = Struct(">ii")  # partition, length of the records
_CORRELATION_ID_AT: Final = 8
_ANSWER_TAIL: Final = Struct(">ihqqqi")  # partition, error, base offset, append time, log start, throttle time


class ProduceAnswer(NamedTuple):
    """The response for the one partition of a request."""

    error_code: int
    """0 for none."""
    throttle_ms: int


class ProduceRequest:
    """The Produce requests of one client to one topic, with `acks` of 0, 1 or -1."""

    def __init__(self, *, client_id: str | None, topic: str, acks: int, batch: "RecordBatch") -> None:
        writer = FieldWriter(flexible=False)
        writer.int32(0)  # length of the frame
        writer.int16(ApiKey.PRODUCE)
        writer.int16(VERSION)
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
    """Read a response from the end of its frame, where the fields have fixed offsets.

    Raises:
        ProtocolError: If the frame is too short.
    """
    at = len(frame) - _ANSWER_TAIL.size
    if at < 0:
        raise ProtocolError("an answer to Produce is too short")
    _, error_code, _, _, _, throttle_ms = _ANSWER_TAIL.unpack_from(frame, at)
    return ProduceAnswer(error_code, throttle_ms)
