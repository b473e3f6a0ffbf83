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

from tests.support.brokers.fake_broker import fake_broker, receive_frame

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
    """Lies about the first requests that may be lied about."""

    def __init__(self, lie: Lie, *, lies: int) -> None:
        self.lie = lie
        self.lies_left = lies
        """The requests that are still to be lied about."""

    def serve(self, client: socket.socket, upstream: tuple[str, int]) -> None:
        """Pass the frames of one connection on until either side ends it."""
        with socket.create_connection(upstream) as broker:
            passage = _Passage(self, client=client, upstream=broker)
            answers = threading.Thread(target=passage.pass_answers, daemon=True)
            answers.start()
            passage.pass_requests()
            broker.shutdown(socket.SHUT_RDWR)
            answers.join()


class _Passage:
    """One connection: its requests under way, and the last answer to a Produce request."""

    def __init__(self, proxy: LyingProxy, *, client: socket.socket, upstream: socket.socket) -> None:
        self._proxy, self._lie = proxy, proxy.lie
        self._client, self._upstream = client, upstream
        self._lock = threading.Condition()
        self._awaited: list[tuple[int, bool]] = []
        self._doubled: list[int] = []
        self._produced = 0
        self._last_answer = b""

    def pass_requests(self) -> None:
        """Pass requests on until the client ends the connection."""
        with suppress(OSError):
            while True:
                request = receive_frame(self._client)
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
        with suppress(OSError):
            while True:
                answer = receive_frame(self._upstream)
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
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)


@contextmanager
def lying_proxy(
    lie: Lie, *, address: tuple[str, int], upstream: tuple[str, int], lies: int = _LIES
) -> Iterator[LyingProxy]:
    """A proxy at an address in front of another one, until the end of the block."""
    proxy = LyingProxy(lie, lies=lies)
    host, port = address
    with fake_broker(lambda client: proxy.serve(client, upstream), host=host, port=port):
        yield proxy
