"""A relay over real sockets, in this process: what no client could bring about."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
from tests.support.enforcement_frames import Pair, produce, produce_response

from kafka_quotas.core.clock import VirtualClock
from kafka_quotas.core.quota_manager import QuotaType
from kafka_quotas.enforcement.notice import Notice
from kafka_quotas.enforcement.poller import Poller
from kafka_quotas.enforcement.relay import Relay, RelayRoom

TIMEOUT_S = 10.0


class Bench:
    """A relay between two socket pairs, in a loop of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.notices: list[Notice] = []
        self.closed: list[Relay] = []
        self.pair = Pair(quotas={QuotaType.PRODUCE: 1000.0})
        self.clock = VirtualClock(self.pair.now_ms)
        self.poller = Poller(self.loop)
        self.client, inner_client = socket.socketpair()
        self.upstream, self._inner_upstream = socket.socketpair()
        for each in (self.client, self.upstream, inner_client, self._inner_upstream):
            each.setblocking(False)
        room = RelayRoom(
            loop=self.loop,
            poller=self.poller,
            clock=self.clock,
            counters=self.pair.counters,
            notify=self.notices.append,
        )
        self.relay = Relay(room, self.pair.session, client=inner_client, peer="test", on_closed=self.closed.append)
        self.relay.connect(self.loop.create_task(self._connect()))

    async def _connect(self) -> socket.socket:
        return self._inner_upstream

    def receive(self, sock: socket.socket) -> bytes:
        """What comes next; b"" at the end."""
        return self.loop.run_until_complete(asyncio.wait_for(self.loop.sock_recv(sock, 65536), TIMEOUT_S))

    def close(self) -> None:
        self.relay.close()
        for each in (self.client, self.upstream, self._inner_upstream):
            each.close()
        self.poller.close()
        self.loop.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    running = Bench()
    yield running
    running.close()


def test_bytes_pass_both_ways(bench: Bench) -> None:
    bench.client.sendall(produce(1, size=100))
    assert bench.receive(bench.upstream) == produce(1, size=100)
    bench.upstream.sendall(produce_response(1))
    assert bench.receive(bench.client) == produce_response(1)


def test_a_defect_costs_the_connection_that_met_it_and_is_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def defective(chunk: memoryview, now_ms: int) -> None:
        raise IndexError("no such thing")

    monkeypatch.setattr(bench.pair.session, "from_client", defective)
    bench.client.sendall(b"anything")
    assert bench.receive(bench.client) == b""
    assert bench.closed == [bench.relay]
    (notice,) = bench.notices
    assert notice.event == "connection closed: internal error"
    assert "IndexError: no such thing" in str(notice)
    assert "test_daemon_relay.py" in str(notice)


def test_a_timer_that_fires_early_is_set_again(bench: Bench) -> None:
    bench.client.sendall(produce(1, size=21_000) + produce(2, size=100))
    bench.receive(bench.upstream)
    bench.upstream.sendall(produce_response(1))
    bench.receive(bench.client)
    mute = bench.pair.session.mute
    assert mute is not None
    bench.relay._wake()  # too early by the session's clock
    assert bench.relay._timer is not None
    bench.clock.advance(mute.until_ms - mute.since_ms)
    bench.relay._wake()
    assert bench.receive(bench.upstream) == produce(2, size=100)
