"""What the daemon stands: `python benchmarks/daemon/strength.py [crowd large slow]`.

crowd: 1,000 connections (`--connections`) that all fetch, 1 kB at a time, one request in flight each, for some seconds
under a quota that is never reached, then under one that throttles all of them. Printed: requests per second, p50 and
p99, what is resident. large: a Fetch response of two gigabytes, which streams; printed: how long it took and what was
resident at most. Aim: no more than 16 MB above what is resident at rest. slow: clients that ask for much and read
nothing, while one goes on; printed: what is resident per such client. Aim: 1 MB at most.
"""

import argparse
import asyncio
import contextlib
import selectors
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import cost
import proxy_load
from latency import resident

from kafka_quotas.commands.testbed.daemon_process import RunningDaemon, running_daemon
from kafka_quotas.core.model.api_key import ApiKey

LARGE_BYTES = 2**31 - 1
"""The longest response that a length field can announce."""
SLOW_BYTES = 64 << 20
PARTS = ("crowd", "large", "slow")
ANSWER_BYTES = 1000
SETTLE_S = 5.0
QUOTA = 1_000_000.0
_READ_BYTES = 1 << 20


@contextmanager
def started() -> Iterator[tuple[RunningDaemon, str]]:
    """Run a daemon in front of a broker that answers without looking, and yield where its quotas are."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(proxy_load.broker(_answer_what_is_asked))
        store_url = f"local:{folder / 'quotas.db'}"
        running = stack.enter_context(
            running_daemon(upstream=f"127.0.0.1:{upstream}", store_url=store_url, window=cost.WINDOW, folder=folder)
        )
        yield running, store_url


def _answer_what_is_asked(port_to: Connection) -> None:
    """Serve as a broker that answers as many bytes as a fetch asks for."""
    asyncio.run(_serve(port_to))


async def _serve(port_to: Connection) -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, backlog=4096)
    port_to.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a fetch with the size that it names as its longest wait, and what the daemon itself asks with little."""
    piece = bytes(_READ_BYTES)
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            request = await reader.readexactly(length)
            if struct.unpack_from(">h", request)[0] != ApiKey.FETCH:
                answer = request[4:8] + proxy_load.SMALL_ANSWER
                writer.write(struct.pack(">i", len(answer)) + answer)
                continue
            (left,) = struct.unpack_from(">i", request, 14 + len(proxy_load.CLIENT_ID))
            writer.write(struct.pack(">i", left) + request[4:8])
            left -= 4
            while left:
                writer.write(piece[:left])
                left -= min(left, len(piece))
                await writer.drain()


def connected(running: RunningDaemon) -> socket.socket:
    host, _, port = running.bootstrap.rpartition(":")
    sock = socket.create_connection((host, int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def crowd(connections: int, seconds: float) -> None:
    frame = proxy_load.request(proxy_load.fetch("crowd", size=ANSWER_BYTES, count=1))
    with started() as (running, store_url), ExitStack() as stack:
        at_rest = resident(running.pid)
        socks = [stack.enter_context(connected(running)) for _ in range(connections)]
        for name, quota in (("free", cost.NEVER_REACHED), ("throttled", QUOTA)):
            cost.set_quota(store_url, consumer_byte_rate=quota)
            time.sleep(2)  # until the daemon has seen it
            times_ms = round_trips(socks, frame, seconds)
            cuts = statistics.quantiles(times_ms, n=100)
            per_second = len(times_ms) / seconds
            print(
                f"crowd, {name}: {per_second:,.0f} requests/s ({per_second * ANSWER_BYTES / 1e6:.2f} MB/s) "
                f"on {connections} connections, p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, "
                f"{(resident(running.pid) - at_rest) / connections / 1024:.1f} KiB resident per connection"
            )


def round_trips(socks: list[socket.socket], frame: bytes, seconds: float) -> list[float]:
    """Return how long each answer took, in ms, with a request in flight on every connection until the time is over."""
    chooser = selectors.DefaultSelector()
    sent: dict[socket.socket, float] = {}
    for sock in socks:
        chooser.register(sock, selectors.EVENT_READ)
        sent[sock] = time.perf_counter()
        sock.sendall(frame)
    end, times_ms = time.perf_counter() + seconds, []
    while sent:
        for key, _ in chooser.select():
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            head = sock.recv(4, socket.MSG_WAITALL)
            if len(head) < 4:
                raise SystemExit("the proxy closed the connection")
            sock.recv(int.from_bytes(head), socket.MSG_WAITALL)
            now = time.perf_counter()
            times_ms.append((now - sent.pop(sock)) * 1000)
            if now < end:
                sent[sock] = now
                sock.sendall(frame)
    return times_ms


def large() -> None:
    frame = proxy_load.request(proxy_load.fetch("large", size=LARGE_BYTES, count=1))
    with started() as (running, store_url), connected(running) as sock:
        cost.set_quota(store_url, consumer_byte_rate=cost.NEVER_REACHED)
        at_rest = most = resident(running.pid)
        begin = time.perf_counter()
        sock.sendall(frame)
        (left,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
        total, buffer, next_look = left, bytearray(_READ_BYTES), 0
        while left:
            left -= sock.recv_into(buffer, min(left, _READ_BYTES))
            if total - left >= next_look:
                next_look += 1 << 26
                most = max(most, resident(running.pid))
        taken_s = time.perf_counter() - begin
    print(
        f"large: a response of {total:,} bytes in {taken_s:.1f} s ({total / taken_s / 1e6:,.0f} MB/s), "
        f"at most {(most - at_rest) / 1e6:.1f} MB above the {at_rest / 1e6:.1f} MB at rest"
    )


def slow(clients: int) -> None:
    asked = proxy_load.request(proxy_load.fetch("slow", size=SLOW_BYTES, count=1))
    frame = proxy_load.request(proxy_load.fetch("beside", size=ANSWER_BYTES, count=1))
    with started() as (running, _), ExitStack() as stack:
        at_rest = resident(running.pid)
        for _ in range(clients):
            stack.enter_context(connected(running)).sendall(asked)
        time.sleep(SETTLE_S)  # until every buffer on the way is full
        done = threading.Event()
        threading.Timer(3, done.set).start()
        times_ms = []
        with connected(running) as healthy:
            while not done.is_set():
                times_ms += round_trips([healthy], frame, 0.2)
        taken = resident(running.pid) - at_rest
    print(
        f"slow: {taken / clients / 1024:.0f} KiB resident for each of {clients} clients that ask for "
        f"{SLOW_BYTES >> 20} MiB and read nothing; {len(times_ms) / 3:,.0f} requests/s of another client meanwhile, "
        f"p50 {statistics.median(times_ms):.2f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART", help="what to try (default: all)")
    parser.add_argument("--connections", type=int, default=1000, help="connections of the crowd (default 1000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the crowd fetches (default 10)")
    parser.add_argument("--clients", type=int, default=50, help="clients that read nothing (default 50)")
    arguments = parser.parse_args()
    parts = arguments.parts
    if set(parts) - set(PARTS):
        parser.error(f"the parts are {', '.join(PARTS)}")
    if "crowd" in parts:
        crowd(arguments.connections, arguments.seconds)
    if "large" in parts:
        large()
    if "slow" in parts:
        slow(arguments.clients)


if __name__ == "__main__":
    main()
