"""A client that sends kafka-python's messages in whatever version it is told, one at a time and in the clear."""

import itertools
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.brokers.fake_broker import receive_frame
from tests.support.brokers.topic_broker import frame_of, request_of, response_in

TIMEOUT_S = 240.0


class WireClient:
    """One connection to `address` (host:port, the first where there are several)."""

    def __init__(self, address: str, *, client_id: str) -> None:
        host, _, port = address.split(",", maxsplit=1)[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._client_id = client_id
        self._numbers = itertools.count(1)

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """The response to a request."""
        request = request_of(api_key, version, **fields)
        frame = frame_of(request, next(self._numbers), client_id=self._client_id)
        return response_in(self.exchange(frame), api_key, version)

    def exchange(self, frame: bytes) -> bytes:
        """The frame that answers a frame."""
        self._socket.sendall(frame)
        return receive_frame(self._socket)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def wire_client(address: str, *, client_id: str) -> Iterator[WireClient]:
    """A client, closed at the end."""
    client = WireClient(address, client_id=client_id)
    try:
        yield client
    finally:
        client.close()
