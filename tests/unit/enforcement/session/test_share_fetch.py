"""Share fetches (KIP-932) through a session: what they cost, what their client is told, and what it gets."""

import dataclasses
import datetime as dt
import struct
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32
from tests.support.frames import kio_samples
from tests.support.frames.api_places import broker_addresses
from tests.support.frames.enforcement import CLIENT_ID, COSTS, START_MS, Pair, fetch, fetch_response, throttle_of

from kafka_quotas.core.metrics.throttle_time import nanos_to_percentage
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import FetchOverQuota, Mode, OnViolation
from kafka_quotas.enforcement.config.rules import ThrottleStyle
from kafka_quotas.enforcement.event_log.charges import Charge

VERSIONS = [1, 2]
MODES = list(FetchOverQuota)
LIMIT = 1000.0
WINDOW_BYTES = 2000
"""What the limit allows in two whole samples of a second."""


def pair(fetches: FetchOverQuota = FetchOverQuota.DELIVER, limit: float | None = LIMIT, **rules: Any) -> Pair:
    quotas = {} if limit is None else {QuotaType.FETCH: limit}
    return Pair(quotas=quotas, fetch_over_quota=fetches, **rules)


def share_fetch(correlation_id: int, version: int, *, max_bytes: int = 50_000_000) -> bytes:
    message = dataclasses.replace(
        kio_samples.filled_request(ApiKey.SHARE_FETCH, version), min_bytes=i32(1), max_bytes=i32(max_bytes)
    )
    return kio_samples.request_frame(message, client_id=CLIENT_ID, correlation_id=correlation_id)


def answer(
    correlation_id: int, version: int, *, record_bytes: int = 1000, error: ErrorCode = ErrorCode.none, host: str = ""
) -> bytes:
    """A response with records in three topics of three partitions.

    With brokers where a host is given.
    """
    message = kio_samples.filled_response(ApiKey.SHARE_FETCH, version)
    topics = tuple(
        dataclasses.replace(
            topic,
            partitions=tuple(dataclasses.replace(each, records=bytes(record_bytes)) for each in topic.partitions),
        )
        for topic in message.responses
    )
    endpoints = tuple(
        dataclasses.replace(each, node_id=n, host=host, port=9092) for n, each in enumerate(message.node_endpoints)
    )
    changed = dataclasses.replace(
        message,
        responses=topics,
        error_code=error,
        throttle_time=kio_samples.i32Timedelta.parse(dt.timedelta()),
        node_endpoints=endpoints if host else (),
    )
    return kio_samples.response_frame(changed, correlation_id=correlation_id)


def fetched(who: Pair) -> list[tuple[float, int]]:
    """(measured rate, throttle time) of every bucket that counts for `consumer_byte_rate`."""
    buckets = who.broker.manager(QuotaType.FETCH).buckets(who.now_ms)
    return [(state.measured, state.throttle_ms) for state in buckets]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_delivered_is_charged_and_the_client_waits(version: int) -> None:
    who = pair()
    who.send(share_fetch(1, version))
    assert who.send(share_fetch(2, version)) == b"", "what follows waits for the throttle time"
    frame = answer(1, version, record_bytes=700)
    got = who.answer(frame)
    charged = len(frame) - 5  # the body and four bytes: no correlation id, no tags of the header
    throttle = round((charged / 2 - LIMIT) / LIMIT * 2000)
    assert throttle_of(got, 9) == throttle
    assert got[13:] == frame[13:]
    assert fetched(who) == [(charged / 2, throttle)]
    assert who.session.state.mute is not None
    assert who.session.state.mute.until_ms == START_MS + throttle
    assert who.advance(throttle - 1) == b""
    assert who.session.state.held is None
    who.advance(1)
    assert who.session.state.held is not None, "a response as long as this one needs more room than there is yet"
    assert who.advance(who.session.state.held.until_ms - who.now_ms) != b""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_share_fetch_within_the_quota_passes_as_it_is(mode: FetchOverQuota, version: int) -> None:
    who = pair(mode, limit=1e6)
    who.send(share_fetch(1, version))
    frame = answer(1, version)
    assert who.answer(frame) == frame
    assert who.session.state.mute is None
    assert fetched(who) == [((len(frame) - 5) / 2, 0)]


