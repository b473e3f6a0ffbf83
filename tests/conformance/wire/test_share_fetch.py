"""ShareFetch against kio: limits lowered, addresses rewritten however a response is cut, and responses without data."""

import dataclasses
import datetime as dt
import random
from collections.abc import Iterator
from itertools import repeat

import pytest
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType
from kio.static.protocol import Entity
from tests.support.frames import kio_samples
from tests.support.frames.api_places import broker_addresses
from tests.support.frames.cut_frames import pieces, tail_of
from tests.support.frames.enforcement import request
from tests.support.frames.lowered_fetch import lower_fetch

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.protocol.header import parse_request_header
from kafka_quotas.wire.proxying.broker_addresses import rewrite_addresses
from kafka_quotas.wire.proxying.fetch_request import fetch_limits
from kafka_quotas.wire.proxying.fetch_response import (
    MAX_TAIL_BYTES,
    TailFinder,
    WithoutRecords,
    charged_bytes,
    error_code,
    names_no_brokers,
    refused_share_fetch,
    rewrite_tail,
    shortened,
)

VERSIONS = [version for key, version in kio_samples.versions_of(EntityType.response) if key == ApiKey.SHARE_FETCH]
MAKERS = [kio_samples.filled_response, kio_samples.empty_response]


def kept_of(frame: bytes, sizes: Iterator[int]) -> bytes:
    filtered = WithoutRecords()
    return bytes(shortened(b"".join(filtered.keep(*piece) for piece in pieces(frame, sizes))))


def without_data(message: Entity) -> Entity:
    """The message as kio would say it without records and what was acquired with them."""
    topics = tuple(
        dataclasses.replace(
            topic,
            partitions=tuple(
                dataclasses.replace(partition, records=b"", acquired_records=()) for partition in topic.partitions
            ),
        )
        for topic in message.responses
    )
    return dataclasses.replace(message, responses=topics)


def test_all_versions_of_the_release_are_tried() -> None:
    assert VERSIONS == [1, 2]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("make", MAKERS)
def test_the_tail_is_found_wherever_the_response_is_cut(make, version: int) -> None:
    message = make(ApiKey.SHARE_FETCH, version)
    frame = kio_samples.response_frame(message)
    tail = tail_of(ApiKey.SHARE_FETCH, frame)
    bare = kio_samples.response_frame(dataclasses.replace(message, node_endpoints=()))
    assert frame[4 : len(frame) - len(tail)] == bare[4:-2]
    for size in range(1, len(frame)):
        assert tail_of(ApiKey.SHARE_FETCH, frame, repeat(size)) == tail
    for cut in range(1, len(frame)):
        assert tail_of(ApiKey.SHARE_FETCH, frame, iter((cut, len(frame)))) == tail


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("make", MAKERS)
def test_what_is_kept_is_the_response_without_data_wherever_it_is_cut(make, version: int) -> None:
    message = make(ApiKey.SHARE_FETCH, version)
    frame = kio_samples.response_frame(message)
    expected = kio_samples.response_frame(without_data(message))
    assert kept_of(frame, repeat(len(frame))) == expected
    for size in range(1, len(frame)):
        assert kept_of(frame, repeat(size)) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_large_responses_are_stepped_over(version: int) -> None:
    message = kio_samples.filled_response(ApiKey.SHARE_FETCH, version)
    (topic, *_), chance = message.responses, random.Random(version)
    (partition, *_) = topic.partitions
    (acquired, *_) = partition.acquired_records
    partitions = tuple(
        dataclasses.replace(
            partition,
            records=chance.randbytes(chance.choice((0, 1, 126, 127, 128, 20_000))),
            acquired_records=(acquired,) * (n % 3 * 100),
            error_message=None if n % 2 else "x" * 200,
        )
        for n in range(200)
    )
    large = dataclasses.replace(message, responses=(dataclasses.replace(topic, partitions=partitions),) * 2)
    frame = kio_samples.response_frame(large)
    tail = tail_of(ApiKey.SHARE_FETCH, frame)
    assert len(tail) > 50
    sizes = iter(lambda: chance.choice((1, 100, 65_536)), 0)
    assert tail_of(ApiKey.SHARE_FETCH, frame, sizes) == tail
    kept = kept_of(frame, sizes)
    assert kept == kio_samples.response_frame(without_data(large))
    assert len(kept) < len(frame) / 10


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("host", ["h", "127.0.0.1", "a-name-that-is-longer-than-most.example.com", "x" * 130])
@pytest.mark.parametrize("ours", ["p", "127.0.0.12", "proxy.example", "y" * 40, "z" * 129])
def test_a_rewritten_tail_is_as_long_and_names_our_addresses_or_none(version: int, host: str, ours: str) -> None:
    message = kio_samples.filled_response(ApiKey.SHARE_FETCH, version)
    (endpoint, *_) = message.node_endpoints
    for count in (1, 2):
        brokers = tuple(dataclasses.replace(endpoint, node_id=n, host=host, port=9000 + n) for n in range(count))
        frame = kio_samples.response_frame(dataclasses.replace(message, node_endpoints=brokers))
        tail = tail_of(ApiKey.SHARE_FETCH, frame)

        def translate(node: int, _host: str, port: int) -> tuple[str, int]:
            return ours, port + 10_000 + node

        rewritten = rewrite_tail(ApiKey.SHARE_FETCH, version, tail, translate)
        assert len(rewritten) == len(tail)
        changed = frame[: -len(tail)] + rewritten
        named = broker_addresses(ApiKey.SHARE_FETCH, version, changed)
        fits = len(ours) <= len(host)
        assert [(broker.node_id, broker.host, broker.port) for broker in named] == (
            [(n, ours, 19_000 + 2 * n) for n in range(count)] if fits else []
        )
        exact = rewrite_addresses(ApiKey.SHARE_FETCH, version, changed, lambda node, host, port: (host, port))
        assert exact == changed
        if len(ours) == len(host):
            expected = kio_samples.with_addresses(dataclasses.replace(message, node_endpoints=brokers), translate)
            assert kio_samples.decoded_response(changed, ApiKey.SHARE_FETCH, version) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_a_tail_without_brokers_stays_as_it_is(version: int) -> None:
    for tail in (b"\1\0", b"\0\0", b"\1\1\5\2ab"):
        assert rewrite_tail(ApiKey.SHARE_FETCH, version, tail, lambda *_: ("proxy", 1)) == tail


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_with_brokers_never_seems_to_have_none(version: int) -> None:
    message = kio_samples.filled_response(ApiKey.SHARE_FETCH, version)
    (endpoint, *_) = message.node_endpoints
    for rack in (None, "", "r", "\x01", "zone-1"):
        brokers = (dataclasses.replace(endpoint, rack=rack),)
        frame = kio_samples.response_frame(dataclasses.replace(message, node_endpoints=brokers))
        assert not names_no_brokers(ApiKey.SHARE_FETCH, frame, 0, len(frame))
    frame = kio_samples.response_frame(dataclasses.replace(message, node_endpoints=()))
    assert names_no_brokers(ApiKey.SHARE_FETCH, frame, 0, len(frame))


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_response_counts_is_its_body_and_four_bytes(version: int) -> None:
    filled = kio_samples.filled_response(ApiKey.SHARE_FETCH, version)
    message = dataclasses.replace(filled, node_endpoints=(), error_code=ErrorCode.none)
    frame = kio_samples.response_frame(message)
    assert charged_bytes(ApiKey.SHARE_FETCH, version, frame, 0, len(frame) - 4) == len(frame) - 9 + 4
    refused = kio_samples.response_frame(dataclasses.replace(message, error_code=ErrorCode.share_session_not_found))
    assert charged_bytes(ApiKey.SHARE_FETCH, version, refused, 0, len(refused) - 4) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_the_error_is_read_from_the_head(version: int) -> None:
    message = dataclasses.replace(
        kio_samples.filled_response(ApiKey.SHARE_FETCH, version), error_code=ErrorCode.share_session_not_found
    )
    frame = b"xyz" + kio_samples.response_frame(message)
    assert error_code(ApiKey.SHARE_FETCH, version, frame, 3) == ErrorCode.share_session_not_found
    assert error_code(ApiKey.SHARE_FETCH, version, frame[: 3 + 14], 3) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refusal_is_what_kio_reads(version: int) -> None:
    frame = refused_share_fetch(77, throttle_ms=1234, error=89)
    message = kio_samples.decoded_response(frame, ApiKey.SHARE_FETCH, version)
    assert message.throttle_time == dt.timedelta(milliseconds=1234)
    assert message.error_code == ErrorCode.throttling_quota_exceeded
    assert (message.error_message, message.responses, message.node_endpoints) == (None, (), ())


