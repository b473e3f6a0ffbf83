"""A relay over real sockets, in this process: what no client could bring about."""

import asyncio
import gc
import socket
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from tests.support.core.virtual_clock import VirtualClock
from tests.support.daemon.proxy_quotas import proxy_quotas
from tests.support.frames.enforcement import Pair, produce, produce_response, request, response
from tests.support.processes.awaiting import await_true

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.proxy.brokers import UpstreamConfig
from kafka_quotas.enforcement.proxy.context import ServerContext
from kafka_quotas.enforcement.proxy.proxied_connection import ProxiedConnection
from kafka_quotas.enforcement.telemetry.log import LogEvent

T = TypeVar("T")
TIMEOUT_S = 240.0
HEARTBEAT = request(12, 0, 0, b"")


async def nowhere_else(failed: UpstreamConfig) -> None:
    raise AssertionError(f"{failed.upstream} takes connections")


class Bench:
    """A relay between a client and a broker that this test plays, in a loop of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.notices: list[LogEvent] = []
        self.closed: list[ProxiedConnection] = []
        self._end = asyncio.Event()
        self.pair = Pair(quotas={QuotaType.PRODUCE: 1000.0})
        self.clock = VirtualClock(self.pair.now_ms)
        room = self.wait(self._room())
        self.relay = ProxiedConnection(room, self.pair.session, peer="test", on_closed=self._closed)
        self.client, inner_client = socket.socketpair()
        for each in (self.client, inner_client):
            each.setblocking(False)
        with socket.create_server(("127.0.0.1", 0)) as server:
            host, port = server.getsockname()
            upstream = UpstreamConfig(upstream=Address(host=host, port=port), timeout_s=TIMEOUT_S)
            self.relay.open(inner_client, upstream, nowhere_else)
            server.setblocking(False)
            self.client.sendall(HEARTBEAT)  # the broker is connected to when there is something for it
            self.upstream, _ = self.wait(self.loop.sock_accept(server))
        self.upstream.setblocking(False)
        assert self.receive(self.upstream) == HEARTBEAT
        self.upstream.sendall(response(0, bytes(2)))
        assert self.receive(self.client) == response(0, bytes(2))

    async def _room(self) -> ServerContext:
        room = ServerContext(proxy_quotas(clock=self.clock, said=self.notices))
        room.counters = self.pair.counters
        return room

    def wait(self, coming: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(coming, TIMEOUT_S))

    def receive(self, sock: socket.socket) -> bytes:
        """What comes next, empty at the end."""
        return self.wait(self.loop.sock_recv(sock, 65536))

    def close(self) -> None:
        self.loop.call_soon(self.relay.abort)
        self.wait_until_closed()
        self.client.close()
        self.upstream.close()
        self.loop.close()

    def run_until(self, holds: Callable[[], bool], what: str) -> None:
        """Run the loop until a condition holds."""

        def held() -> bool:
            self.loop.run_until_complete(asyncio.sleep(0))
            return holds()

        await_true(held, what, timeout_s=TIMEOUT_S)

    def wait_until_closed(self) -> None:
        self.wait(self._end.wait())

    def _closed(self, relay: ProxiedConnection) -> None:
        self.closed.append(relay)
        self._end.set()


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
    def defective(data: bytes, now_ms: int) -> bool:
        raise IndexError("no such thing")

    monkeypatch.setattr(bench.pair.session, "receive_from_client", defective)
    bench.client.sendall(b"anything")
    assert bench.receive(bench.client) == b""
    bench.wait_until_closed()
    assert bench.closed == [bench.relay]
    (notice,) = bench.notices
    assert notice.event == "connection closed: internal error"
    assert "IndexError: no such thing" in str(notice)
    assert "test_proxied_connection.py" in str(notice)


def test_the_end_of_the_client_is_told_to_the_broker_after_its_last_bytes(bench: Bench) -> None:
    bench.client.sendall(produce(1, size=100, acks=0))
    bench.client.shutdown(socket.SHUT_WR)
    assert bench.receive(bench.upstream) == produce(1, size=100, acks=0)
    assert bench.receive(bench.upstream) == b""
    assert bench.closed == []  # the broker may still be at it
    bench.upstream.close()
    bench.wait_until_closed()
    assert bench.notices == []


def test_a_client_that_hangs_up_behind_a_broker_that_reads_nothing_is_noticed(bench: Bench) -> None:
    flood = b"".join(request(12, 0, number, bytes(1_000_000)) for number in range(1, 21))
    sending = bench.loop.create_task(bench.loop.sock_sendall(bench.client, flood))
    bench.run_until(lambda: bench.pair.session.state.upstream_is_full, "the client is unread")
    sending.cancel()
    for _ in range(2):  # what moved, and what stands still with its client there
        bench.relay.look(bench.clock.now_ms())
    assert bench.relay._client.is_open
    bench.client.close()
    bench.relay.look(bench.clock.now_ms())
    assert not bench.relay._client.is_open


def test_a_timer_that_fires_early_is_set_again(bench: Bench) -> None:
    bench.client.sendall(produce(1, size=21_000) + produce(2, size=100))
    bench.receive(bench.upstream)
    bench.upstream.sendall(produce_response(1))
    bench.receive(bench.client)
    mute = bench.pair.session.state.mute
    assert mute is not None
    bench.relay._wake()  # too early by the session's clock
    assert bench.relay._timer is not None
    bench.clock.advance(mute.until_ms - mute.since_ms)
    bench.relay._wake()
    assert bench.receive(bench.upstream) == produce(2, size=100)


def test_a_connection_that_has_ended_is_freed_without_the_collector() -> None:
    bench = Bench()
    requests = bench.pair.session.state.requests
    gc.collect()
    gc.disable()
    try:
        bench.client.sendall(produce(1, size=50_000)[:30_000])
        bench.run_until(lambda: requests.mid_frame, "a request begins")
        kept = weakref.ref(bench.relay)
        bench.close()
        bench.closed.clear()
        del bench
        assert kept() is None
    finally:
        gc.enable()
