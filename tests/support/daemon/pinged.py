"""Requests that pass a daemon as they are, and a broker whose clients can be throttled."""

import socket
import struct

from tests.support.brokers.fake_broker import receive_frame
from tests.support.frames.enforcement import framed, produce_response, request

PING = request(12, 1, 77, b"ping")
"""A heartbeat: passes both ways as it is."""


def ping(sock: socket.socket) -> None:
    """Send a request, and receive its answer."""
    sock.sendall(PING)
    assert receive_frame(sock) == framed(struct.pack(">i", 77))


def throttling_broker(connection: socket.socket) -> None:
    """Answer every Produce as a broker does, until the connection ends."""
    while True:
        frame = receive_frame(connection)
        connection.sendall(produce_response(struct.unpack(">i", frame[8:12])[0]))
