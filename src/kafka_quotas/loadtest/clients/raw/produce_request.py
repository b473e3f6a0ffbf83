"""Produce requests of one partition and one prebuilt batch, and what is looked at in their answers.

Version 7 is one of the last before answers grew a list per record: all that is needed has a fixed place in it.
Brokers from Kafka 2.1 to 4.x take it.

**Source:** `ProduceRequest.json`, `ProduceResponse.json`, Kafka 4.1.
"""

from struct import Struct
from typing import Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.loadtest.clients.raw.record_batch import RecordBatch
from kafka_quotas.wire.codec.writer import FieldWriter
from kafka_quotas.wire.passing.produce_request import PRODUCE

VERSION: Final = 7
TIMEOUT_MS: Final = 30_000
_INT32: Final = Struct(">i")
_PLACE: Final = Struct(">ii")  # partition, length of the records
_CORRELATION_ID_AT: Final = 8
_ANSWER_TAIL: Final = Struct(">ihqqqi")  # partition, error, base offset, append time, log start, throttle time


class ProduceAnswer(NamedTuple):
    """The answer for the one partition: its error (0: none) and the throttle time of the request in ms."""

    error_code: int
    throttle_ms: int


class ProduceRequest:
    """The requests of one client for one topic; `acks` is 0, 1 or -1."""

    def __init__(self, *, client_id: str | None, topic: str, acks: int, batch: RecordBatch) -> None:
        writer = FieldWriter(flexible=False)
        writer.int32(0)  # length of the frame
        writer.int16(PRODUCE)
        writer.int16(VERSION)
        writer.int32(0)  # correlation id
        writer.string(client_id)
        writer.string(None)  # transactional id
        writer.int16(acks)
        writer.int32(TIMEOUT_MS)
        writer.count(1)
        writer.string(topic)
        writer.count(1)
        writer.raw(_PLACE.pack(0, 0))
        self._head = bytearray(writer.content())
        self._batch = batch

    def frame(self, correlation_id: int, *, partition: int, records: int, first_sequence: int, now_ms: int) -> bytes:
        """The whole frame of a request with `records` records for a partition."""
        batch = self._batch.made(records=records, first_sequence=first_sequence, now_ms=now_ms)
        head = self._head
        _INT32.pack_into(head, 0, len(head) - 4 + len(batch))
        _INT32.pack_into(head, _CORRELATION_ID_AT, correlation_id)
        _PLACE.pack_into(head, len(head) - _PLACE.size, partition, len(batch))
        return b"".join((head, batch))


def read_produce_answer(frame: bytes) -> ProduceAnswer:
    """What the answer says, read from the end of its frame, where everything has its place.

    *Raises* `ProtocolError` where it is too short.
    """
    at = len(frame) - _ANSWER_TAIL.size
    if at < 0:
        raise ProtocolError("an answer to Produce is too short")
    _, error_code, _, _, _, throttle_ms = _ANSWER_TAIL.unpack_from(frame, at)
    return ProduceAnswer(error_code, throttle_ms)