@pytest.mark.parametrize("version", VERSIONS)
def test_limits_of_what_is_delivered_are_lowered_to_a_window(version: int) -> None:
    whole = share_fetch(1, version)
    lowered = share_fetch(1, version, max_bytes=WINDOW_BYTES)
    assert pair().send(whole) == lowered
    assert pair(limit=None).send(whole) == whole
    assert pair(FetchOverQuota.KAFKA).send(whole) == whole, "a broker leaves them alone"
    for cut in range(1, len(whole), 2):
        who = pair()
        assert who.send(whole[:cut]) + who.send(whole[cut:]) == lowered


@pytest.mark.parametrize("version", VERSIONS)
def test_over_the_quota_a_broker_keeps_the_records_and_their_bytes_count_for_nothing(version: int) -> None:
    asked, frame = share_fetch(1, version), answer(1, version)
    charged = len(frame) - 5
    throttle = round((charged / 2 - LIMIT) / LIMIT * 2000)
    emptied = set()
    for cut in (*range(1, 40), len(frame) // 2, len(frame) - 1, len(frame)):
        who = pair(FetchOverQuota.KAFKA)
        who.send(asked)
        emptied.add(who.answer(frame[:cut]) + who.answer(frame[cut:]))
        assert fetched(who) == [(0, throttle)]
        assert who.session.state.mute is not None
        assert who.session.state.mute.until_ms == START_MS + throttle
        assert len(who.session.state.in_flight) == 0
    (got,) = emptied
    message, expected = (kio_samples.decoded_response(each, ApiKey.SHARE_FETCH, version) for each in (got, frame))
    assert message.throttle_time == dt.timedelta(milliseconds=throttle)
    assert {(each.records, each.acquired_records) for each in partitions(message)} == {(b"", ())}
    assert [(each.partition_index, each.acknowledge_error_code) for each in partitions(message)] == [
        (each.partition_index, each.acknowledge_error_code) for each in partitions(expected)
    ]


def partitions(message: Any) -> list[Any]:
    return [each for topic in message.responses for each in topic.partitions]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_with_an_error_costs_no_bytes(mode: FetchOverQuota, version: int) -> None:
    who = pair(mode)
    who.send(share_fetch(1, version))
    frame = answer(1, version, error=ErrorCode.share_session_not_found)
    for byte in frame[:14]:
        assert who.answer(bytes([byte])) == b"", "whether it is an error shows in its 15th byte"
    assert frame.endswith(who.answer(frame[14:]))
    assert who.client == frame
    assert fetched(who) == [(0, 0)]
    assert who.session.state.mute is None


@pytest.mark.parametrize("mode", MODES)
def test_addresses_are_ours_wherever_a_response_over_the_quota_is_cut(mode: FetchOverQuota) -> None:
    asked, frame = share_fetch(1, 2), answer(1, 2, record_bytes=300, host="a-broker-of-the-cluster.example")
    changed = set()
    for cut in range(1, len(frame), 17):
        who = pair(mode)
        who.send(asked)
        changed.add(who.answer(frame[:cut]) + who.answer(frame[cut:]))
        assert len(who.session.state.in_flight) == 0
    for got in changed:
        named = [(broker.node_id, broker.host, broker.port) for broker in broker_addresses(ApiKey.SHARE_FETCH, 2, got)]
        assert named == [(n, "127.0.0.1", 20_000 + n) for n in range(3)]
        assert len(got) == struct.unpack_from(">i", got)[0] + 4
        assert throttle_of(got, 9) > 0


def test_a_gibibyte_passes_as_views() -> None:
    size = 1 << 30
    who = pair(limit=None)
    who.send(share_fetch(1, 2))
    head = 9 + 6 + 1 + 4  # header, throttle time and error, no message, lock duration
    partition = bytes(6) + b"\0" + bytes(2) + b"\0" + bytes(8) + b"\0" + varint(size + 1)
    before = b"\0" + bytes(6) + b"\0" + bytes(4) + b"\2" + bytes(16) + b"\2" + partition
    behind = b"\1" + b"\0" + b"\0" + b"\1" + b"\0"
    who.answer(struct.pack(">ii", 4 + len(before) + size + len(behind), 1) + before)
    assert len(who.client) > head
    chunk, passed = bytes(1 << 20), 0
    for _ in range(1 << 10):
        who.session.receive_from_broker(chunk, who.now_ms, 0)
        (piece,) = who.session.state.to_client
        assert isinstance(piece, memoryview)
        assert piece.obj is chunk
        passed += len(piece)
        who.session.state.to_client.clear()
    assert who.answer(behind) == behind
    assert passed == size
    assert len(who.session.state.in_flight) == 0


def varint(value: int) -> bytes:
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


@pytest.mark.parametrize("mode", MODES)
def test_its_time_is_charged_with_its_response_and_everything_is_in_the_event_log(mode: FetchOverQuota) -> None:
    charges: list[Charge] = []
    limits = {QuotaType.FETCH: 1e9, QuotaType.REQUEST: 0.01, QuotaType.REQUEST_RATE: 1000.0}
    who = Pair(quotas=limits, fetch_over_quota=mode, on_charge=charges.append)
    who.send(share_fetch(1, 2))
    assert [(charge[3], charge[4]) for charge in charges] == [(QuotaType.REQUEST_RATE, ApiKey.SHARE_FETCH)]
    frame = answer(1, 2)
    got = who.answer(frame)
    told = [(charge[3], charge[5], charge[6]) for charge in charges[1:]]
    time_throttle = throttle_of(got, 9)
    assert time_throttle == 1000, "a millisecond of 0.01 % is a window"
    counted = [
        (QuotaType.REQUEST, 1.0, time_throttle),
        (QuotaType.FETCH, len(frame) - 5, 0),
    ]
    taken_back = [(QuotaType.FETCH, 5 - len(frame), 0)] if mode is FetchOverQuota.KAFKA else []
    assert told == counted + taken_back
    assert {charge[4] for charge in charges} == {ApiKey.SHARE_FETCH}
    assert (len(got) < len(frame)) == (mode is FetchOverQuota.KAFKA), "a broker empties it for its time as well"
    assert nanos_to_percentage(COSTS.other.request_nanos) > 0.01


def test_a_shadow_is_measured_and_nothing_else() -> None:
    who = pair(FetchOverQuota.KAFKA, mode=Mode.SHADOW)
    whole, frame = share_fetch(1, 2), answer(1, 2)
    assert who.send(whole) == whole
    assert who.answer(frame) == frame
    assert who.session.state.mute is None
    buckets = who.broker.manager(QuotaType.FETCH, Mode.SHADOW).buckets(who.now_ms)
    assert [state.measured for state in buckets] == [(len(frame) - 5) / 2]


def test_a_client_that_gets_errors_is_refused_while_it_is_over() -> None:
    who = pair(on_violation=OnViolation.ERROR)
    who.send(share_fetch(1, 2))
    frame = answer(1, 2)
    assert who.answer(frame)[13:] == frame[13:]
    before = len(who.client)
    assert who.send(share_fetch(2, 2)) == b""
    message: Any = kio_samples.decoded_response(who.client[before:], ApiKey.SHARE_FETCH, 2)
    assert message.error_code == ErrorCode.throttling_quota_exceeded
    assert message.throttle_time > dt.timedelta(seconds=1)
    assert fetched(who)[0][0] == (len(frame) - 5) / 2


def test_it_shares_its_bucket_with_fetches() -> None:
    who = Pair(quotas={QuotaType.FETCH: 1e6})
    who.send(share_fetch(1, 2))
    frame = answer(1, 2)
    who.answer(frame)
    who.exchange(fetch(3, version=11), fetch_response(3, version=11, size=1004))
    assert fetched(who) == [((len(frame) - 5 + 1000) / 2, 0)]


def test_the_response_is_held_back_where_that_is_wanted() -> None:
    who = pair(throttle_style=ThrottleStyle.DELAY)
    who.send(share_fetch(1, 2))
    frame = answer(1, 2)
    assert who.answer(frame) == b""
    assert who.session.state.mute is not None
    who.advance(who.session.state.mute.until_ms - who.now_ms)
    assert who.client[13:] == frame[13:]
    assert throttle_of(who.client, 9) > 0, "share consumers don't wait by themselves"


@pytest.mark.parametrize("mode", MODES)
def test_an_acknowledgement_costs_its_time_alone(mode: FetchOverQuota) -> None:
    charges: list[Charge] = []
    limits = {QuotaType.FETCH: 1.0, QuotaType.REQUEST: 0.01}
    who = Pair(quotas=limits, fetch_over_quota=mode, on_charge=charges.append)
    message = kio_samples.filled_request(79, 2)
    who.send(kio_samples.request_frame(message, client_id=CLIENT_ID, correlation_id=1))
    who.answer(kio_samples.response_frame(kio_samples.empty_response(79, 2), correlation_id=1))
    assert [charge[3:6] for charge in charges] == [(QuotaType.REQUEST, 79, 1.0)]
    assert throttle_of(who.client, 9) == 1000
    assert who.session.state.mute is not None
