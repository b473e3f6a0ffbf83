"""Blown-up requests through a daemon: how long it stalls, what it keeps, and what an honest client beside it gets."""

import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from generators import kio_messages
from tests.support.brokers.fake_broker import connected
from tests.support.daemon.pinged import PAUSE_S
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota
from tests.support.frames.blown_up import Blown, Names, arrays, drawn, request_content, response_content
from tests.support.processes.figures import resident_bytes

from kafka_quotas.core.model.entity import Entity

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


ROOT = Path(__file__).parents[3]
ANSWER_S = 60.0
CROWDS = (1, 8)
GATHERED = "16MiB"
MIB = 1024 * 1024
QUOTAS = {
    "producer_byte_rate": 1e12,
    "consumer_byte_rate": 1e12,
    "request_percentage": 1e9,
    "controller_mutation_rate": 1e9,
}
"""Limits that nobody reaches: each of them has the daemon look at requests and responses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """A blown-up request, how it is cut, and on how many connections it comes at once."""

    blown: Blown
    cuts: tuple[float, ...]
    """The places where it is cut into pieces: from 1 on a number of bytes, below a part of its length."""
    is_truncated: bool
    """Whether the frame ends at the last cut."""
    client_id_bytes: int
    connections: int

    def pieces(self, *, is_control: bool) -> list[bytes]:
        """Return the pieces to send, which the daemon passes unread if this is a control."""
        answered_as = self.blown.api_key * 256 + self.blown.version
        content = request_content(self.blown, correlation_id=answered_as, client_id=b"c" * self.client_id_bytes)
        if self.is_truncated:
            content = content[: max(10, int(self.cuts[-1] * len(content)))] if self.cuts[-1] < 1 else content[:-1]
        if is_control:
            content = struct.pack(">hh", UNREAD, 0) + content[4:]
        frame = struct.pack(">i", len(content)) + content
        places = sorted(int(cut) if cut >= 1 else int(cut * len(frame)) for cut in self.cuts)
        return [frame[start:end] for start, end in zip([0, *places], [*places, len(frame)], strict=True) if end > start]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What some attacks did to a daemon, beside the same bytes that it passed unread."""

    stall_ms: float
    """The longest that the honest client waited in an attack, and did again when that was repeated."""
    control_stall_ms: float
    """The longest that it waited while the same bytes passed unread."""
    share: float
    """Its requests that were answered during the attacks, of those it wanted."""
    control_share: float
    peak_mib: float
    """The most memory beyond that before."""
    kept_mib: float
    """The memory beyond that before, after all attackers have left."""
    longest: Attack
    """The attack in which it waited for longest."""

    def findings(self) -> list[str]:
        """Return what is worse than it may be."""
        bounds = (
            ("others waited for ms", self.stall_ms, _most_ms(self.control_stall_ms)),
            ("MiB of memory", self.peak_mib, MAX_PEAK_MIB),
            ("MiB were kept", self.kept_mib, MAX_KEPT_MIB),
            ("share lost by an honest client", 1 - self.share / self.control_share, 1 - MIN_SHARE),
        )
        return [f"{what}: {found:.2f} where {bound:.2f} may be" for what, found, bound in bounds if found > bound]


TRIES = 4
Window: TypeAlias = tuple[float, float]
"""Begin and end (s) of an attack."""
MAX_STALL_MS, MAX_PEAK_MIB, MAX_KEPT_MIB, MIN_SHARE = 100.0, 50.0, 5.0, 0.9


def _most_ms(control_ms: float) -> float:
    return max(MAX_STALL_MS, 2 * control_ms)


def attack(source: random.Random, sizes: tuple[int, ...]) -> Attack:
    """Draw an attack."""
    cuts = source.choice(
        [
            (2.0,),
            (9.0,),
            tuple(float(place) for place in range(1, 120)),
            (source.random(),),
            tuple(sorted(source.random() for _ in range(5))),
            (float(source.randrange(15, 400)), source.random()),
        ]
    )
    return Attack(
        blown=drawn(source, sizes),
        cuts=cuts,
        is_truncated=source.random() < 0.2,
        client_id_bytes=source.choice((0, 3, 3, 32_000)),
        connections=source.choice(CROWDS),
    )


