"""A proxy in front of a broker that lies about some Produce requests: it loses or doubles their records.

Clients see nothing of it: a request that is lost is answered as the one before was, and of the two answers to a request
that is doubled only one is passed on. It reads requests of version 7, which raw clients send.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from struct import Struct

_HEAD = Struct(">ihhi")  # length, API, version, correlation id
_ANSWER_HEAD = Struct(">ii")
_PRODUCE = 0
_ANSWER_TIMEOUT_S = 60.0
_HONEST = 5
"""Produce requests of a connection that pass before the first lie."""
_LIES = 10


class Lie(Enum):
    """What happens to the records of a request."""

    LOSE = "lose"
    DOUBLE = "double"


class LyingProxy:
    """Passes connections on, and lies about the first requests that may be lied about."""

    def __init__(self, lie: Lie, *, address: tuple[str, int], upstream: tuple[str, int], lies: int) -> None:
        self.lies_left = lies
        """The requests that are still to be lied about."""
        self._lie = lie
        self._upstream = upstream
        self._server = socket.create_server(address)
        self._sockets: list[socket.socket] = [self._server]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End every connection."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                upstream = socket.create_connection(self._upstream)
                self._sockets += [client, upstream]
                passage = _Passage(self, self._lie, client=client, upstream=upstream)
                for way in (passage.pass_requests, passage.pass_answers):
                    threading.Thread(target=way, daemon=True).start()


class _Passage:
    """One connection: its requests under way, and the last answer to a Produce request."""

    def __init__(self, proxy: LyingProxy, lie: Lie, *, client: socket.socket, upstream: socket.socket) -> None:
        self._proxy, self._lie = proxy, lie
        self._client, self._upstream = client, upstream
        self._lock = threading.Condition()
        self._awaited: list[tuple[int, bool]] = []
        self._doubled: list[int] = []
        self._produced = 0
        self._last_answer = b""

    def pass_requests(self) -> None:
        """Pass requests on until the client ends the connection."""
        with suppress(OSError), self._upstream:
            while request := _frame(self._client):
                _, api, version, correlation_id = _HEAD.unpack_from(request)
                is_produce = (api, version) == (_PRODUCE, 7)
                with self._lock:
                    self._produced += is_produce
                    may_lie = is_produce and self._produced > _HONEST and self._proxy.lies_left > 0
                    if may_lie and self._lie is Lie.LOSE:
                        # Answers keep the order of requests, so the lie waits until those before it have theirs.
                        self._lock.wait_for(lambda: not self._awaited and self._last_answer, _ANSWER_TIMEOUT_S)
                        self._proxy.lies_left -= 1
                        length = len(self._last_answer) - 4
                        self._client.sendall(_ANSWER_HEAD.pack(length, correlation_id) + self._last_answer[8:])
                        continue
                    self._awaited.append((correlation_id, is_produce))
                    if may_lie and self._lie is Lie.DOUBLE:
                        self._proxy.lies_left -= 1
                        self._doubled.append(correlation_id)
                        request += request
                self._upstream.sendall(request)

    def pass_answers(self) -> None:
        """Pass answers on until the broker ends the connection."""
        with suppress(OSError), self._client:
            while answer := _frame(self._upstream):
                _, correlation_id = _ANSWER_HEAD.unpack_from(answer)
                with self._lock:
                    if not self._awaited or self._awaited[0][0] != correlation_id:
                        assert correlation_id in self._doubled
                        continue
                    _, is_produce = self._awaited.pop(0)
                    if is_produce:
                        self._last_answer = answer
                    self._client.sendall(answer)
                    self._lock.notify_all()


def _frame(source: socket.socket) -> bytes:
    """The next frame with its length, empty at the end."""
    head = _exactly(source, 4)
    return head + _exactly(source, int.from_bytes(head)) if head else b""


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = source.recv(count - len(data))
        if not piece:
            return b""
        data += piece
    return data


@contextmanager
def lying_proxy(
    lie: Lie, *, address: tuple[str, int], upstream: tuple[str, int], lies: int = _LIES
) -> Iterator[LyingProxy]:
    """A proxy at an address in front of another one, until the end of the block."""
    proxy = LyingProxy(lie, address=address, upstream=upstream, lies=lies)
    try:
        yield proxy
    finally:
        proxy.close()
