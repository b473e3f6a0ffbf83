"""TLS at the daemon: towards clients and brokers, who a certificate stands for, and certificates that are renewed."""

import hashlib
import random
import shutil
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.brokers.certificates import make_certificates
from tests.support.brokers.fake_broker import (
    TIMEOUT_S,
    FakeBroker,
    connected,
    fake_broker,
    is_closed,
    receive_frame,
)
from tests.support.daemon.pinged import PING, ping
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota, without
from tests.support.frames.enforcement import framed, produce, produce_response, request, throttle_of

from kafka_quotas.core.model.entity import Entity

REQUESTS = 20


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@pytest.fixture
def certificates(made: Path, tmp_path: Path) -> Path:
    """A copy, for tests that change them."""
    return Path(shutil.copytree(made, tmp_path / "certificates"))


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_broker(throttling) as running:
        yield running


def throttling(connection: socket.socket) -> None:
    """Answers Produce as a broker does, all else with nothing."""
    while True:
        frame = receive_frame(connection)
        key, correlation_id = struct.unpack(">h", frame[4:6])[0], struct.unpack(">i", frame[8:12])[0]
        connection.sendall(produce_response(correlation_id) if key == 0 else framed(frame[8:12]))


def listener_file(folder: Path, certificates: Path, *lines: str) -> Path:
    path = folder / "listener.properties"
    path.write_text(
        "\n".join(
            (
                "security.protocol=SSL",
                "ssl.keystore.type=PEM",
                f"ssl.keystore.location={certificates / 'server.pem'}",
                "ssl.truststore.type=PEM",
                f"ssl.truststore.location={certificates / 'authority.pem'}",
                *lines,
            )
        )
    )
    return path


@contextmanager
def tls_client(daemon: DaemonProcess, certificates: Path, *, own: str | None = None) -> Iterator[ssl.SSLSocket]:
    context = ssl.create_default_context(cafile=str(certificates / "authority.pem"))
    if own is not None:
        context.load_cert_chain(certificates / own)
    with connected(daemon.bootstrap) as plain, context.wrap_socket(plain, server_hostname="localhost") as sock:
        sock.settimeout(TIMEOUT_S)
        yield sock


@pytest.mark.parametrize(
    ("rules", "user"),
    [("DEFAULT", "CN=carol"), ("RULE:^CN=(.*?)$/$1/U", "CAROL"), ("RULE:^OU=(.*?)$/$1/", "UNKNOWN")],
    ids=["as it is", "mapped", "no rule"],
)
def test_a_quota_holds_for_the_user_in_a_certificate(
    broker: FakeBroker, certificates: Path, tmp_path: Path, rules: str, user: str
) -> None:
    set_quota(tmp_path, Entity.of(user=user), producer_byte_rate=1000.0)
    config = listener_file(tmp_path, certificates, "ssl.client.auth=required", f"ssl.principal.mapping.rules={rules}")
    options = ["--listener-config", str(config)]
    with running_daemon(tmp_path, upstream=broker.address, options=options) as daemon:
        with tls_client(daemon, certificates, own="client.pem") as client:
            client.sendall(produce(1, size=50_000))
            assert throttle_of(receive_frame(client), -4) > 0
            assert [row.user for row in daemon.wait_until(lambda status: bool(status.throttled)).throttled] == [user]
        assert daemon.status().counters["unknown_principals"] == (user == "UNKNOWN")


def test_who_needs_a_certificate_and_has_none_is_refused_and_it_is_said(
    broker: FakeBroker, certificates: Path, tmp_path: Path
) -> None:
    options = ["--listener-config", str(listener_file(tmp_path, certificates, "ssl.client.auth=required"))]
    with running_daemon(tmp_path, upstream=broker.address, options=options) as daemon:
        with connected(daemon.bootstrap) as plain:
            plain.sendall(PING)
            assert is_closed(plain)
        daemon.wait_for_log("client closed: TLS failed")
        with (  # under TLS 1.3 a client learns it by its first read
            pytest.raises((ssl.SSLError, ConnectionError)),
            tls_client(daemon, certificates) as client,
        ):
            ping(client)
        daemon.wait_for_log("client closed: TLS failed", count=2)
        with tls_client(daemon, certificates, own="client.pem") as client:
            ping(client)


def test_a_renewed_certificate_is_served_without_a_restart_and_a_broken_one_is_not(
    broker: FakeBroker, certificates: Path, tmp_path: Path
) -> None:
    config = listener_file(tmp_path, certificates, "ssl.client.auth=requested")
    with (
        running_daemon(tmp_path, upstream=broker.address, options=["--listener-config", str(config)]) as daemon,
        tls_client(daemon, certificates) as early,
    ):
        first = early.getpeercert(binary_form=True)
        renewed = tmp_path / "renewed"
        renewed.mkdir()
        make_certificates(renewed)
        for name in ("authority.pem", "server.pem", "client.pem"):
            shutil.copy(renewed / name, certificates / f"{name}.new")
            (certificates / f"{name}.new").replace(certificates / name)
        wait_for_renewal(daemon, "certificates read again")
        with tls_client(daemon, certificates, own="client.pem") as late:
            assert late.getpeercert(binary_form=True) != first
            ping(late)
        (certificates / "server.pem").write_text("no certificate")
        wait_for_renewal(daemon, "changed certificates can't be used")
        with tls_client(daemon, certificates) as after:
            ping(after)
        ping(early)