@contextmanager
def inflating_broker() -> Iterator[str]:
    """A broker whose responses grow with the requests, and its address."""
    command = [sys.executable, "-m", "tests.support.daemon.blown_up_run"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


@contextmanager
def honest_client(address: str) -> Iterator[list[float]]:
    """A client that wants an answer every `PAUSE_S`, and the times at which it got them."""
    command = [sys.executable, "-m", "tests.support.daemon.pinged", address]
    answered: list[float] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = process.stdout
        reader = threading.Thread(target=lambda: answered.extend(map(float, lines)), daemon=True)
        try:
            answered.append(float(lines.readline()))
            reader.start()
            yield answered
        finally:
            process.terminate()
            reader.join()


def run(attacks: Sequence[Attack], folder: Path, *, rehearsed: Sequence[Attack] = ()) -> Outcome:
    """Let attacks loose on a daemon one after the other, each beside its control.

    Those that are rehearsed come once before: what is loaded for the first request of a kind is not kept of it.
    """
    set_quota(folder, Entity.of(client_id=None), **QUOTAS)
    set_quota(folder, Entity.of(broker=None), **{"total.bytes.in.per.sec.threshold": 1e12})  # for Produce by topics
    options = ["--queued-max-request-bytes", GATHERED]
    with inflating_broker() as broker, running_daemon(folder, upstream=broker, options=options) as daemon:
        for _ in range(2):
            _strike(daemon, replace(attacks[0], connections=max(CROWDS)), is_control=True)
        for each in rehearsed:
            _strike(daemon, each, is_control=False)
        with honest_client(daemon.bootstrap) as answered, _memory(daemon) as resident:
            before = resident[-1]
            control_ms, stalls_ms = 0.0, list[float]()
            windows: list[tuple[Window, Window]] = []
            for each in attacks:
                # What an attack does it does again; what the machine did meanwhile it does not.
                stall_ms, pairs = float("inf"), list[tuple[Window, Window]]()
                while len(pairs) < TRIES:
                    control, attacked = (_strike(daemon, each, is_control=is_control) for is_control in (True, False))
                    pairs.append((control, attacked))
                    control_ms = max(control_ms, _longest_wait_ms(answered, control))
                    stall_ms = min(stall_ms, _longest_wait_ms(answered, attacked))
                    if stall_ms <= _most_ms(control_ms) and _lost(answered, *pairs[-1]) <= 1 - MIN_SHARE:
                        break
                stalls_ms.append(stall_ms)
                windows.append(min(pairs, key=lambda pair: _lost(answered, *pair)))
            daemon.wait_until(lambda status: status.connections <= 1)
            kept = resident_bytes(daemon.pid) - before
        return Outcome(
            stall_ms=max(stalls_ms),
            control_stall_ms=control_ms,
            share=_share(answered, [attacked for _, attacked in windows]),
            control_share=_share(answered, [control for control, _ in windows]),
            peak_mib=(max(resident) - before) / MIB,
            kept_mib=kept / MIB,
            longest=attacks[stalls_ms.index(max(stalls_ms))],
        )


def _strike(daemon: DaemonProcess, each: Attack, *, is_control: bool) -> Window:
    """Send an attack on its connections at once, and return when it began and ended."""
    pieces = each.pieces(is_control=is_control)
    began = time.monotonic()
    with ThreadPoolExecutor(each.connections) as pool:
        for future in [pool.submit(_send, daemon.bootstrap, pieces) for _ in range(each.connections)]:
            future.result()
    return began, time.monotonic()


def _send(address: str, pieces: Sequence[bytes]) -> None:
    """Send one request and read its answer, or until the daemon closes the connection."""
    with suppress(ConnectionError), connected(address) as sock:
        sock.settimeout(ANSWER_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            sock.sendall(piece)
        head = sock.recv(4, socket.MSG_WAITALL)
        left = struct.unpack(">i", head)[0] if len(head) == 4 else 0
        while left > 0 and (piece := sock.recv(min(left, MIB))):
            left -= len(piece)


@contextmanager
def _memory(daemon: DaemonProcess) -> Iterator[list[int]]:
    """Look at the daemon's memory every few milliseconds."""
    found, stop = [resident_bytes(daemon.pid)], threading.Event()

    def look() -> None:
        while not stop.wait(0.01):
            found.append(resident_bytes(daemon.pid))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def _longest_wait_ms(answered: Sequence[float], window: Window) -> float:
    """Return the longest time between two answers to the honest client of which one is in the window."""
    near = [at for at in answered if window[0] - 1 <= at <= window[1]]
    gaps = [later - earlier for earlier, later in pairwise(near) if later >= window[0]]
    return 1000 * max([window[1] - near[-1] if near else window[1] - window[0], *gaps]) - 1000 * PAUSE_S


def _lost(answered: Sequence[float], control: Window, attacked: Window) -> float:
    """Return the part of its answers that the honest client lost to an attack and not to the control."""
    return 1 - _share(answered, [attacked]) / (_share(answered, [control]) or 1.0)


def _share(answered: Sequence[float], windows: Sequence[Window]) -> float:
    wanted = sum(end - began for began, end in windows) / PAUSE_S
    got = sum(1 for at in answered if any(began <= at <= end for began, end in windows))
    return got / wanted if wanted else 1.0


if __name__ == "__main__":
    sys.exit(main())
