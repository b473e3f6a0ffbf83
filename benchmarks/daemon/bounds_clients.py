"""Rows of `bounds.py` about clients that take ever other names, and about what walks over their buckets."""

import contextlib
import json
import os
import socket
import struct
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import proxy_load
from bounds_figure import Figure, cpu_s, resident_mb

from kafka_quotas.commands.testbed.daemon_process import free_ports, running_daemon
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration

LONG = 32_000
UNDER_WAY_MB = 25
AT_ONCE = 200
NEVER_REACHED = 1e12
ROUNDS = 3
MOST_ACTIVE = 100_000
SAVE = "a save of the state"
MINUTE = "a minute, with a search for idle buckets"
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A daemon that runs: its process, where clients and scrapers connect, its socket and its state file."""

    pid: int
    port: int
    metrics: int
    control: Path
    state: Path

    def metric(self, name: str) -> float:
        """Return the value of a metric without labels."""
        for line in self.scrape().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise SystemExit(f"no metric is called {name}")

    def scrape(self) -> str:
        """Return the text of a scrape."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=60) as answer:
            text: str = answer.read().decode()
        return text

    def status(self) -> int:
        """How many buckets its status shows."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(60)
            sock.connect(str(self.control))
            sock.sendall(b'{"op":"status"}\n')
            answer = b""
            while not answer.endswith(b"\n"):
                answer += sock.recv(1 << 20)
        return len(json.loads(answer)["status"]["buckets"])


@contextmanager
def daemon(*options: str, default_quota: bool) -> Iterator[Daemon]:
    """Run a daemon with a default quota for client-ids that nobody reaches, or with none at all."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(proxy_load.broker())
        store_url = f"local:{folder / 'quotas.db'}"
        if default_quota:
            store = open_store(store_url)
            store.alter([Alteration(entity=Entity.of(client_id=None), changes={"producer_byte_rate": NEVER_REACHED})])
            store.close()
        metrics = free_ports(1)
        running = stack.enter_context(
            running_daemon(
                upstream=f"127.0.0.1:{upstream}",
                store_url=store_url,
                window=QuotaWindow(),
                folder=folder,
                options=("--metrics-port", str(metrics), "--state-file", str(folder / "state"), *options),
            )
        )
        yield Daemon(
            pid=running.pid,
            port=int(running.bootstrap.rpartition(":")[2]),
            metrics=metrics,
            control=folder / "control.sock",
            state=folder / "state",
        )


def produce(client_id: bytes) -> bytes:
    """Return a small Produce request."""
    body = struct.pack(">hhii", -1, 1, 30000, 1) + bytes(150)
    content = struct.pack(">hhih", 0, 7, 1, len(client_id)) + client_id + body
    return struct.pack(">i", len(content)) + content


def send_names(port: int, names: Iterator[bytes]) -> int:
    """How many requests were sent and answered on one connection, each with another client-id."""
    sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = sock.makefile("rb")
        while batch := [produce(name) for _, name in zip(range(AT_ONCE), names, strict=False)]:
            sender = threading.Thread(target=sock.sendall, args=(b"".join(batch),))
            sender.start()
            for _ in batch:
                (length,) = struct.unpack(">i", answers.read(4))
                answers.read(length)
            sender.join()
            sent += len(batch)
    return sent


def long_names(count: int) -> Iterator[bytes]:
    """Client-ids of 32 kB, all different."""
    return (b"%08d" % number + bytes(LONG - 8).replace(b"\0", b"x") for number in range(count))


def long_names_without_a_quota(*, quick: bool) -> Iterator[Figure]:
    """Distinct client-ids of 32 kB where no quota is set: nothing is kept."""
    count = 3_000 if quick else 10_000
    with daemon(default_quota=False) as running:
        send_names(running.port, long_names(200))
        before = resident_mb(running.pid)
        sent = send_names(running.port, long_names(count))
        grown = resident_mb(running.pid) - before
    yield Figure(what=f"{sent} client-ids of 32 kB, no quota: memory grew by", measured=grown, unit="MB", bound=10)


