"""The binary form of requests and decisions, for programs that send many.

A connection starts with `MAGIC`, which the daemon answers with the same four bytes. Then both sides send frames:
length (u32, of what follows), a number that the response repeats (u32), a count (u16), and that many entries. All
figures are big-endian, texts UTF-8 after their lengths. Invariants: entries of a response are in the order of the
requests; one that can't be answered has a status and a text instead of a decision, and costs no other.
**Source:** `docs/reference/decision-api.md`.
"""

import struct
from collections.abc import Sequence
from struct import Struct
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.java.strings import decode_utf8, well_formed
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.rules import ANONYMOUS
from kafka_quotas.enforcement.decisions.messages import (
    MAX_BATCH,
    PROTOCOL_VERSION,
    AnyQuotaType,
    Decision,
    DecisionError,
    DecisionRequest,
    Operation,
    ResourceQuota,
    is_amount,
)

MAGIC: Final = b"\x00KQ" + bytes([PROTOCOL_VERSION])
MAX_FRAME_BYTES: Final = 1024 * 1024
NO_BROKER: Final = -1
TYPE_CODES: Final[dict[AnyQuotaType, int]] = {
    QuotaType.PRODUCE: 1,
    QuotaType.FETCH: 2,
    QuotaType.REQUEST: 3,
    QuotaType.CONTROLLER_MUTATION: 4,
    QuotaType.REQUEST_RATE: 5,
    ResourceQuota.CONNECTION: 6,
    ResourceQuota.TOPIC: 7,
}
"""Codes of quota types in a frame, of which a new type gets a new one."""
_TYPES: Final = {code: quota_type for quota_type, code in TYPE_CODES.items()}
_OPS: Final = {op.value: op for op in Operation}

_LENGTH: Final = Struct(">I")
_HEAD: Final = Struct(">IH")
_REQUEST: Final = Struct(">BBidHHBH")
"""Operation, quota type, broker (-1: the bootstrap's), amount, lengths of user, client-id, ip and topic."""
_DECISION: Final = Struct(">BiddHH")
"""Status, delay in ms, limit, observed, lengths of quota and entity (of the error and 0, where it failed)."""
_DECIDED, _SHADOW, _FAILED = 0, 1, 2


def frame_end(data: bytes | bytearray, start: int) -> int | None:
    """Return the offset after the frame at `start`, None where it is not complete.

    Raises:
        ProtocolError: The frame announces a length that no frame may have.
    """
    if len(data) - start < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(data, start)
    if not _HEAD.size <= length <= MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame announces {length} bytes")
    end = start + _LENGTH.size + int(length)
    return end if end <= len(data) else None


def write_requests(number: int, requests: Sequence[DecisionRequest]) -> bytes:
    """Return the frame of some requests.

    Raises:
        DecisionError: A text or the batch is too long.
    """
    if len(requests) > MAX_BATCH:
        raise DecisionError(f"a batch has at most {MAX_BATCH} questions")
    parts = [_HEAD.pack(number, len(requests))]
    for request in requests:
        texts = [well_formed(text).encode() for text in (request.user, request.client_id, request.ip, request.topic)]
        broker = NO_BROKER if request.broker is None else request.broker
        try:
            head = _REQUEST.pack(request.op, _code_of(request.quota_type), broker, request.amount, *map(len, texts))
        except struct.error as error:
            raise DecisionError(f"can't be asked: {error}") from error
        parts += [head, *texts]
    return _framed(b"".join(parts))


def read_requests(data: bytes | bytearray, start: int, end: int) -> tuple[int, list[DecisionRequest | DecisionError]]:
    """Return the number of a frame and its requests, with an error for each that can't be understood.

    Raises:
        ProtocolError: The frame's length does not fit its requests, or they are more than `MAX_BATCH`.
    """
    try:
        number, count = _HEAD.unpack_from(data, start + _LENGTH.size)
        offset = start + _LENGTH.size + _HEAD.size
        requests: list[DecisionRequest | DecisionError] = []
        for _ in range(count):
            op, code, broker, amount, *lengths = _REQUEST.unpack_from(data, offset)
            offset += _REQUEST.size
            texts = []
            for length in lengths:
                texts.append(decode_utf8(bytes(data[offset : offset + length])))
                offset += length
            requests.append(_request(op, code, broker, amount, texts))
    except struct.error as error:
        raise ProtocolError("a frame ends too early") from error
    if offset != end or count > MAX_BATCH:
        raise ProtocolError(f"a frame of {count} questions has another length")
    return number, requests


def write_decisions(number: int, decisions: Sequence[Decision | DecisionError]) -> bytes:
    """Return the frame of some decisions."""
    return _framed(_HEAD.pack(number, len(decisions)) + b"".join(map(_decision, decisions)))


def read_decisions(data: bytes | bytearray, start: int) -> tuple[int, list[Decision | DecisionError]]:
    """Return the number of a frame and its decisions.

    Raises:
        ProtocolError: The frame ends too early.
    """
    try:
        number, count = _HEAD.unpack_from(data, start + _LENGTH.size)
        offset = start + _LENGTH.size + _HEAD.size
        decisions: list[Decision | DecisionError] = []
        for _ in range(count):
            status, delay_ms, limit, observed, first, second = _DECISION.unpack_from(data, offset)
            offset += _DECISION.size
            text = bytes(data[offset : offset + first + second])
            offset += first + second
            key, entity = decode_utf8(text[:first]), decode_utf8(text[first:])
            if status == _FAILED:
                decisions.append(DecisionError(key))
            else:
                decisions.append(Decision(delay_ms, key, entity, limit, observed, status == _SHADOW))
    except struct.error as error:
        raise ProtocolError("an answer ends too early") from error
    return number, decisions


def _request(op: int, code: int, broker: int, amount: float, texts: Sequence[str]) -> DecisionRequest | DecisionError:
    if op not in _OPS or code not in _TYPES:
        return DecisionError(f"operation {op} of quota type {code} is not known")
    if not is_amount(amount):
        return DecisionError(f"amount is a number from 0 to 2^63, not {amount!r}")
    user, client_id, ip, topic = texts
    node_id = None if broker == NO_BROKER else broker
    return DecisionRequest(_OPS[op], _TYPES[code], amount, user or ANONYMOUS, client_id, ip, topic, node_id)


def _decision(decision: Decision | DecisionError) -> bytes:
    if isinstance(decision, DecisionError):
        text = decision.message.encode("utf-8", "replace")[:1000]
        return _DECISION.pack(_FAILED, 0, 0.0, 0.0, len(text), 0) + text
    status = _SHADOW if decision.is_shadow else _DECIDED
    key, entity = decision.quota.encode(), well_formed(decision.entity).encode()
    lengths = (len(key), len(entity))
    return _DECISION.pack(status, decision.delay_ms, decision.limit, decision.observed, *lengths) + key + entity


def _code_of(quota_type: AnyQuotaType) -> int:
    code = TYPE_CODES.get(quota_type)
    if code is None:
        raise DecisionError(f"the binary form has no {quota_type.value}")
    return code


def _framed(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + content
