"""Requests that pass a daemon as they are, and a broker whose clients can be throttled.

`python -m tests.support.daemon.pinged HOST:PORT` is an honest client: it prints when each of its requests was answered.
"""

import socket
import struct
import sys
import time

from tests.support.brokers.fake_broker import connected, receive_frame
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


PAUSE_S = 0.01
"""Time between two requests of the honest client, which sends none before the last one is answered."""


def main(address: str) -> None:
    with connected(address) as sock:
        due = time.monotonic()
        while True:
            sock.sendall(PING)
            receive_frame(sock)
            now = time.monotonic()
            sys.stdout.write(f"{now}\n")
            sys.stdout.flush()
            due = max(due + PAUSE_S, now)
            time.sleep(due - now)


if __name__ == "__main__":
    main(sys.argv[1])
