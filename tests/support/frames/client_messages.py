"""What a client of random traffic sends: requests of many kinds, logins good and bad, each under its own number."""

import struct
from collections.abc import Iterable

from tests.support.frames.authenticator_model import (
    API_VERSIONS,
    CREATE_TOPICS,
    FETCH,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    SHARE_FETCH,
)
from tests.support.frames.enforcement import fetch, framed, produce, request
from tests.support.frames.sasl_frames import authenticate, handshake

LARGE_BYTES = 70_000
"""Longer than what a connection may gather without asking for memory."""


class Sent:
    """What a client sent: a frame, and what it is."""

    def __init__(self, frame: bytes, number: int, *, is_token: bool = False) -> None:
        self.frame = frame
        self.number = number
        self.is_token = is_token
        self.api_key = -1 if is_token else struct.unpack_from(">h", frame, 4)[0]
        self.is_silent = self.api_key == PRODUCE and b"\xff\xff\x00\x00\x00\x00\x75\x30" in frame[:40]

    def told_ms(self, answer: bytes) -> int:
        """The throttle time in a response to it."""
        place = {PRODUCE: len(answer) - 4, FETCH: 8, SHARE_FETCH: 9, HEARTBEAT: 8, CREATE_TOPICS: 8}.get(self.api_key)
        value: int = 0 if place is None else struct.unpack_from(">i", answer, place)[0]
        return value


PATIENT_MS = 3_600_000
"""The wait of a Fetch that is held for as long as its bucket has no room."""


def messages(code: int, number: int, size: int) -> list[tuple[bytes, bool]]:
    """Some frames of the client, and whether they are bare tokens.

    Their correlation ids count up from `number`.
    """
    user = (b"alice", b"mallory")[size % 2]
    plain = b"\0" + user + b"\0" + (b"wrong" if size % 5 == 0 else b"secret")
    scram = (b"n,,n=" + user + b",r=nonce", b"c=biws,r=nonce2,p=right")
    kerberos = (b"\x60first", b"\x60last")
    scripts: dict[int, Iterable[bytes]] = {
        5: [produce(number, size=100 + 4 * number + size, acks=0)],
        6: [fetch(number, wait_ms=PATIENT_MS)],
        7: [fetch(number, wait_ms=PATIENT_MS)],
        8: [request(METADATA, 1, number, struct.pack(">ih", 1, 1) + b"t")],
        9: [request(API_VERSIONS, 0, number, b"")],
        10: [request(HEARTBEAT, 2, number, b"\x00\x01g" + bytes(8))],
        11: [request(CREATE_TOPICS, 3, number, b"topics")],
        12: _login("PLAIN", [plain], number),
        13: _login("PLAIN", [plain], number),
        14: _login("SCRAM-SHA-256", scram, number),
        15: [handshake("PLAIN", version=0, correlation_id=number), framed(plain)],
        16: _login("GSSAPI", kerberos, number),
        17: [handshake("GSSAPI", version=0, correlation_id=number), *map(framed, kerberos)],
        18: [handshake(("PLAIN", "GSSAPI", "BOGUS")[size % 3], correlation_id=number)],
        20: [share_fetch(number)],
        21: [request(CREATE_TOPICS, 3, number, bytes(LARGE_BYTES))],
        19: [authenticate((plain, scram[0], kerberos[0])[size % 3], correlation_id=number)],
    }
    frames = scripts.get(code, [produce(number, size=100 + 4 * number + size)])
    return [(frame, at > 0 and code in (15, 17)) for at, frame in enumerate(frames)]


def share_fetch(correlation_id: int) -> bytes:
    """A ShareFetch of version 1 without topics."""
    limits = struct.pack(">iiiiii", 0, 500, 1, 50_000_000, 500, 500)
    return request(SHARE_FETCH, 1, correlation_id, b"\x00\x02g\x02m" + limits + b"\x01\x01\x00")


def _login(mechanism: str, tokens: Iterable[bytes], number: int) -> list[bytes]:
    """A handshake and the tokens after it."""
    later = (authenticate(token, correlation_id=number + at) for at, token in enumerate(tokens, 1))
    return [handshake(mechanism, correlation_id=number), *later]


CODES = 22
"""How many kinds of messages there are."""
