"""The end of Fetch responses against kio: found however they are cut, rewritten at the same length."""

import dataclasses
import random
from itertools import repeat

import pytest
from kio.serial._introspect import get_field_tag
from kio.static.constants import EntityType
from tests.support.frames import kio_samples
from tests.support.frames.api_places import broker_addresses, carries_addresses
from tests.support.frames.cut_frames import tail_of

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.skip import encode_unsigned_varint, tags
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.proxying.fetch_response import (
    MAX_TAIL_BYTES,
    TailFinder,
    names_no_brokers,
    rewrite_tail,
)

VERSIONS = [version for key, version in kio_samples.versions_of(EntityType.response) if key == ApiKey.FETCH]
WITH_ENDPOINTS = [version for version in VERSIONS if version >= 16]


def test_the_versions_with_endpoints_are_those_of_the_table() -> None:
    assert [version for version in VERSIONS if carries_addresses(ApiKey.FETCH, version)] == WITH_ENDPOINTS
    assert API_TABLE[ApiKey.FETCH].max_version == WITH_ENDPOINTS[-1] >= 17


@pytest.mark.parametrize("version", WITH_ENDPOINTS)
@pytest.mark.parametrize("make", [kio_samples.filled_response, kio_samples.empty_response])
def test_the_tail_is_found_wherever_the_response_is_cut(make, version: int) -> None:
    frame = kio_samples.response_frame(make(ApiKey.FETCH, version))
    tail = tail_of(ApiKey.FETCH, frame)
    assert tags(tail, 0, len(tail)) == len(tail)
    assert (len(tail) > 1) == bool(broker_addresses(ApiKey.FETCH, version, frame))
    for size in range(1, len(frame)):
        assert tail_of(ApiKey.FETCH, frame, repeat(size)) == tail
    for cut in range(1, len(frame)):
        assert tail_of(ApiKey.FETCH, frame, iter((cut, len(frame)))) == tail


@pytest.mark.parametrize("version", WITH_ENDPOINTS)
def test_large_responses_are_stepped_over(version: int) -> None:
    message = kio_samples.filled_response(ApiKey.FETCH, version)
    (topic, *_), chance = message.responses, random.Random(version)
    (partition, *_) = topic.partitions
    aborted = type(partition.aborted_transactions[0])
    partitions = tuple(
        dataclasses.replace(
            partition,
            records=chance.randbytes(chance.choice((0, 1, 127, 128, 20_000))) or None,
            aborted_transactions=tuple(aborted(producer_id=n, first_offset=n) for n in range(n % 3 * 100)),
        )
        for n in range(200)
    )
    bare = dataclasses.replace(message, responses=(dataclasses.replace(topic, partitions=partitions),) * 2)
    frame = kio_samples.response_frame(bare)
    tail = tail_of(ApiKey.FETCH, frame)
    assert frame.endswith(tail)
    assert tail_of(ApiKey.FETCH, frame, iter(lambda: chance.choice((1, 100, 65_536)), 0)) == tail
    assert kio_samples.response_frame(message).endswith(tail)


@pytest.mark.parametrize("version", WITH_ENDPOINTS)
@pytest.mark.parametrize("host", ["h", "127.0.0.1", "a-name-that-is-longer-than-most.example.com", "x" * 130])
@pytest.mark.parametrize("ours", ["p", "proxy.example", "y" * 40, "z" * 129])
def test_a_rewritten_tail_is_as_long_and_names_our_addresses_or_none(version: int, host: str, ours: str) -> None:
    message = kio_samples.filled_response(ApiKey.FETCH, version)
    (endpoint, *_) = message.node_endpoints
    message = dataclasses.replace(
        message,
        node_endpoints=tuple(dataclasses.replace(endpoint, node_id=n, host=host, port=9000 + n) for n in range(2)),
    )
    frame = kio_samples.response_frame(message)
    tail = tail_of(ApiKey.FETCH, frame)
    rewritten = rewrite_tail(ApiKey.FETCH, version, tail, lambda node, _, port: (ours, port + 10_000 + node))
    assert len(rewritten) == len(tail)
    changed = frame[: -len(tail)] + rewritten
    named = broker_addresses(ApiKey.FETCH, version, changed)
    fits = len(ours) <= len(host)
    assert [(broker.node_id, broker.host, broker.port) for broker in named] == (
        [(n, ours, 19_000 + 2 * n) for n in range(2)] if fits else []
    )
    assert tags(rewritten, 0, len(rewritten)) == len(rewritten)
    gap = (len(host) - len(ours)) * 2
    if fits and gap <= 2:  # nothing was added, so kio can be asked as well
        expected = kio_samples.with_addresses(message, lambda node, _, port: (ours, port + 10_000 + node))
        assert kio_samples.decoded_response(changed, ApiKey.FETCH, version) == expected


