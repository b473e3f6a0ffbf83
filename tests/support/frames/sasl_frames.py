"""The messages of authentication written out by hand, independent of the code under test."""

import struct
from typing import Any

from tests.support.frames.enforcement import Pair, question, question_answer, request, response

PLAIN_TOKEN = b"\x00alice\x00secret"
SCRAM_FIRST = b"n,,n=al=2Cice,r=nonce"


def handshake(mechanism: str, *, version: int = 1, correlation_id: int = 1) -> bytes:
    name = mechanism.encode()
    return request(17, version, correlation_id, struct.pack(">h", len(name)) + name)


def handshake_answer(*, error: int = 0, correlation_id: int = 1) -> bytes:
    return response(correlation_id, struct.pack(">hi", error, 0))


def authenticate(token: bytes, *, correlation_id: int = 2) -> bytes:
    return request(36, 1, correlation_id, struct.pack(">i", len(token)) + token)


def authenticate_answer(token: bytes = b"", *, error: int = 0, correlation_id: int = 2) -> bytes:
    return response(correlation_id, struct.pack(">hhi", error, -1, len(token)) + token + bytes(8))


class UnprovedPair(Pair):
    """A session of which nobody knows whether its client has to authenticate."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(is_served=False, **settings)


def exchanged(pair: UnprovedPair, mechanism: str, *rounds: tuple[bytes, bytes]) -> None:
    assert pair.send(handshake(mechanism)) == handshake(mechanism)
    assert pair.answer(handshake_answer()) == handshake_answer()
    for token, answer in rounds:
        assert pair.send(authenticate(token)) == authenticate(token)
        assert pair.answer(authenticate_answer(answer)) == authenticate_answer(answer)


def proved(pair: UnprovedPair, first: bytes, *, correlation_id: int = 3) -> None:
    """The client's first request went on once the broker had answered what it answers to those only that it serves."""
    assert pair.send(first) == question(correlation_id)
    assert pair.answer(question_answer(correlation_id)) == b""
    assert pair.upstream.endswith(question(correlation_id) + first)
