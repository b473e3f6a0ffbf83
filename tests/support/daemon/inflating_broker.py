"""A broker whose responses grow with the requests: `python -m tests.support.daemon.inflating_broker` prints its port.

Each connection is served by a process of its own, so that nobody waits for anybody else here.
"""

import os
import random
import signal
import socket
import struct
import sys
from contextlib import suppress
from functools import lru_cache

from generators import kio_messages
from tests.support.frames.blown_up import Blown, Names, arrays, response_content

UNREAD = 9999
"""An API that nobody knows: the daemon passes its requests and responses on as they are.

The correlation id is 256 times the key of the API whose response is sent, and its version: so a control costs the
broker what the real request does.
"""
MOST_BYTES = 8 * 1024 * 1024


@lru_cache(maxsize=8)
def content(key: int, version: int, size: int, port: int) -> bytes:
    """A response of about this size, after its correlation id."""
    message = kio_messages.response(key, version)
    source = random.Random(key * 1000 + version + size)
    path = source.choice(arrays(message) or [()])
    blown = Blown(api_key=key, version=version, path=path, names=Names.MADE_UP, size=size)
    numbers = {"node_id": 1, "broker_id": 1, "leader_id": 1, "controller_id": 1, "port": port}
    return response_content(blown, correlation_id=0, numbers=numbers)[4:]


def serve(connection: socket.socket, port: int) -> None:
    """Answer every request, of which only the header is looked at."""
    while True:
        head = connection.recv(12, socket.MSG_WAITALL)
        if len(head) < 12:
            return
        length, key, version, correlation_id = struct.unpack(">ihhi", head)
        left = length - 8
        while left > 0:
            piece = connection.recv(min(left, 1 << 20))
            if not piece:
                return
            left -= len(piece)
        if key == UNREAD:
            key, version = divmod(correlation_id, 256)
        size = 0 if length < 1000 else min(length, MOST_BYTES) // 1024 * 1024
        body = content(key, version, size, port)
        connection.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel takes the children that have ended
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    port = server.getsockname()[1]
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    while True:
        connection, _ = server.accept()
        if not os.fork():
            server.close()
            with suppress(OSError):
                serve(connection, port)
            os._exit(0)
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
