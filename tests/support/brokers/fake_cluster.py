"""Brokers that tell, in Metadata, who belongs to their cluster, and answer all else as brokers do."""

import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.support.brokers.fake_broker import TIMEOUT_S, FakeBroker, connected, fake_broker, receive_frame
from tests.support.frames.enforcement import framed, produce_response, request

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.enforcement.config.address import parse_address

METADATA, VERSION = ApiKey.METADATA, 1


class FakeCluster:
    """The brokers by node id.

    `addresses` is what Metadata says, and may be changed.
    """

    def __init__(self) -> None:
        self.brokers: dict[int, FakeBroker] = {}
        self.addresses: dict[int, tuple[str, int]] = {}
        self.served: list[int] = []
        """The node ids in the order of the connections they got."""

    def handle(self, node_id: int, connection: socket.socket) -> None:
        """Answer every request of a connection. Bodies of other APIs are the node's id."""
        self.served.append(node_id)
        with suppress(ConnectionError):
            while True:
                frame = receive_frame(connection)
                key, correlation_id = struct.unpack(">h", frame[4:6])[0], struct.unpack(">i", frame[8:12])[0]
                if key == METADATA:
                    connection.sendall(framed(frame[8:12] + self._metadata()))
                elif key == 0:
                    connection.sendall(produce_response(correlation_id))
                else:
                    connection.sendall(framed(frame[8:12] + struct.pack(">i", node_id)))

    def _metadata(self) -> bytes:
        brokers = b"".join(
            struct.pack(">ih", node_id, len(host)) + host.encode() + struct.pack(">ih", port, -1)
            for node_id, (host, port) in self.addresses.items()
        )
        return struct.pack(">i", len(self.addresses)) + brokers + struct.pack(">ii", 1, 0)


@contextmanager
def fake_cluster(node_ids: range) -> Iterator[FakeCluster]:
    """A cluster of brokers on 127.0.0.1."""
    cluster = FakeCluster()
    with ExitStack() as stack:
        for node_id in node_ids:
            broker = stack.enter_context(fake_broker(lambda sock, node_id=node_id: cluster.handle(node_id, sock)))
            cluster.brokers[node_id] = broker
            cluster.addresses[node_id] = ("127.0.0.1", broker.port)
        yield cluster


def brokers_told(address: str, *, sock: socket.socket | None = None) -> Mapping[int, str]:
    """HOST:PORT by node id, as Metadata tells it at an address, or on a connection."""
    if sock is None:
        with connected(address) as own:
            return brokers_told(address, sock=own)
    sock.sendall(request(METADATA, VERSION, 5, struct.pack(">i", 0)))
    body = receive_frame(sock)[8:]
    (count,), offset = struct.unpack_from(">i", body), 4
    told = {}
    for _ in range(count):
        node_id, size = struct.unpack_from(">ih", body, offset)
        host = body[offset + 6 : offset + 6 + size].decode()
        (port,) = struct.unpack_from(">i", body, offset + 6 + size)
        told[node_id] = f"{host}:{port}"
        offset += 12 + size
    return told


def node_at(sock: socket.socket) -> int:
    """The node that answers on a connection."""
    sock.sendall(request(12, 1, 9, b""))
    (node_id,) = struct.unpack(">i", receive_frame(sock)[8:])
    return int(node_id)


def named_client(address: str, folder: Path, host: str) -> ssl.SSLSocket:
    """A TLS connection to an address on which the broker of a host name is asked for.

    `folder` has the authority.
    """
    context = ssl.create_default_context(cafile=str(folder / "authority.pem"))
    context.check_hostname = False
    place = parse_address(address)
    plain = socket.create_connection((place.host, place.port), TIMEOUT_S)
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except OSError:
        plain.close()
        raise