def wait_for_renewal(daemon: DaemonProcess, event: str) -> None:
    """Wait until the daemon has looked at its files, which it does once a second, when connections come."""
    for _ in range(60):
        with connected(daemon.bootstrap):
            pass
        try:
            daemon.wait_for_log(event, timeout_s=0.5)
        except AssertionError:
            continue
        return
    raise AssertionError(f"never said: {event}")


def serve_tls(certificates: Path, *, demands: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem")
    if demands:
        context.load_verify_locations(certificates / "authority.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_tls_towards_brokers_with_a_certificate_of_our_own(certificates: Path, tmp_path: Path) -> None:
    context = serve_tls(certificates, demands=True)

    def handler(connection: socket.socket) -> None:
        connection.settimeout(TIMEOUT_S)
        with context.wrap_socket(connection, server_side=True) as secure:
            throttling(secure)

    trusted = f"upstream.ssl.truststore.type=PEM\nupstream.ssl.truststore.location={certificates / 'authority.pem'}\n"
    own = f"upstream.ssl.keystore.type=PEM\nupstream.ssl.keystore.location={certificates / 'client.pem'}\n"
    config = tmp_path / "upstream.properties"
    config.write_text("upstream.security.protocol=SSL\n" + trusted + own)
    options = ["--listener-config", str(config)]
    with fake_broker(handler) as broker:
        with (
            running_daemon(tmp_path, upstream=broker.address, options=options) as daemon,
            connected(daemon.bootstrap) as client,
        ):
            for _ in range(3):
                ping(client)
        config.write_text("upstream.security.protocol=SSL\n" + trusted.replace("authority", "stranger"))
        with running_daemon(tmp_path, upstream=broker.address, options=options) as daemon:
            with connected(daemon.bootstrap) as client:
                client.sendall(PING)
                assert is_closed(client)
            daemon.wait_for_log("upstream can't be connected", "certificate")


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_bulk_data_passes_by_tls_on_both_sides(certificates: Path, tmp_path: Path, loop: str) -> None:
    context = serve_tls(certificates, demands=False)
    received = hashlib.sha256()

    def handler(connection: socket.socket) -> None:
        connection.settimeout(TIMEOUT_S)
        with context.wrap_socket(connection, server_side=True) as secure:
            for _ in range(REQUESTS):
                frame = receive_frame(secure)
                received.update(frame)
                secure.sendall(framed(frame[8:12] + frame[20:]))  # as much comes back

    config = listener_file(
        tmp_path,
        certificates,
        "upstream.security.protocol=SSL",
        "upstream.ssl.truststore.type=PEM",
        f"upstream.ssl.truststore.location={certificates / 'authority.pem'}",
    )
    environment = without("uvloop", tmp_path) if loop == "asyncio" else None
    options = ["--listener-config", str(config)]
    frames = [request(12, 1, number, random.Random(number).randbytes(700_000)) for number in range(REQUESTS)]
    with (
        fake_broker(handler) as broker,
        running_daemon(tmp_path, upstream=broker.address, options=options, environment=environment) as daemon,
        tls_client(daemon, certificates) as client,
    ):
        assert daemon.status().event_loop == loop
        for frame in frames:
            client.sendall(frame)
            assert receive_frame(client) == framed(frame[8:12] + frame[20:])
    assert received.digest() == hashlib.sha256(b"".join(frames)).digest()


def test_a_broker_certificate_for_another_host_is_refused(certificates: Path, tmp_path: Path) -> None:
    context = serve_tls(certificates, demands=False)

    def handler(connection: socket.socket) -> None:
        connection.settimeout(TIMEOUT_S)
        with context.wrap_socket(connection, server_side=True) as secure:
            throttling(secure)

    config = tmp_path / "upstream.properties"
    lines = [
        "upstream.security.protocol=SSL",
        "upstream.ssl.truststore.type=PEM",
        f"upstream.ssl.truststore.location={certificates / 'authority.pem'}",
    ]
    config.write_text("\n".join(lines))
    options = ["--listener-config", str(config)]
    with fake_broker(handler, host="127.0.0.2") as broker:
        with running_daemon(tmp_path, upstream=broker.address, options=options) as daemon:
            with connected(daemon.bootstrap) as client:
                client.sendall(PING)
                assert is_closed(client)
            daemon.wait_for_log("upstream can't be connected", "127.0.0.2")
        config.write_text("\n".join([*lines, "upstream.ssl.endpoint.identification.algorithm="]))
        with (
            running_daemon(tmp_path, upstream=broker.address, options=options) as daemon,
            connected(daemon.bootstrap) as client,
        ):
            ping(client)
