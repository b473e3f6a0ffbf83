"""Requests that pass a daemon as they are, and a broker whose clients can be throttled."""

import socket
import struct

from tests.support.brokers.fake_broker import receive_frame
from tests.support.frames.enforcement import framed, produce_response, request

PING = request(12, 1, 77, b"ping")
"""A heartbeat: passes both ways as it is."""


def ping(sock: socket.socket) -> None:
    """Nothing; a request went through and its answer came back."""
    sock.sendall(PING)
    assert receive_frame(sock) == framed(struct.pack(">i", 77))


def throttling_broker(connection: socket.socket) -> None:
    """Nothing; every Produce got the answer of a broker, until the connection ended."""
    while True:
        frame = receive_frame(connection)
        connection.sendall(produce_response(struct.unpack(">i", frame[8:12])[0]))
