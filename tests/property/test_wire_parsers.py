"""Properties of the wire layer: any cut of a stream gives the same frames, and rubbish raises nothing but one error."""

import dataclasses
import itertools
import struct
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kio.static.constants import EntityType
from tests.support.frames import kio_samples
from tests.support.frames.api_places import broker_addresses, carries_addresses, has_throttle
from tests.support.frames.lowered_fetch import lower_fetch

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.enforcement.session.frames import Frame, FrameStream
from kafka_quotas.wire.codec.encoding import checked_frame_length
from kafka_quotas.wire.codec.skip import Buffer, encode_unsigned_varint, read_unsigned_varint
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import (
    RequestHeader,
    parse_request_header,
    parse_response_head,
    response_body_offset,
)
from kafka_quotas.wire.proxying.api_versions import clamp
from kafka_quotas.wire.proxying.broker_addresses import rewrite_addresses
from kafka_quotas.wire.proxying.fetch_request import replica_id
from kafka_quotas.wire.proxying.produce import acks
from kafka_quotas.wire.proxying.sasl import (
    authenticate_result,
    authenticate_token,
    handshake_error_code,
    handshake_mechanism,
    oauthbearer_subject,
    plain_user,
    scram_identity,
)
from kafka_quotas.wire.proxying.throttle_time import (
    NEED_MORE,
    patch_throttle,
    read_throttle_ms,
    throttle_offset,
)

PLACES = [(key, version) for key, api in API_TABLE.items() for version in range(api.min_version, api.max_version + 1)]
WALKED = [(0, 1), (0, 8), (0, 9), (0, 13), (18, 1), (18, 3), (38, 3), (41, 1), (41, 3)]
WITH_ADDRESSES = [place for place in PLACES if carries_addresses(*place)]
IN_KIO = set(PLACES) & set(kio_samples.versions_of(EntityType.response))
SAMPLES = {
    place: kio_samples.response_frame(kio_samples.filled_response(*place))
    for place in sorted({*WITH_ADDRESSES, *WALKED, (1, 12), (3, 12)} & IN_KIO)
}
WITH_ADDRESSES_IN_KIO = [place for place in SAMPLES if carries_addresses(*place)]
THROTTLED_IN_KIO = [place for place in SAMPLES if has_throttle(*place)]
ROOMY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

cuts = st.lists(st.integers(0, 2500), max_size=20)


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def request(number: int, client_id: str) -> bytes:
    text = client_id.encode()
    return framed(struct.pack(">hhih", 0, 9, number, len(text)) + text + b"\0" + bytes(range(number * 30)))


def pieces(stream: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(cut, len(stream)) for cut in at), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


@given(client_ids=st.lists(st.text(max_size=20), max_size=8), gathered=st.integers(0, 255), at=cuts)
def test_any_cut_of_a_stream_gives_the_same_frames(client_ids: list[str], gathered: int, at: list[int]):
    frames = [request(number, client_id) for number, client_id in enumerate(client_ids)]
    begun: list[str] = []
    whole: list[bytes | None] = []
    output: list[Buffer] = []

    def begin(chunk: memoryview, offset: int, _now_ms: int) -> Frame | None:
        header = parse_request_header(chunk, offset)
        if header is None:
            return None
        begun.append(header.client_id)
        return Frame(header.frame_length + 4, bool(gathered >> header.correlation_id & 1))

    def end(content: bytearray | None, _now_ms: int) -> bytearray | None:
        whole.append(None if content is None else bytes(content))
        return content

    stream = FrameStream(begin, end, output)
    for piece in pieces(b"".join(frames) + b"\0\0", at):
        stream.feed(memoryview(bytearray(piece)), 0)
    assert begun == client_ids
    assert whole == [frame if gathered >> number & 1 else None for number, frame in enumerate(frames)]
    assert b"".join(output) == b"".join(frames)
    assert stream.rest_bytes == 2


@given(
    key=st.sampled_from([0, 1, 3, 7, 18, 47, 10_001, -5]),
    version=st.integers(0, 20),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=50),
    body=st.binary(max_size=40),
    junk=st.binary(max_size=10),
)
def test_a_header_is_the_same_however_much_of_the_stream_is_there(
    key: int, version: int, correlation_id: int, client_id: str | None, body: bytes, junk: bytes
):
    text = (client_id or "").encode()
    head = struct.pack(">hhi", key, version, correlation_id)
    if (key, version) != (7, 0):
        head += struct.pack(">h", -1 if client_id is None else len(text)) + text
    if key in API_TABLE and version >= API_TABLE[key].flexible_since:
        head += bytes.fromhex("02 00 01 ff 07 02 aaaa")
    stream = junk + framed(head + body) + junk
    start = len(junk)
    expected = parse_request_header(stream, start)
    assert expected is not None
    assert expected[:3] == (key, version, correlation_id)
    assert expected.client_id == ("" if (key, version) == (7, 0) else client_id or "")
    assert expected.end == start + 4 + len(head)
    for length in range(start, len(stream)):
        assert parse_request_header(stream[:length], start) == (expected if length >= expected.end else None)
    for form in (bytearray(stream), memoryview(stream)):
        assert parse_request_header(form, start) == expected


@given(value=st.integers(0, 2**32 - 1), junk=st.binary(max_size=3))
def test_a_varint_is_read_as_it_was_written(value: int, junk: bytes):
    encoded = encode_unsigned_varint(value)
    assert read_unsigned_varint(junk + encoded + junk, len(junk), len(junk) + len(encoded)) == (
        value,
        len(junk) + len(encoded),
    )


