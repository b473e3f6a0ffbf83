"""The wire layer on what real brokers answer: the table knows what they serve, and our patches keep the rest."""

import dataclasses
import socket

import pytest
from kio.index import load_request_schema
from tests.support.brokers.servers import Kafka
from tests.support.frames import kio_samples
from tests.support.frames.api_places import broker_addresses

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.proxying.api_versions import (
    clamp,
    is_unsupported_version_answer,
    unsupported_version_answer,
)
from kafka_quotas.wire.proxying.broker_addresses import rewrite_addresses
from kafka_quotas.wire.proxying.throttle_time import patch_throttle

METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER
TIMEOUT_S = 240.0
INTERNAL = {52, 53, 54, 55, 56, 58, 59, 62, 63, 67, 70, 73, 82}
"""APIs between brokers and controllers, which a broker may list though no client uses them."""


@pytest.fixture(params=["kafka3", "kafka4_cluster"])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    return request.getfixturevalue(request.param)


def answer(kafka: Kafka, frame: bytes) -> bytes:
    """Return the whole response frame of the first broker."""
    host, _, port = kafka.bootstrap.split(",")[0].rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection,
        connection.makefile("rb") as stream,
    ):
        connection.sendall(frame)
        length = stream.read(4)
        return length + stream.read(int.from_bytes(length, "big"))


def request(api_key: int, version: int, **fields: object) -> bytes:
    message = kio_samples.filled_request(api_key, version)
    known = {field.name for field in dataclasses.fields(load_request_schema(api_key, version))}
    chosen = {name: value for name, value in fields.items() if name in known}
    return kio_samples.request_frame(dataclasses.replace(message, **chosen), client_id="wire-test")


def versions_request(version: int) -> bytes:
    return request(ApiKey.API_VERSIONS, version, client_software_name="kafka-quotas", client_software_version="1.0")


def served(kafka: Kafka) -> dict[int, range]:
    decoded = kio_samples.decoded_response(answer(kafka, versions_request(0)), ApiKey.API_VERSIONS, 0)
    return {entry.api_key: range(entry.min_version, entry.max_version + 1) for entry in decoded.api_keys}


def moved(node_id: int, _host: str, _port: int) -> tuple[str, int]:
    return "somewhere.else.example", 40_000 + node_id


def test_the_table_knows_all_that_the_broker_serves(kafka: Kafka):
    for key, versions in served(kafka).items():
        assert key in API_TABLE
        if key not in INTERNAL:
            assert versions[-1] <= API_TABLE[key].max_version, API_TABLE[key].name
            assert versions[0] >= API_TABLE[key].min_version, API_TABLE[key].name


@pytest.mark.parametrize("version", range(API_TABLE[ApiKey.API_VERSIONS].max_version + 1))
def test_every_version_of_api_versions_is_clamped(kafka: Kafka, version: int):
    if version not in served(kafka)[ApiKey.API_VERSIONS]:
        expected = unsupported_version_answer(77)
        frame = answer(kafka, versions_request(version))
        assert is_unsupported_version_answer(frame, 8, len(frame))
        assert len(frame) == len(expected)
        return
    frame = answer(kafka, versions_request(version))
    before = kio_samples.decoded_response(frame, ApiKey.API_VERSIONS, version)
    after = kio_samples.decoded_response(clamp(frame, version), ApiKey.API_VERSIONS, version)
    for_clients = [entry for entry in before.api_keys if not API_TABLE[entry.api_key].is_internal]
    assert [entry.api_key for entry in after.api_keys] == [entry.api_key for entry in for_clients]
    for old, new in zip(for_clients, after.api_keys, strict=True):
        assert new.max_version == min(old.max_version, API_TABLE[old.api_key].max_version)
    assert dataclasses.replace(after, api_keys=before.api_keys) == before


def test_our_answer_to_an_unknown_version_is_the_brokers(kafka: Kafka):
    frame = answer(kafka, bytes.fromhex("00000011 0012 0063 0000004d 0001 61 00 02 61 02 62 00"))
    ours = unsupported_version_answer(77)
    newest = served(kafka)[ApiKey.API_VERSIONS][-1]
    assert frame == ours[:-2] + newest.to_bytes(2, "big")


@pytest.mark.parametrize(
    ("api_key", "fields"),
    [
        (METADATA, {"topics": ()}),
        (DESCRIBE_CLUSTER, {"endpoint_type": 1, "include_fenced_brokers": False}),
        (FIND_COORDINATOR, {"key": "group", "coordinator_keys": ("group", "other"), "key_type": 0}),
    ],
)
def test_addresses_and_throttle_times_of_every_version_served(kafka: Kafka, api_key: int, fields: dict[str, object]):
    versions = [version for version in served(kafka)[api_key] if API_TABLE[api_key].handles(version)]
    assert versions
    for version in versions:
        frame = answer(kafka, request(api_key, version, **fields))
        before = kio_samples.decoded_response(frame, api_key, version)
        if api_key != FIND_COORDINATOR:
            named = {f"{broker.host}:{broker.port}" for broker in broker_addresses(api_key, version, frame)}
            assert named == set(kafka.bootstrap.split(",")), version
        patched = bytearray(rewrite_addresses(api_key, version, frame, moved))
        expected = kio_samples.with_addresses(before, lambda node, h, p: moved(node, h, p) if node >= 0 else (h, p))
        if patch_throttle(patched, api_key, version, 12_345) is not None:
            expected = kio_samples.with_throttle(expected, 12_345)
        assert kio_samples.decoded_response(bytes(patched), api_key, version) == expected, version
