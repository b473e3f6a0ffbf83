"""What a hostile client may try against its quota or against somebody else's, with real brokers behind the daemon."""

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.brokers.broker_properties import USERS
from tests.support.brokers.fake_broker import TIMEOUT_S, connected, is_closed, receive_frame
from tests.support.brokers.servers import Kafka, kafka_4
from tests.support.daemon.process import running_daemon, set_quota
from tests.support.frames.enforcement import CLIENT_ID, fetch, produce, request
from tests.support.frames.sasl_frames import authenticate, handshake

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.wire.protocol.api_table import ErrorCode

WINDOW = ["--quota-window-num", "2", "--quota-window-size-seconds", "1"]
LIMIT = 10_000.0
REQUESTS = 20
REQUEST_BYTES = 100_000
PATIENCE_S = 3.0
"""How long a client tries: far less than the throttle time of one of its requests, far more than they all need."""
ILLEGAL_SASL_STATE = ErrorCode.ILLEGAL_SASL_STATE


@pytest.fixture(scope="module")
def small_kafka() -> Iterator[Kafka]:
    """A broker with room for few fetch sessions, where nobody authenticates twice."""
    with kafka_4(
        quick_start=True,
        properties={"max.incremental.fetch.session.cache.slots": "8", "connections.max.reauth.ms": "0"},
    ) as kafka:
        yield kafka


def answered(client: socket.socket, api_key_of: dict[int, int], api_key: int) -> int:
    """How many requests of an API were answered within the client's patience, which begins with the first answer."""
    count, until_s = 0, time.monotonic() + TIMEOUT_S
    client.settimeout(0.1)
    data = b""
    while time.monotonic() < until_s and count < REQUESTS:
        try:
            piece = client.recv(65536)
        except TimeoutError:
            continue
        assert piece, "the connection ended"
        data += piece
        while len(data) >= 8 and len(data) >= 4 + int.from_bytes(data[:4], "big"):
            length, correlation_id = struct.unpack_from(">ii", data)
            if api_key_of[correlation_id] == api_key:
                count += 1
                until_s = until_s if count > 1 else time.monotonic() + PATIENCE_S
            data = data[4 + length :]
    return count


def mixed(*, with_fetches: bool) -> tuple[bytes, dict[int, int]]:
    """Produce requests over any quota, with a Fetch in front of each or without, and what each correlation id is."""
    data, apis = b"", {}
    for number in range(1, 2 * REQUESTS, 2):
        if with_fetches:
            data += fetch(number)
            apis[number] = 1
        data += produce(number + 1, size=REQUEST_BYTES)
        apis[number + 1] = 0
    return data, apis


@pytest.mark.parametrize("with_fetches", [True, False])
def test_fetches_in_front_of_produces_free_nobody(kafka4: Kafka, tmp_path: Path, with_fetches: bool) -> None:
    set_quota(tmp_path, Entity.of(client_id=CLIENT_ID), producer_byte_rate=LIMIT)
    data, apis = mixed(with_fetches=with_fetches)
    with (
        running_daemon(tmp_path, upstream=kafka4.bootstrap, options=WINDOW) as daemon,
        connected(daemon.bootstrap) as client,
    ):
        client.settimeout(0.2)
        sent = 0
        while sent < 3 * REQUEST_BYTES:  # until the daemon leaves it unread
            try:
                sent += client.send(data[sent:])
            except TimeoutError:
                break
        assert answered(client, apis, 0) == 1
        assert daemon.status().throttled


