"""Real clients that say who they are to real brokers, and the daemon between them that has to know it."""

import struct
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.brokers.broker_properties import USERS
from tests.support.brokers.fake_broker import connected, is_closed, receive_frame
from tests.support.brokers.servers import Kafka
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota
from tests.support.frames.enforcement import framed, request

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.wire.protocol.api_table import ErrorCode

TIMEOUT_S = 240.0
ILLEGAL_SASL_STATE = ErrorCode.ILLEGAL_SASL_STATE
QUOTA = 20_000.0
WINDOW = ["--quota-window-num", "2", "--quota-window-size-seconds", "1"]
PLAIN_ALICE = b"\0alice\0" + USERS["alice"].encode()
PLAIN_BOB = b"\0bob\0" + USERS["bob"].encode()


def throttled_user(daemon: DaemonProcess, topic: str, properties: dict[str, object]) -> str:
    """The user by whose quota a producer with these properties was held."""
    producer = Producer({"bootstrap.servers": daemon.bootstrap, "acks": "1", **properties})
    for _ in range(20):
        producer.produce(topic, bytes(10_000))
    status = daemon.wait_until(lambda status: producer.poll(0) >= 0 and bool(status.throttles), timeout_s=TIMEOUT_S)
    producer.purge()
    producer.flush(TIMEOUT_S)
    return status.throttles[0].user


def test_a_bearer_is_the_subject_of_its_token(kafka4: Kafka, tmp_path: Path, unique_name: str) -> None:
    set_quota(tmp_path, Entity.of(user=None), producer_byte_rate=QUOTA)
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": True,
        "sasl.oauthbearer.config": "principal=bearer-of-it",
    }
    with running_daemon(tmp_path, upstream=kafka4.sasl_bootstrap, options=WINDOW) as daemon:
        assert throttled_user(daemon, unique_name, properties) == "bearer-of-it"
        assert daemon.status().counters["unknown_principals"] == 0


def test_a_certificate_is_its_subject_and_brokers_are_reached_by_tls(
    kafka4: Kafka, tmp_path: Path, unique_name: str
) -> None:
    set_quota(tmp_path, Entity.of(user=None), producer_byte_rate=QUOTA)
    made = kafka4.certificates
    config = tmp_path / "listener.properties"
    own = [f"ssl.keystore.location={made / 'server.pem'}", f"ssl.truststore.location={made / 'authority.pem'}"]
    config.write_text(
        "\n".join(
            [
                "security.protocol=SSL\nssl.client.auth=required\nssl.keystore.type=PEM\nssl.truststore.type=PEM",
                *own,
                "ssl.principal.mapping.rules=RULE:^CN=(.*?)$/$1/",
                "upstream.security.protocol=SSL\nupstream.ssl.truststore.type=PEM",
                f"upstream.ssl.truststore.location={made / 'authority.pem'}",
            ]
        )
    )
    client = str(made / "client.pem")
    properties = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(made / "authority.pem"),
        "ssl.certificate.location": client,
        "ssl.key.location": client,
        "ssl.endpoint.identification.algorithm": "none",
    }
    options = [*WINDOW, "--listener-config", str(config)]
    with running_daemon(tmp_path, upstream=kafka4.tls_bootstrap, options=options) as daemon:
        assert throttled_user(daemon, unique_name, properties) == "carol"


def test_a_login_may_be_repeated_with_either_version_of_the_handshake(kafka4: Kafka, tmp_path: Path) -> None:
    options = [*WINDOW, "--principal", "fixed"]
    with running_daemon(tmp_path, upstream=kafka4.sasl_bootstrap, options=options) as daemon:
        for version in (0, 1):
            with connected(daemon.bootstrap) as client:
                handshake(client, version)
                log_in(client, version, PLAIN_ALICE)
                metadata(client)
        assert daemon.status().counters["authentications"] == 2
        with connected(daemon.bootstrap) as client:
            handshake(client, 1)
            log_in(client, 1, PLAIN_ALICE)
            handshake_again(client)
            log_in(client, 1, PLAIN_ALICE)
            metadata(client)
        assert daemon.status().counters["authentications"] == 4


def test_a_refused_login_names_nobody_and_on_a_login_listener_nothing_else_passes(
    kafka4: Kafka, tmp_path: Path
) -> None:
    config = tmp_path / "listener.properties"
    config.write_text("security.protocol=SASL_PLAINTEXT")
    options = ["--listener-config", str(config)]
    with running_daemon(tmp_path, upstream=kafka4.sasl_bootstrap, options=options) as daemon:
        with connected(daemon.bootstrap) as client:
            handshake(client, 1)
            token = PLAIN_BOB + b"-wrong"
            client.sendall(request(36, 0, 2, struct.pack(">i", len(token)) + token))
            (error,) = struct.unpack_from(">h", receive_frame(client), 8)
            assert error == 58
        with connected(daemon.bootstrap) as client:
            client.sendall(request(3, 1, 3, struct.pack(">i", 0)))
            assert is_closed(client)
        daemon.wait_for_log("client closed", "before authentication")
        counters = daemon.status().counters
        assert (counters["authentications"], counters["protocol_errors"]) == (0, 1)


def handshake(client, version: int) -> None:
    client.sendall(request(17, version, 1, struct.pack(">h", 5) + b"PLAIN"))
    assert struct.unpack_from(">ih", receive_frame(client), 4) == (1, 0)


def handshake_again(client) -> None:
    """Wait until a logged-in client's handshake is answered, which takes a broker a second after the login."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        client.sendall(request(17, 1, 1, struct.pack(">h", 5) + b"PLAIN"))
        correlation_id, error = struct.unpack_from(">ih", receive_frame(client), 4)
        assert correlation_id == 1
        if error == 0:
            return
        assert error == ILLEGAL_SASL_STATE
        assert time.monotonic() < deadline_s, "no second login"
        threading.Event().wait(0.1)


def log_in(client, version: int, token: bytes) -> None:
    if version == 0:
        client.sendall(framed(token))
        assert receive_frame(client) == framed(b"")
        return
    client.sendall(request(36, 0, 2, struct.pack(">i", len(token)) + token))
    assert struct.unpack_from(">ih", receive_frame(client), 4) == (2, 0)


def metadata(client) -> None:
    client.sendall(request(3, 1, 3, struct.pack(">i", 0)))
    assert struct.unpack_from(">i", receive_frame(client), 4) == (3,)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_users_of_passwords_are_who_they_logged_in_as(
    kafka4: Kafka, tmp_path: Path, unique_name: str, mechanism: str
) -> None:
    set_quota(tmp_path, Entity.of(user="alice"), producer_byte_rate=QUOTA)
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "sasl.username": "alice",
        "sasl.password": USERS["alice"],
    }
    with running_daemon(tmp_path, upstream=kafka4.sasl_bootstrap, options=WINDOW) as daemon:
        assert throttled_user(daemon, unique_name, properties) == "alice"