@pytest.mark.parametrize("version", VERSIONS)
def test_limits_are_lowered_where_kio_has_them(version: int) -> None:
    asked = dataclasses.replace(
        kio_samples.filled_request(ApiKey.SHARE_FETCH, version), min_bytes=70_000, max_bytes=5_000_000
    )
    plain = kio_samples.request_frame(asked, client_id="app")
    header = parse_request_header(plain)
    assert header is not None
    for most in (0, 60_000, 1_000_000, 2**31 - 1):
        frame = bytearray(plain)
        limits = fetch_limits(frame, header)
        assert limits is not None
        assert lower_fetch(frame, header, most) == (70_000, 5_000_000)
        wanted = dataclasses.replace(asked, min_bytes=min(70_000, most), max_bytes=min(5_000_000, most))
        assert bytes(frame) == kio_samples.request_frame(wanted, client_id="app")
        for size in range(header.end, limits.start + 12):
            assert lower_fetch(frame[:size], header, most) is None


def test_a_request_that_ends_before_its_limits_is_refused() -> None:
    frame = request(ApiKey.SHARE_FETCH, 1, 1, b"\0" + b"\2g\2m" + bytes(8) + b"min")
    header = parse_request_header(frame)
    assert header is not None
    with pytest.raises(ProtocolError):
        lower_fetch(bytearray(frame), header, 1)


def broken(finder: TailFinder | WithoutRecords, data: Buffer) -> None:
    chunk = memoryview(data)
    if isinstance(finder, TailFinder):
        finder.find(chunk, 0, len(chunk))
    else:
        finder.keep(chunk, 0, len(chunk))


def test_a_tail_that_is_too_long_is_refused() -> None:
    with pytest.raises(ProtocolError, match="bytes of brokers"):
        broken(
            TailFinder(ApiKey.SHARE_FETCH, MAX_TAIL_BYTES + 100),
            bytes(9) + bytes(6) + b"\0" + bytes(4) + b"\1" + bytes(9),
        )


@pytest.mark.parametrize("walk", [TailFinder(ApiKey.SHARE_FETCH, 100), WithoutRecords()])
def test_a_length_that_never_ends_is_refused(walk: TailFinder | WithoutRecords) -> None:
    with pytest.raises(ProtocolError, match="32 bits"):
        broken(walk, bytes(8) + b"\xff" * 8)