@pytest.mark.parametrize("mechanism", ["PLAIN", "GSSAPI"])
def test_a_handshake_in_one_write_with_the_token_loses_no_name(
    small_kafka: Kafka, tmp_path: Path, mechanism: str
) -> None:
    set_quota(tmp_path, Entity.of(user="alice"), producer_byte_rate=LIMIT)
    token = b"\0alice\0" + USERS["alice"].encode()
    with (
        running_daemon(tmp_path, upstream=small_kafka.sasl_bootstrap, options=WINDOW) as daemon,
        connected(daemon.bootstrap) as client,
    ):
        client.sendall(handshake("PLAIN") + authenticate(token) + handshake(mechanism, correlation_id=3))
        errors = [struct.unpack_from(">h", receive_frame(client), 8)[0] for _ in range(3)]
        assert errors == [0, 0, ILLEGAL_SASL_STATE]
        client.sendall(produce(4, size=REQUEST_BYTES) + produce(5))
        status = daemon.wait_until(lambda status: bool(status.throttles))
        assert [row.user for row in status.throttles] == ["alice"]
        assert status.counters["unknown_principals"] == 0


def test_who_does_not_authenticate_uses_up_nobodys_quota(kafka4: Kafka, tmp_path: Path) -> None:
    set_quota(tmp_path, Entity.of(client_id=CLIENT_ID), producer_byte_rate=LIMIT)
    with running_daemon(tmp_path, upstream=kafka4.sasl_bootstrap, options=WINDOW) as daemon:
        for acks in (1, 0, 1, 0):
            with connected(daemon.bootstrap) as client:
                client.sendall(request(18, 0, 1, b"") + produce(2, size=REQUEST_BYTES, acks=acks))
                assert is_closed(client)
        status = daemon.wait_until(lambda status: status.connections == 0)
        assert status.buckets == ()
        assert status.throttles == ()


def test_emptied_fetches_leave_no_sessions_at_the_broker(small_kafka: Kafka, tmp_path: Path, unique_name: str) -> None:
    set_quota(tmp_path, Entity.of(client_id=CLIENT_ID), consumer_byte_rate=1000.0)
    options = [*WINDOW, "--fetch-over-quota", "kafka", "--max-throttle-ms", "20"]
    producer = Producer({"bootstrap.servers": small_kafka.bootstrap})
    producer.produce(unique_name, bytes(50_000))
    assert producer.flush(60) == 0
    with (
        running_daemon(tmp_path, upstream=small_kafka.bootstrap, options=options) as daemon,
        connected(daemon.bootstrap) as client,
    ):
        for number in range(1, 61):
            client.sendall(full_fetch(number, unique_name))
            assert session_of(receive_frame(client)) == 0
    with connected(small_kafka.bootstrap) as direct:
        made = []
        for number in range(1, 9):
            direct.sendall(full_fetch(number, unique_name))
            made.append(session_of(receive_frame(direct)))
    assert any(made), "the broker has no room for another session"


def full_fetch(correlation_id: int, topic: str) -> bytes:
    """A Fetch in version 11 of all that partition 0 of a topic has, which asks for a session."""
    name = topic.encode()
    limits = struct.pack(">iiiibii", -1, 0, 1, 1 << 20, 0, 0, 0)
    partition = struct.pack(">iiqqi", 0, -1, 0, -1, 1 << 20)
    topics = struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", 1) + partition
    return request(1, 11, correlation_id, limits + topics + bytes(4) + bytes(2))


def session_of(answer: bytes) -> int:
    """The fetch session that a response of version 11 names."""
    error, session_id = struct.unpack_from(">hi", answer, 12)
    assert error == 0
    return int(session_id)


def test_kafkas_own_tool_sees_the_quorum_and_not_where_it_is(kafka4: Kafka, tmp_path: Path) -> None:
    def described(bootstrap: str, *what: str) -> str:
        tool = "org.apache.kafka.tools.MetadataQuorumCommand"
        done = kafka4.run_tool(tool, ["--bootstrap-server", bootstrap, "describe", *what])
        assert not done.returncode, done.stderr
        return done.stdout

    with running_daemon(tmp_path, upstream=kafka4.bootstrap, options=WINDOW) as daemon:
        at_the_broker, here = described(kafka4.bootstrap, "--status"), described(daemon.bootstrap, "--status")
        replicas = described(daemon.bootstrap, "--replication")
    assert "CONTROLLER://127.0.0.1:" in at_the_broker, "the tool asks in a version that names controllers"
    assert "127.0.0.1" not in here
    assert "LeaderId:" in here
    assert "Leader" in replicas
