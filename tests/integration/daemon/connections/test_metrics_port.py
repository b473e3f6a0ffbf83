"""The metrics port and those who keep its connections: probes are answered, and nobody holds memory or a place."""

import asyncio
import selectors
import socket
import threading
import tracemalloc
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.support.brokers.fake_broker import TIMEOUT_S, answer_each, fake_broker
from tests.support.daemon.process import running_daemon

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.monitoring import http_server
from kafka_quotas.enforcement.monitoring.http_server import TEXT, HttpReply, HttpServer, Query

HALF = b"GET /metrics HTTP/1.1\r\nHost: a"
PROBES = 8
HOLDERS = 300
LARGE = 4_000_000
"""Bytes of an answer, several times what the buffers of two kernels take of it."""


@contextmanager
def held(address: tuple[str, int], count: int) -> Iterator[Callable[[], int]]:
    """Keep this many half requests open, each replaced when it ends.

    Yields:
        Returns how many have been opened.
    """
    ended, opened = threading.Event(), [0]
    with selectors.DefaultSelector() as selector, ExitStack() as stack:

        def open_one() -> None:
            client = socket.create_connection(address, TIMEOUT_S)
            client.sendall(HALF)
            client.setblocking(False)
            selector.register(client, selectors.EVENT_READ)
            opened[0] += 1

        def keep() -> None:
            while not ended.is_set():
                for key, _ in selector.select(0.1):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
                    open_one()

        for _ in range(count):
            open_one()
        thread = threading.Thread(target=keep)
        stack.callback(lambda: [key.fileobj.close() for key in list(selector.get_map().values())])  # type: ignore[union-attr]
        stack.callback(thread.join)
        stack.callback(ended.set)
        thread.start()
        yield lambda: opened[0]


def test_probes_are_answered_while_hundreds_of_requests_never_end(tmp_path: Path) -> None:
    options = ["--metrics-port", "127.0.0.1:0"]
    with (
        fake_broker(answer_each) as broker,
        running_daemon(tmp_path, upstream=broker.address, options=options) as daemon,
    ):
        daemon.wait_for_log("a broker takes connections")
        base = daemon.metrics_url.removesuffix("/metrics")
        port = int(base.rpartition(":")[2])
        failed = []
        with held(("127.0.0.1", port), HOLDERS) as opened:
            for number in range(PROBES):
                for path in ("/healthz", "/readyz", "/metrics"):
                    try:
                        with urllib.request.urlopen(base + path, timeout=60) as answer:
                            assert answer.read()
                    except (OSError, urllib.error.URLError) as error:
                        failed.append((number, path, str(error)))
            assert opened() > HOLDERS, "the oldest half requests gave way"
        assert failed == []


async def large(_: Query) -> HttpReply:
    return HttpReply(body=b"x" * LARGE, content_type=TEXT)


def slow_reader(address: tuple[str, int]) -> socket.socket:
    """A client that has asked and whose kernel takes little of the answer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(address)
    client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    client.setblocking(False)
    return client


def takes_a_byte(client: socket.socket) -> bool:
    """Read a byte where there is one, and say whether the connection still is."""
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


@LOOPS
def test_readers_of_a_byte_at_a_time_lose_their_place_and_their_answer_its_memory(
    new_loop: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "READ_S", 0.5)

    async def serve() -> tuple[int, int]:
        server = HttpServer(Address(host="127.0.0.1", port=0), routes={"/metrics": large})
        address = ("127.0.0.1", await server.start())
        with ExitStack() as stack:
            readers = [stack.enter_context(slow_reader(address)) for _ in range(8)]
            before = 0
            async with asyncio.timeout(TIMEOUT_S):
                while tracemalloc.get_traced_memory()[0] > LARGE or before < len(readers) * LARGE:
                    for reader in readers:
                        takes_a_byte(reader)
                    before = max(before, tracemalloc.get_traced_memory()[0])
                    await asyncio.sleep(0.01)
            after = tracemalloc.get_traced_memory()[0]
        await server.close()
        return before, after

    tracemalloc.start()
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            held_bytes, kept_bytes = runner.run(serve())
    finally:
        tracemalloc.stop()
    assert held_bytes > 8 * LARGE, "all answers waited for their readers"
    assert kept_bytes < LARGE


@LOOPS
def test_whoever_asks_is_answered_beside_slow_readers_who_take_every_place(new_loop: Callable[[], Any]) -> None:
    async def serve() -> int:
        server = HttpServer(Address(host="127.0.0.1", port=0), routes={"/metrics": large, "/healthz": small})
        address = ("127.0.0.1", await server.start())
        with ExitStack() as stack:
            readers = [stack.enter_context(slow_reader(address)) for _ in range(http_server.MAX_PER_ADDRESS + 5)]
            reader, writer = await asyncio.open_connection(*address)
            async with asyncio.timeout(TIMEOUT_S):
                writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
                assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
                writer.close()
                while True:
                    served = sum([takes_a_byte(each) for each in readers])
                    if served <= http_server.MAX_PER_ADDRESS:
                        break
                    await asyncio.sleep(0.01)
        await server.close()
        return served

    with asyncio.Runner(loop_factory=new_loop) as runner:
        served = runner.run(serve())
    assert served >= http_server.MAX_PER_ADDRESS - 1


async def small(_: Query) -> HttpReply:
    return HttpReply(body=b"alive\n", content_type=TEXT)
