"""The messages of authentication written out by hand, independent of the code under test."""

import struct

from tests.support.frames.enforcement import request, response

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
