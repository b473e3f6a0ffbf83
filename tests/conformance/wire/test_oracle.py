"""Every API in every version, made by two independent implementations of the protocol, through our patches.

What kio (Kafka 4's versions) or kafka-python (older ones) encoded must, after our patch, decode to the same message
but for the throttle time or the addresses.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.static.constants import EntityType
from tests.support.frames import kafka_python_samples, kio_samples
from tests.support.frames.api_places import NamedBroker, broker_addresses, carries_addresses, has_throttle
from tests.support.frames.lowered_fetch import limits_of, lower_fetch

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import has_header_tags, parse_request_header, response_body_offset
from kafka_quotas.wire.proxying.api_versions import clamp
from kafka_quotas.wire.proxying.broker_addresses import rewrite_addresses
from kafka_quotas.wire.proxying.fetch_request import replica_id
from kafka_quotas.wire.proxying.fetch_response import charged_bytes
from kafka_quotas.wire.proxying.produce import acks
from kafka_quotas.wire.proxying.sasl import (
    authenticate_result,
    authenticate_token,
    handshake_error_code,
    handshake_mechanism,
)
from kafka_quotas.wire.proxying.throttle_time import (
    NEED_MORE,
    patch_throttle,
    throttle_needs_whole,
    throttle_offset,
)

RESPONSES = kio_samples.versions_of(EntityType.response)
REQUESTS = kio_samples.versions_of(EntityType.request)
OLDEST_IN_KIO = dict(reversed(RESPONSES))
OLDER_RESPONSES = kafka_python_samples.older_versions(OLDEST_IN_KIO)
THROTTLE_MS = 123_456_789
ONE_BROKER = {(10, version) for version in range(4)}
"""FindCoordinator answered with one coordinator before it became a list."""


def handled(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(key, version) for key, version in pairs if API_TABLE[key].handles(version)]


def moved(node_id: int, host: str, port: int) -> tuple[str, int]:
    return f"proxy-{node_id}.for.{host}", port + 10_000


def addresses_in(message: object) -> list[NamedBroker]:
    found: list[NamedBroker] = []

    def note(node_id: int, host: str, port: int) -> tuple[str, int]:
        found.append(NamedBroker(node_id=node_id, host=host, port=port))
        return host, port

    kio_samples.with_addresses(message, note)
    return found


def without_controllers(message: Any) -> Any:
    """The same message without the endpoints of controllers, which DescribeQuorum has from version 2."""
    if not any(hasattr(node, "listeners") for node in getattr(message, "nodes", ())):
        return message
    return dataclasses.replace(message, nodes=tuple(dataclasses.replace(node, listeners=()) for node in message.nodes))


def every_version(pairs: list[tuple[int, int]]) -> Callable[[Callable[[int, int], None]], Callable[[int], None]]:
    """Makes one test for each API, which checks all of its versions."""
    by_key: dict[int, list[int]] = {}
    for key, version in pairs:
        by_key.setdefault(key, []).append(version)

    def decorated(check: Callable[[int, int], None]) -> Callable[[int], None]:
        def test(api_key: int) -> None:
            for version in by_key[api_key]:
                check(api_key, version)

        test.__name__ = check.__name__
        return pytest.mark.parametrize("api_key", by_key)(test)

    return decorated


def versions(api_key: int, pairs: list[tuple[int, int]]) -> list[int]:
    return [version for key, version in pairs if key == api_key]


def test_the_table_knows_every_version_that_kio_knows():
    for key, version in RESPONSES:
        api = API_TABLE[key]
        assert api.min_version <= version <= api.max_version, (key, version)
        assert api.handles(version) != api.is_internal, (key, version)


@every_version(RESPONSES)
def test_a_response_header_ends_where_kio_ends_it(api_key: int, version: int):
    flexible = load_response_schema(api_key, version).__header_schema__.__flexible__
    frame = kio_samples.response_frame(kio_samples.filled_response(api_key, version))
    assert has_header_tags(api_key, version) == flexible
    assert response_body_offset(api_key, version, frame) == (9 if flexible else 8)


@every_version(RESPONSES)
def test_the_throttle_time_and_nothing_else_is_patched(api_key: int, version: int):
    for make in (kio_samples.filled_response, kio_samples.empty_response):
        require_patch(make(api_key, version), api_key, version)


def require_patch(message: Any, api_key: int, version: int) -> None:
    frame = kio_samples.response_frame(message)
    patched = bytearray(frame)
    upstream_ms = patch_throttle(patched, api_key, version, THROTTLE_MS)
    if not any(field.name == "throttle_time" for field in dataclasses.fields(message)):
        assert upstream_ms is None
        assert patched == frame
        return
    assert upstream_ms == message.throttle_time.total_seconds() * 1000
    assert kio_samples.decoded_response(bytes(patched), api_key, version) == kio_samples.with_throttle(
        message, THROTTLE_MS
    )
    assert patch_throttle(patched, api_key, version, 1) == THROTTLE_MS, "a larger value stays"


@every_version([pair for pair in handled(RESPONSES) if has_throttle(*pair)])
def test_the_throttle_time_is_found_as_soon_as_its_bytes_are_there(api_key: int, version: int):
    message = kio_samples.filled_response(api_key, version)
    frame = kio_samples.response_frame(message)
    offset = throttle_offset(api_key, version, frame)
    for length in range(offset + 4):
        assert throttle_offset(api_key, version, frame[:length]) == NEED_MORE
    assert throttle_offset(api_key, version, frame[: offset + 4]) == offset
    assert throttle_needs_whole(api_key, version) == (offset > 20)


@every_version([pair for pair in handled(RESPONSES) if has_throttle(*pair) and has_header_tags(*pair)])
def test_tagged_fields_in_the_header_move_the_throttle_time(api_key: int, version: int):
    frame = kio_samples.response_frame(kio_samples.filled_response(api_key, version))
    unknown_tag = bytes.fromhex("01 05 03 aabbcc")
    content = frame[4:8] + unknown_tag + frame[9:]
    moved_frame = bytearray(len(content).to_bytes(4, "big") + content)
    expected = throttle_offset(api_key, version, frame) + len(unknown_tag) - 1
    assert throttle_offset(api_key, version, moved_frame) == expected
    for length in range(expected + 4):
        assert throttle_offset(api_key, version, moved_frame[:length]) == NEED_MORE


@every_version(OLDER_RESPONSES)
def test_older_versions_are_patched_as_kafka_python_has_them(api_key: int, version: int):
    frame = kafka_python_samples.response_frame(kafka_python_samples.filled_response(api_key, version))
    before = kafka_python_samples.decoded_response(frame, api_key, version)
    patched = bytearray(frame)
    upstream_ms = patch_throttle(patched, api_key, version, THROTTLE_MS)
    assert upstream_ms == before.get("throttle_time_ms")
    after = kafka_python_samples.decoded_response(bytes(patched), api_key, version)
    assert after == before | ({} if upstream_ms is None else {"throttle_time_ms": THROTTLE_MS})


@every_version(handled(RESPONSES))
def test_addresses_and_nothing_else_are_rewritten(api_key: int, version: int):
    message = kio_samples.filled_response(api_key, version)
    frame = kio_samples.response_frame(message)
    rewritten = rewrite_addresses(api_key, version, frame, moved)
    decoded = kio_samples.decoded_response(rewritten, api_key, version)
    expected = without_controllers(kio_samples.with_addresses(message, moved))
    assert decoded == expected
    assert carries_addresses(api_key, version) == (expected != message), "no address goes unnoticed"
    assert list(broker_addresses(api_key, version, frame)) == addresses_in(message)
    unmoved = rewrite_addresses(api_key, version, frame, lambda _, host, port: (host, port))
    assert kio_samples.decoded_response(unmoved, api_key, version) == without_controllers(message)
    assert unmoved == frame or without_controllers(message) != message


@every_version([pair for pair in handled(RESPONSES) if carries_addresses(*pair) and pair not in ONE_BROKER])
def test_responses_without_brokers_stay_as_they_are(api_key: int, version: int):
    frame = kio_samples.response_frame(kio_samples.empty_response(api_key, version))
    assert rewrite_addresses(api_key, version, frame, moved) == frame
    assert not broker_addresses(api_key, version, frame)


@every_version(REQUESTS)
def test_a_request_header_is_what_kio_wrote(api_key: int, version: int):
    message = kio_samples.filled_request(api_key, version)
    for client_id in ("app-1", "", None, "größe"):
        frame = kio_samples.request_frame(message, client_id=client_id)
        body = kio_samples.header_bytes(message, client_id)
        header = parse_request_header(frame)
        assert header is not None
        assert header[:5] == (api_key, version, 77, client_id or "", body)
        assert header.frame_end == len(frame)
        assert parse_request_header(b"\x00" * 7 + frame, 7) == header._replace(start=7, end=body + 7)
        assert [parse_request_header(frame[:length]) for length in range(body)] == [None] * body


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE, REQUESTS))
@pytest.mark.parametrize("wanted", [-1, 0, 1])
@pytest.mark.parametrize("transactional_id", [None, "", "payments", "x" * 300])
def test_acks_are_what_kio_wrote(version: int, wanted: int, transactional_id: str | None):
    message = dataclasses.replace(
        kio_samples.filled_request(ApiKey.PRODUCE, version), acks=wanted, transactional_id=transactional_id
    )
    frame = kio_samples.request_frame(message, client_id="app")
    header = parse_request_header(frame)
    assert acks(frame, header) == wanted
    answers = [acks(frame[:length], header) for length in range(header.end, len(frame))]
    assert set(answers[:2]) == {None}
    assert answers == sorted(answers, key=lambda answer: answer is not None), "once known, known for good"
    assert set(answers) == {None, wanted}


@pytest.mark.parametrize("version", versions(ApiKey.FETCH, REQUESTS))
@pytest.mark.parametrize(
    ("cap", "min_after", "max_after"), [(5_000, 1_000, 5_000), (50, 50, 50), (10**6, 1_000, 8_000)]
)
def test_a_fetch_is_capped_and_nothing_else_changes(version: int, cap: int, min_after: int, max_after: int):
    message = dataclasses.replace(kio_samples.filled_request(ApiKey.FETCH, version), min_bytes=1_000, max_bytes=8_000)
    frame = bytearray(kio_samples.request_frame(message, client_id="app"))
    header = parse_request_header(frame)
    assert lower_fetch(frame, header, cap) == (1_000, 8_000)
    expected = dataclasses.replace(message, min_bytes=min_after, max_bytes=max_after)
    assert frame == kio_samples.request_frame(expected, client_id="app")
    head = header.end + (16 if version < 15 else 12)
    assert limits_of(frame[: head - 1], header) is None
    assert limits_of(frame[:head], header) == (min_after, max_after)


@pytest.mark.parametrize("version", versions(ApiKey.FETCH, REQUESTS))
@pytest.mark.parametrize("claimed", [-1, 0, 3])
def test_the_replica_that_fetches_is_found(version: int, claimed: int):
    message = kio_samples.filled_request(ApiKey.FETCH, version)
    if version >= 15:
        state = dataclasses.replace(message.replica_state, replica_id=claimed, replica_epoch=-1)
        message = dataclasses.replace(message, replica_state=state)
    else:
        message = dataclasses.replace(message, replica_id=claimed)
    frame = kio_samples.request_frame(message, client_id="app")
    header = parse_request_header(frame)
    assert replica_id(frame, header) == claimed
    assert replica_id(frame[: header.end + 3], header) is None


@pytest.mark.parametrize("version", versions(ApiKey.FETCH, RESPONSES))
def test_a_fetch_is_charged_with_four_bytes_and_its_body(version: int):
    frame = kio_samples.response_frame(kio_samples.filled_response(ApiKey.FETCH, version))
    body_bytes = len(frame) - response_body_offset(ApiKey.FETCH, version, frame)
    assert charged_bytes(ApiKey.FETCH, version, frame, 0, len(frame) - 4) == 4 + body_bytes


@pytest.mark.parametrize("version", versions(ApiKey.API_VERSIONS, RESPONSES))
def test_api_versions_are_clamped_and_nothing_else_changes(version: int):
    message = kio_samples.filled_response(ApiKey.API_VERSIONS, version)
    message = dataclasses.replace(message, error_code=type(message.error_code)(0))
    fetch_max = API_TABLE[ApiKey.FETCH].max_version
    kept, lowered, unknown = (
        dataclasses.replace(entry, api_key=key, min_version=lowest, max_version=highest)
        for entry, (key, lowest, highest) in zip(
            message.api_keys, [(0, 3, 12), (1, 4, fetch_max + 2), (10_001, 7, 9)], strict=True
        )
    )
    too_new = dataclasses.replace(kept, api_key=1, min_version=fetch_max + 1, max_version=fetch_max + 2)
    frame = kio_samples.response_frame(dataclasses.replace(message, api_keys=(kept, too_new, lowered, unknown)))
    expected = dataclasses.replace(
        message, api_keys=(kept, dataclasses.replace(lowered, max_version=fetch_max), unknown)
    )
    clamped = clamp(frame, version)
    assert kio_samples.decoded_response(clamped, ApiKey.API_VERSIONS, version) == expected
    assert clamp(clamped, version) == clamped


@pytest.mark.parametrize("version", versions(ApiKey.SASL_HANDSHAKE, REQUESTS))
def test_the_handshake_is_read(version: int):
    request = dataclasses.replace(kio_samples.filled_request(ApiKey.SASL_HANDSHAKE, version), mechanism="SCRAM-SHA-512")
    frame = kio_samples.request_frame(request, client_id="app")
    assert handshake_mechanism(frame, parse_request_header(frame)) == "SCRAM-SHA-512"
    response = kio_samples.filled_response(ApiKey.SASL_HANDSHAKE, version)
    assert handshake_error_code(kio_samples.response_frame(response), version) == response.error_code


@pytest.mark.parametrize("version", versions(ApiKey.SASL_AUTHENTICATE, REQUESTS))
@pytest.mark.parametrize("token", [b"", b"\x00alice\x00secret", bytes(300)])
def test_tokens_and_their_answers_are_read(version: int, token: bytes):
    request = dataclasses.replace(kio_samples.filled_request(ApiKey.SASL_AUTHENTICATE, version), auth_bytes=token)
    frame = kio_samples.request_frame(request, client_id=None)
    assert authenticate_token(frame, parse_request_header(frame)) == token
    response = dataclasses.replace(kio_samples.filled_response(ApiKey.SASL_AUTHENTICATE, version), auth_bytes=token)
    assert authenticate_result(kio_samples.response_frame(response), version) == (response.error_code, token)


def test_requests_become_flexible_as_kio_says():
    for api_key, version in REQUESTS:
        flexible = load_request_schema(api_key, version).__header_schema__.__flexible__
        assert (version >= API_TABLE[api_key].flexible_since) == flexible, (api_key, version)
