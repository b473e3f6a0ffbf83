"""Whatever comes byte by byte costs as much per byte however much of it there is: no byte is parsed twice."""

import struct
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from tests.support.frames.enforcement import WINDOW, Pair, request, response

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.core.resolution.effective import ANONYMOUS
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.session.frames import FrameStream
from kafka_quotas.wire.codec.skip import encode_unsigned_varint
from kafka_quotas.wire.protocol import header

LENGTH = 1500
SHARE_FETCH, FIND_COORDINATOR, API_VERSIONS, SASL_AUTHENTICATE = 78, 10, 18, 36


def steps(run: Callable[[], None]) -> int:
    """The number of calls of functions, in Python and in C, that something takes: the same on any machine."""
    count = 0

    def seen(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        run()
    except ProtocolError:
        pass  # what is refused costs nothing more
    finally:
        sys.setprofile(before)
    return count


def endless(content: bytes) -> bytes:
    """The start of a frame that announces far more than comes."""
    return struct.pack(">i", 50_000_000) + content


def name(length: int) -> str:
    return "n" * length


def text(length: int) -> bytes:
    return encode_unsigned_varint(length + 1) + b"t" * length


def tagged(length: int) -> bytes:
    return b"\x81\xfa\x01" + b"\0\0" * (length // 2)


REQUESTS: dict[str, Callable[[int], bytes]] = {
    "client id": lambda length: request(API_VERSIONS, 3, 1, b"\0", client_id=name(length)),
    "tags of a header": lambda length: endless(request(API_VERSIONS, 3, 1, tagged(length))[4:]),
    "a long tag of a header": lambda length: endless(request(0, 9, 1, b"\1\5" + text(length))[4:]),
    "transactional id": lambda length: endless(request(0, 9, 1, b"\0" + text(length), client_id=name(length))[4:]),
    "share group": lambda length: endless(request(SHARE_FETCH, 1, 1, b"\0" + 2 * text(length))[4:]),
    "a token": lambda length: request(SASL_AUTHENTICATE, 2, 1, b"\0" + text(length)),
    "keys of coordinators": lambda length: request(FIND_COORDINATOR, 4, 1, b"\0\0" + b"\x7f" + b"\2k" * length),
    "a follower's fetch": lambda length: endless(
        request(1, 16, 1, b"\0" + bytes(21) + encode_unsigned_varint(length) + (bytes(16) + b"\1\0") * (length // 18))[
            4:
        ]
    ),
}
RESPONSES: dict[str, tuple[bytes, Callable[[int], bytes]]] = {
    "tags of a header": (request(FIND_COORDINATOR, 4, 1, b"\0\0\1\0"), lambda length: response(1, tagged(length))),
    "coordinators": (
        request(FIND_COORDINATOR, 4, 1, b"\0\0\1\0"),
        lambda length: response(1, b"\0" + bytes(4) + b"\1" + bytes(length)),
    ),
    "versions": (
        request(API_VERSIONS, 3, 1, b"\0"),
        lambda length: response(1, bytes(2) + encode_unsigned_varint(length // 7 + 1) + bytes(7) * (length // 7)),
    ),
    "records": (
        request(1, 16, 1, b"\0" + bytes(21) + b"\1\1\1\0"),
        lambda length: response(1, b"\0" + bytes(10) + b"\2" + bytes(16) + b"\2" + bytes(30) + text(length)),
    ),
}


INTERNAL = EnforcementRules(window=WINDOW, internal_principals=frozenset((ANONYMOUS,)))


def pair_for(kind: str) -> Pair:
    return Pair(quotas=dict.fromkeys(QuotaType, 1e9), rules=INTERNAL if kind == "a follower's fetch" else None)


def crumbs(feed: Callable[[bytes], object], data: bytes) -> float:
    """The steps per byte of feeding bytes one by one."""

    def run() -> None:
        for at in range(len(data)):
            feed(data[at : at + 1])

    return steps(run) / len(data)


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    decode = header.decode_utf8
    monkeypatch.setattr(header, "decode_utf8", lambda data: (decoded.append(len(data)), decode(data))[1])
    short, long = (REQUESTS[kind](length) for length in (LENGTH, 2 * LENGTH))
    once = crumbs(pair_for(kind).send, short)
    decoded.clear()
    assert crumbs(pair_for(kind).send, long) < 1.2 * once
    assert sum(decoded) <= len(long), "the name of a client is decoded once"


@pytest.mark.parametrize("kind", RESPONSES)
def test_a_response(kind: str) -> None:
    asked, answer = RESPONSES[kind]
    costs = []
    for length in (LENGTH, 2 * LENGTH):
        pair = pair_for(kind)
        pair.send(asked)
        costs.append(crumbs(pair.answer, answer(length)))
    assert costs[1] < 1.2 * costs[0]


def test_what_is_kept_of_a_frame_grows_in_place() -> None:
    stream = FrameStream(lambda _chunk, _offset, _now_ms: None, lambda _gathered, _now_ms: None, [])
    stream.feed(memoryview(b"a"), 0)
    kept = stream._rest
    for _ in range(1000):
        stream.feed(memoryview(b"a"), 0)
    assert stream._rest is kept
    assert stream.rest_bytes == 1001