def test_other_tagged_fields_stay_and_ours_comes_last() -> None:
    version = WITH_ENDPOINTS[-1]
    frame = kio_samples.response_frame(kio_samples.filled_response(ApiKey.FETCH, version))
    tail = tail_of(ApiKey.FETCH, frame)
    other = encode_unsigned_varint(12_345) + b"\3abc"
    extended = bytes([tail[0] + 1]) + tail[1:] + other
    rewritten = rewrite_tail(ApiKey.FETCH, version, extended, lambda *_: ("", 1))
    assert len(rewritten) == len(extended)
    assert rewritten[0] == 3
    place = rewritten.index(other)
    padding = rewritten[place + len(other) :]
    assert padding.startswith(encode_unsigned_varint(12_346))
    dropped = rewrite_tail(ApiKey.FETCH, version, extended, lambda *_: ("x" * 500, 1))
    assert dropped[0] == 2
    assert dropped[1:].startswith(other)
    assert len(dropped) == len(extended)


def test_a_tail_without_brokers_stays_as_it_is() -> None:
    for tail in (b"\0", b"\1\5\2ab"):
        assert rewrite_tail(ApiKey.FETCH, WITH_ENDPOINTS[0], tail, lambda *_: ("proxy", 1)) == tail


@pytest.mark.parametrize("version", WITH_ENDPOINTS)
def test_a_response_with_brokers_never_seems_bare(version: int) -> None:
    message = kio_samples.filled_response(ApiKey.FETCH, version)
    (endpoint, *_) = message.node_endpoints
    for port in (1, 255, 256, 9092, 9216, 65_280, 65_535):
        for rack in (None, "", "r", "zone-1"):
            brokers = (dataclasses.replace(endpoint, port=port, rack=rack),)
            frame = kio_samples.response_frame(dataclasses.replace(message, node_endpoints=brokers))
            assert not names_no_brokers(ApiKey.FETCH, frame, 0, len(frame)), (port, rack)


@pytest.mark.parametrize("version", WITH_ENDPOINTS)
def test_ordinary_responses_are_seen_to_be_bare(version: int) -> None:
    empty = kio_samples.empty_response(ApiKey.FETCH, version)
    frame = kio_samples.response_frame(empty)
    assert names_no_brokers(ApiKey.FETCH, b"xy" + frame, 2, len(frame) + 2)
    (topic, *_) = kio_samples.filled_response(ApiKey.FETCH, version).responses
    (partition, *_) = topic.partitions
    plain = {field.name: field.default for field in dataclasses.fields(partition) if get_field_tag(field) is not None}
    partition = dataclasses.replace(partition, **plain, records=b"data")
    data = dataclasses.replace(empty, responses=(dataclasses.replace(topic, partitions=(partition,)),))
    frame = kio_samples.response_frame(data)
    assert names_no_brokers(ApiKey.FETCH, frame, 0, len(frame))


def test_a_tail_that_is_too_long_is_refused() -> None:
    finder = TailFinder(ApiKey.FETCH, MAX_TAIL_BYTES + 100)
    with pytest.raises(ProtocolError, match="tagged fields"):
        finder.find(memoryview(bytes(8) + b"\0" + bytes(10) + b"\1" + bytes(10)), 0, 30)


def test_a_length_that_never_ends_is_refused() -> None:
    finder = TailFinder(ApiKey.FETCH, 100)
    with pytest.raises(ProtocolError, match="32 bits"):
        finder.find(memoryview(bytes(8) + b"\xff" * 8), 0, 16)