def hosts_in(value: object) -> Iterator[str]:
    """The hosts of a message, in its order."""
    if isinstance(value, tuple):
        yield from itertools.chain.from_iterable(map(hosts_in, value))
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            inner = getattr(value, field.name)
            yield from [inner] if field.name == "host" else hosts_in(inner)


def try_all(data: bytes, place: tuple[int, int]) -> None:
    """Call every parser on the data.

    Nothing but `ProtocolError` may come out.
    """
    whole = RequestHeader(place[0], place[1], 1, "", min(12, len(data)), 0, max(len(data) - 4, 0))
    longer = whole._replace(frame_length=len(data) + 1000)
    calls = (
        lambda: parse_request_header(data),
        lambda: parse_response_head(data),
        lambda: response_body_offset(*place, data),
        lambda: throttle_offset(*place, data),
        lambda: patch_throttle(bytearray(data), *place, 5),
        lambda: broker_addresses(*place, data),
        lambda: rewrite_addresses(*place, data, lambda _, host, port: (host + "x", port)),
        lambda: clamp(data, place[1]),
        lambda: [acks(data, header) for header in (whole, longer)],
        lambda: [lower_fetch(bytearray(data), header, 10) for header in (whole, longer)],
        lambda: [replica_id(data, header) for header in (whole, longer)],
        lambda: authenticate_result(data, place[1]),
        lambda: authenticate_token(data, whole),
        lambda: handshake_error_code(data, place[1]),
        lambda: handshake_mechanism(data, whole),
        lambda: plain_user(data),
        lambda: scram_identity(data),
        lambda: oauthbearer_subject(data),
        lambda: checked_frame_length(data, 0, limit=1000),
    )
    for call in calls:
        try:
            call()
        except ProtocolError:
            continue


@ROOMY
@given(data=st.binary(max_size=200), place=st.sampled_from(PLACES), is_framed=st.booleans())
@example(data=b"", place=(0, 9), is_framed=True)
@example(data=bytes(4) + b"\xff" * 60, place=(0, 9), is_framed=True)
@example(data=b"n,,\x01auth=Bearer a.e30.b\x01\x01", place=(0, 0), is_framed=False)
def test_rubbish_raises_nothing_but_a_protocol_error(data: bytes, place: tuple[int, int], is_framed: bool):
    try_all(framed(data) if is_framed else data, place)


@ROOMY
@given(data=st.data(), place=st.sampled_from(sorted(SAMPLES)))
def test_damaged_messages_raise_nothing_but_a_protocol_error(data: st.DataObject, place: tuple[int, int]):
    frame = bytearray(SAMPLES[place])
    for position in data.draw(st.lists(st.integers(0, len(frame) - 1), min_size=1, max_size=4)):
        frame[position] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    del frame[data.draw(st.integers(0, len(frame))) :]
    try_all(bytes(frame), place)
    try_all(framed(bytes(frame[4:])), place)


@pytest.mark.parametrize("place", sorted(SAMPLES), ids=str)
def test_nothing_behind_a_frame_is_read(place: tuple[int, int]):
    frame = SAMPLES[place]
    behind = b"\xff" * 50
    if has_throttle(*place):
        offset = throttle_offset(*place, frame + behind)
        assert offset == throttle_offset(*place, frame)
        assert read_throttle_ms(frame, offset) == read_throttle_ms(frame + behind, offset)
        patched = bytearray(frame + behind)
        patch_throttle(patched, *place, 2**31 - 1)
        assert patched.endswith(behind)


@pytest.mark.parametrize("place", WITH_ADDRESSES_IN_KIO, ids=str)
def test_a_list_of_brokers_that_ends_behind_its_frame_is_refused(place: tuple[int, int]):
    frame = SAMPLES[place]
    host = next(hosts_in(kio_samples.filled_response(*place)))
    cut = frame.index(host.encode()) + len(host)
    with pytest.raises(ProtocolError):
        rewrite_addresses(*place, framed(frame[4:cut]), lambda _, host, port: (host, port))
    with pytest.raises(ProtocolError):
        broker_addresses(*place, frame[:-1])


@pytest.mark.parametrize("place", THROTTLED_IN_KIO, ids=str)
def test_a_throttle_time_that_ends_behind_its_frame_is_refused(place: tuple[int, int]):
    frame = SAMPLES[place]
    end = throttle_offset(*place, frame) + 3
    assert throttle_offset(*place, frame[:end]) == NEED_MORE
    with pytest.raises(ProtocolError):
        throttle_offset(*place, framed(frame[4:end]) + b"\xff" * 20)


@given(padding=st.integers(0, 60), place=st.sampled_from(sorted(SAMPLES)))
def test_a_response_is_found_anywhere_in_a_chunk(padding: int, place: tuple[int, int]):
    chunk = bytearray(b"\xfe" * padding + SAMPLES[place] + b"\xfe" * 9)
    before = bytes(chunk)
    found = throttle_offset(*place, chunk, padding)
    if found is None:
        assert not has_throttle(*place)
        return
    assert found == throttle_offset(*place, SAMPLES[place]) + padding
    assert patch_throttle(chunk, *place, 2**30, padding) == read_throttle_ms(before, found)
    assert (chunk[:found], chunk[found + 4 :]) == (before[:found], before[found + 4 :])