def long_names_with_a_quota(*, quick: bool) -> Iterator[Figure]:
    """Measure the same with a default quota: as much as `--max-bucket-memory` says, and what is under way."""
    count, most = (4_000, 32) if quick else (20_000, 128)
    with daemon("--max-bucket-memory", f"{most}MiB", default_quota=True) as running:
        before = resident_mb(running.pid)
        sent = send_names(running.port, long_names(count))
        grown, evicted = resident_mb(running.pid) - before, running.metric("kafka_quotas_buckets_evicted_total")
    what = f"{sent} client-ids of 32 kB, --max-bucket-memory {most}MiB: grew by"
    bound = most * _MIB / 1e6 + UNDER_WAY_MB
    yield Figure(what=what, measured=grown, unit="MB", bound=round(bound), note=f"{evicted:.0f} evicted")


def pauses_with_many_buckets(*, quick: bool) -> Iterator[Figure]:
    """Measure how long a scrape, a status, a save and a search for idle buckets keep other clients waiting."""
    for count, bound_ms in ((20_000, 20),) if quick else ((100_000, 20), (1_000_000, 50)):
        yield from _pauses(count, bound_ms)


def _pauses(count: int, bound_ms: float) -> Iterator[Figure]:
    with daemon("--max-bucket-memory", "4GiB", default_quota=True) as running:
        before_mb, before_s = resident_mb(running.pid), cpu_s(running.pid)
        send_names(running.port, (b"client-%d" % number for number in range(count)))
        taken = (cpu_s(running.pid) - before_s) / count * 1e6
        each = (resident_mb(running.pid) - before_mb) * 1e6 / count
        yield Figure(what=f"{count} buckets: memory each", measured=each, unit="B", bound=None)
        yield Figure(what=f"{count} buckets: making one, with its request", measured=taken, unit="us", bound=None)
        work: dict[str, Callable[[], object]] = {
            "nothing": lambda: time.sleep(3),
            "a scrape of /metrics": running.scrape,
            "daemon status": running.status,
            SAVE: lambda: _wait_for_save(running),
            MINUTE: lambda: time.sleep(65),
        }
        for what, do in work.items():
            if what == SAVE:
                send_names(running.port, (b"client-%d" % number for number in range(min(count, MOST_ACTIVE))))
            rounds = ROUNDS if what not in (SAVE, MINUTE) else 1
            yield _pause(running, f"{count} buckets, {what}: pause", do, bound_ms=bound_ms, rounds=rounds)


def _pause(running: Daemon, what: str, do: Callable[[], object], *, bound_ms: float, rounds: int) -> Figure:
    """Return how long a piece of work keeps another client waiting, the best of some rounds."""
    found = []
    began_s = cpu_s(running.pid)
    for _ in range(rounds):
        with Probe(running) as probe:
            do()
        found.append(probe.longest_ms)
    took_s = (cpu_s(running.pid) - began_s) / rounds
    return Figure(what=what, measured=min(found), unit="ms", bound=bound_ms, note=f"CPU time in all {took_s:.2f} s")


def _wait_for_save(running: Daemon) -> None:
    """Return when a save was made from its beginning to its end."""
    deadline = time.monotonic() + 300
    for _ in range(2):
        before = running.state.stat().st_mtime_ns if running.state.exists() else 0
        while not running.state.exists() or running.state.stat().st_mtime_ns == before:
            if time.monotonic() > deadline:
                raise SystemExit("the state was not saved")
            time.sleep(0.05)


class Probe:
    """A client that asks the daemon one question after the other, and notes the longest that an answer took.

    The daemon answers by itself, so that no other process has to be waited for. Where that is allowed, it and the
    client run before all other processes meanwhile, so that other work on the machine counts as little as can be.
    """

    def __init__(self, running: Daemon) -> None:
        self._running = running
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._probe)
        self.longest_ms = 0.0

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(self._running.pid, os.SCHED_FIFO, os.sched_param(1))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._thread.join()
        os.sched_setscheduler(self._running.pid, os.SCHED_OTHER, os.sched_param(0))

    def _probe(self) -> None:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
        question = b'{"op":"check","quota":"producer_byte_rate","client_id":"probe","amount":1}\n'
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(120)
            sock.connect(str(self._running.control))
            while not self._is_ending.wait(0.002):
                began_s = time.perf_counter()
                sock.sendall(question)
                answer = sock.recv(1 << 16)
                self.longest_ms = max(self.longest_ms, (time.perf_counter() - began_s) * 1000)
                if b'"ok":true' not in answer:
                    raise SystemExit(answer.decode())
