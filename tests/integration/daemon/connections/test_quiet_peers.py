"""Peers that do not read, and peers that are gone without a word: the daemon tells them apart, as the kernel does."""

import asyncio
import ctypes
import socket
import struct
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from kafka_quotas.enforcement.proxy import transport as relay_end
from kafka_quotas.enforcement.proxy.transport import Transport

T = TypeVar("T")
TIMEOUT_S = 30.0
PATIENCE_MS = 1500
"""In the place of the minutes that the daemon has."""
_SO_ATTACH_FILTER = 26


class Peers:
    """An end of a relay and the peer it writes to, in a loop of their own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.lost = asyncio.Event()
        self.end = Transport(received=lambda data: None, full=lambda is_full: None, gone=self.lost.set)
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            self.inner = socket.create_connection(server.getsockname())
            self.peer, _ = server.accept()
        self.inner.setblocking(False)
        self.wait(self.loop.connect_accepted_socket(lambda: self.end, self.inner))

    def wait(self, coming: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(coming, TIMEOUT_S))

    def fill(self) -> None:
        """Write until the peer's window is closed, and more waits."""
        for _ in range(40):
            self.end.write(bytes(256 * 1024))

    async def until_lost_or(self, seconds: float) -> bool:
        """Whether the end is lost, or its peer is held to be.

        Waited for until then, or for so long.
        """
        deadline = self.loop.time() + seconds
        while self.loop.time() < deadline:
            if self.end.lost_peer() or self.lost.is_set():
                return True
            await asyncio.sleep(0.05)
        return False

    def close(self) -> None:
        self.end.abort()
        self.wait(self.lost.wait())
        self.peer.close()
        self.loop.close()


def drop_everything(sock: socket.socket) -> None:
    """Let the kernel drop whatever comes for a socket, as if its host were gone."""
    program = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # return 0 bytes of each packet
    pointer = struct.pack("HL", 1, ctypes.addressof(program))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("UNACKNOWLEDGED_MS", "_UNACKNOWLEDGED_MS"):
        monkeypatch.setattr(relay_end, name, PATIENCE_MS, raising=False)
    pair = Peers()
    yield pair
    pair.close()


def test_a_peer_that_does_not_read_is_there_all_the_same(peers: Peers) -> None:
    peers.fill()
    assert not peers.wait(peers.until_lost_or(6 * PATIENCE_MS / 1000)), "it answers every probe of its closed window"
    assert not peers.end.is_gone


def test_a_peer_that_is_gone_is_noticed_whether_or_not_it_read(peers: Peers) -> None:
    peers.fill()
    drop_everything(peers.peer)
    assert peers.wait(peers.until_lost_or(20.0)), "no probe is answered"


def test_a_peer_that_is_gone_with_something_on_its_way_is_noticed(peers: Peers) -> None:
    drop_everything(peers.peer)
    peers.end.write(b"nobody gets this")
    assert peers.wait(peers.until_lost_or(20.0))
