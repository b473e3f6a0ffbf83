"""Connections that ask a broker a few small things and end in one of the ways in which connections end."""

import random
import socket
import struct
from contextlib import suppress

from tests.support.brokers.fake_broker import TIMEOUT_S, receive_frame
from tests.support.frames.enforcement import fetch, request

ENDINGS = ("close", "reset", "cut", "half-closed", "unanswered")
CLIENT_IDS = 200
_RESET = struct.pack("ii", 1, 0)


def api_versions(correlation_id: int, client_id: str) -> bytes:
    """An ApiVersions request of version 0."""
    return request(18, 0, correlation_id, b"", client_id=client_id)


def empty_produce(correlation_id: int, client_id: str) -> bytes:
    """A Produce request for no topic, which any broker answers."""
    return request(0, 7, correlation_id, b"\xff\xff" + struct.pack(">hii", 1, 30_000, 0), client_id=client_id)


def one_connection(address: str, chance: random.Random) -> str:
    """Open a connection, send some requests, and end it.

    Returns:
        how it ended, one of `ENDINGS`.

    Raises:
        OSError: an answer did not come.
    """
    host, _, port = address.rpartition(":")
    client_id = f"short-{chance.randrange(CLIENT_IDS)}"
    ending = chance.choice(ENDINGS)
    with socket.create_connection((host, int(port)), TIMEOUT_S) as sock:
        for number in range(chance.randrange(1, 4)):
            make = chance.choice((api_versions, empty_produce))
            sock.sendall(make(number, client_id))
            receive_frame(sock)
        asked = fetch(9, client_id=client_id) + empty_produce(10, client_id)
        if ending == "reset":
            sock.sendall(asked)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        elif ending == "cut":
            sock.sendall(asked[: chance.randrange(1, len(asked))])
        elif ending == "half-closed":
            sock.sendall(api_versions(11, client_id))
            sock.shutdown(socket.SHUT_WR)
            with suppress(ConnectionError):  # a broker may close at once
                receive_frame(sock)
        elif ending == "unanswered":
            sock.sendall(asked)
    return ending
