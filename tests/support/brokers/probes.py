"""Whether a server answers its own protocol: raw bytes, so that no client library has to be trusted for it."""

import socket
import struct

PROBE_TIMEOUT_S = 10.0
_METADATA_V1 = struct.pack(">hhihi", 3, 1, 7, -1, 0)


def kafka_brokers(address: str) -> int:
    """How many brokers the cluster at host:port says it has.

    Raises `OSError` where nothing answers.
    """
    with _connected(address) as connection, connection.makefile("rb") as answer:
        connection.sendall(struct.pack(">i", len(_METADATA_V1)) + _METADATA_V1)
        header = answer.read(12)
        if len(header) < 12:
            raise ConnectionError("closed")
        _, correlation_id, brokers = struct.unpack(">iii", header)
        return brokers if correlation_id == 7 else 0


def zookeeper_serves(address: str) -> bool:
    """Whether the ZooKeeper server at host:port serves requests.

    Raises `OSError` where nothing answers.
    """
    with _connected(address) as connection, connection.makefile("rb") as answer:
        connection.sendall(b"srvr")
        return b"Mode: standalone" in answer.read()


def accepts_connections(address: str) -> bool:
    """Whether something listens at host:port, for servers whose protocol starts with a handshake.

    Raises `OSError` where nothing does.
    """
    _connected(address).close()
    return True


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PROBE_TIMEOUT_S)
