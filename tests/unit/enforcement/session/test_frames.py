"""Frames wherever the network cuts them: the same bytes, the same decisions, and no payload copied together."""

import random
import struct

import pytest
from tests.support.frames.enforcement import (
    Pair,
    fetch,
    fetch_response,
    framed,
    produce,
    produce_response,
    request,
    response,
)

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.session.frames import Frame, FrameStream
from kafka_quotas.enforcement.session.state import READING
from kafka_quotas.wire.codec.skip import Buffer

METADATA_V1 = struct.pack(">i", 2) + b"".join(
    struct.pack(">i", node) + b"\x00\x04host" + struct.pack(">i", 9092) + b"\xff\xff" for node in (1, 2)
)
REQUESTS = (
    request(18, 2, 1, b"", client_id="x")  # an empty body ends right behind the client id
    + request(3, 1, 2, b"\x00\x00\x00\x00")
    + produce(3, size=700, version=9)
    + produce(4, size=400, acks=0)
    + fetch(5)
    + produce(6, size=900)
)
RESPONSES = (
    response(1, struct.pack(">hihhhi", 0, 1, 0, 0, 99, 0))
    + response(2, METADATA_V1 + struct.pack(">ii", 1, 0))
    + produce_response(3, version=9)
    + fetch_response(5, size=800)
    + produce_response(6)
)
LIMITS = {QuotaType.PRODUCE: 2e6, QuotaType.FETCH: 2e6}


def in_one_piece() -> Pair:
    pair = Pair(quotas=LIMITS)
    pair.exchange(REQUESTS, RESPONSES[: -len(produce_response(6))])
    pair.answer(produce_response(6))
    return pair


def in_pieces(size: int) -> Pair:
    pair = Pair(quotas=LIMITS)
    for start in range(0, len(REQUESTS), size):
        pair.send(REQUESTS[start : start + size])
    for start in range(0, len(RESPONSES), size):
        pair.answer(RESPONSES[start : start + size])
    return pair


@pytest.mark.parametrize("size", [*range(1, 40), 64, 100, 1000])
def test_pieces_of_any_size_give_the_same_bytes(size: int) -> None:
    whole, cut = in_one_piece(), in_pieces(size)
    assert cut.upstream == whole.upstream
    assert cut.client == whole.client
    assert len(cut.session.state.in_flight) == 0


def test_addresses_and_versions_are_rewritten_whatever_is_around_them() -> None:
    pair = in_one_piece()
    assert pair.brokers_named == [(1, "host", 9092), (2, "host", 9092)]
    assert b"127.0.0.1" in pair.client
    assert b"host" not in pair.client
    assert pair.client.startswith(response(1, struct.pack(">hihhhi", 0, 1, 0, 0, 13, 0)))


def test_random_cuts_and_random_holds_lose_nothing() -> None:
    chance = random.Random(1)
    frames = [produce(n, size=chance.randint(60, 4000), acks=chance.choice((0, 1))) for n in range(200)]
    sent = b"".join(frames)
    pair = Pair(quotas={QuotaType.PRODUCE: 50_000.0})
    position = 0
    while position < len(sent) or len(pair.session.state.in_flight) or pair.session.state.phase is not READING:
        if pair.session.state.phase is READING:
            step = chance.randint(1, 9000)
            pair.send(sent[position : position + step])
            position += step
        while len(pair.session.state.in_flight):
            pair.answer(produce_response(pair.session.state.in_flight[0].correlation_id))
        pair.advance(chance.randint(0, 500))
    assert pair.upstream == sent


class Recorder:
    """Begins every frame, gathering those that the set names, and remembers what ended."""

    def __init__(self, gathered: set[int]) -> None:
        self.output: list[Buffer] = []
        self.ended: list[bytes | None] = []
        self._gathered = gathered
        self._count = 0
        self.stream = FrameStream(self.begin, self.end, self.output)

    def begin(self, chunk: memoryview, offset: int, now_ms: int) -> Frame | None:
        if len(chunk) - offset < 4:
            return None
        self._count += 1
        length = int.from_bytes(chunk[offset : offset + 4], "big") + 4
        return Frame(length, self._count in self._gathered)

    def end(self, gathered: bytearray | None, now_ms: int) -> Buffer | None:
        self.ended.append(None if gathered is None else bytes(gathered))
        return gathered


def test_what_is_passed_on_is_a_view_of_the_chunk_and_no_copy() -> None:
    recorder = Recorder(set())
    chunk = memoryview(bytearray(framed(b"a" * 50) + framed(b"b" * 50)))
    recorder.stream.feed(chunk, 0)
    (only,) = recorder.output
    assert isinstance(only, memoryview)
    assert only.obj is chunk.obj
    assert recorder.ended == [None, None]


def test_a_gathered_frame_stands_in_its_place_among_the_others() -> None:
    recorder = Recorder({2})
    frames = [framed(bytes([65 + n]) * 10) for n in range(3)]
    recorder.stream.feed(memoryview(bytearray(b"".join(frames))), 0)
    assert [bytes(piece) for piece in recorder.output] == frames
    assert recorder.ended == [None, frames[1], None]


def test_a_frame_is_under_way_from_its_head_to_its_last_byte() -> None:
    recorder = Recorder(set())
    recorder.stream.feed(memoryview(bytearray(b"\x00\x00")), 0)
    assert not recorder.stream.mid_frame
    assert recorder.stream.rest_bytes == 2
    recorder.stream.feed(memoryview(bytearray(b"\x00\x02a")), 0)
    assert recorder.stream.mid_frame
    assert recorder.stream.rest_bytes == 0
    recorder.stream.feed(memoryview(bytearray(b"b")), 0)
    assert not recorder.stream.mid_frame
