"""Rows of `bounds.py` about connections: `python benchmarks/daemon/bounds_connections.py` runs them alone.

Clients that ask without end, that name a million topics, that say nothing, and an event log of long names.
"""

import json
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bounds_figure import HEADING, Figure, resident_mb

from kafka_quotas.commands.testbed.daemon_process import running_daemon
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.event_log.charges import ChargeQueue, ChargeSource
from kafka_quotas.enforcement.quotas.quota_registry import Route
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration

HEARTBEAT = struct.pack(">ihhih", 10, 12, 0, 7, 0)
"""A request of 14 bytes."""
_METADATA = ApiKey.METADATA
_WAIT_S = 60.0


@dataclass
class Broker:
    """A broker in threads of this process: it names itself in Metadata, its other answers are empty. Or it is stuck."""

    answers: bool = True
    accepted: int = 0
    port: int = 0
    connections: list[socket.socket] = field(default_factory=list)

    def serve(self, server: socket.socket) -> None:
        """Accept until the server is closed."""
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            self.accepted += 1
            self.connections.append(connection)
            if self.answers:
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError, struct.error), connection.makefile("rb") as requests:
            while True:
                (length,) = struct.unpack(">i", requests.read(4))
                request = requests.read(length)
                body = request[4:8] + (self._metadata() if request[1] == _METADATA else bytes(2))
                connection.sendall(struct.pack(">i", len(body)) + body)

    def _metadata(self) -> bytes:
        return struct.pack(">iih9sihii", 1, 1, 9, b"127.0.0.1", self.port, -1, 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A daemon and the broker behind it."""

    pid: int
    port: int
    control: Path
    broker: Broker

    def client(self) -> socket.socket:
        """Return a connection to the daemon."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=_WAIT_S)

    def counter(self, name: str) -> int:
        """Return a counter of its status."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(_WAIT_S)
            sock.connect(str(self.control))
            sock.sendall(b'{"op":"status"}\n')
            status = json.loads(sock.makefile("rb").readline())["status"]
        return int(status["counters"][name])

    @property
    def descriptors(self) -> int:
        """How many files it has open."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())


@contextmanager
def daemon(
    *options: str, listener: Sequence[str] = (), policy: str = "", answers: bool = True, **quotas: float
) -> Iterator[Running]:
    """Run a daemon with these quotas for every client-id and these properties of its listener."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = Broker(answers=answers)
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1024))
        broker.port = server.getsockname()[1]
        threading.Thread(target=broker.serve, args=(server,), daemon=True).start()
        stack.callback(server.shutdown, socket.SHUT_RDWR)
        (folder / "listener").write_text("\n".join(listener))
        (folder / "policy.toml").write_text(policy)
        if quotas:
            store = open_store(f"local:{folder / 'quotas.db'}")
            store.alter([Alteration(entity=Entity.of(client_id=None), changes=dict(quotas))])
            store.close()
        running = stack.enter_context(
            running_daemon(
                upstream=f"127.0.0.1:{broker.port}",
                store_url=f"local:{folder / 'quotas.db'}",
                window=QuotaWindow(),
                folder=folder,
                options=(
                    *("--listener-config", str(folder / "listener")),
                    *("--policy", str(folder / "policy.toml")),
                    *options,
                ),
            )
        )
        yield Running(
            pid=running.pid,
            port=int(running.bootstrap.rpartition(":")[2]),
            control=folder / "control.sock",
            broker=broker,
        )


def requests_without_end(*, quick: bool) -> Iterator[Figure]:
    """Send requests of 14 bytes until they are left unread: the broker takes none, as after a long Fetch."""
    count = 2 if quick else 4
    with daemon(answers=False) as running, ExitStack() as stack:
        _send_until_unread(stack.enter_context(running.client()))
        before = resident_mb(running.pid)
        sent = sum(_send_until_unread(stack.enter_context(running.client())) for _ in range(count))
        each = (resident_mb(running.pid) - before) / count
    yield Figure(
        what=f"{count} connections of requests that wait for responses: memory each",
        measured=each,
        unit="MB",
        bound=2,
        note=f"{sent / count / 1e6:.1f} MB sent on each, most of it in the kernel",
    )


def _send_until_unread(client: socket.socket) -> int:
    """Return how many bytes, at most 16 MB, went out before the other side took no more for some seconds."""
    block, sent = HEARTBEAT * 5000, 0
    client.settimeout(3.0)
    with suppress(TimeoutError):
        while sent < 16_000_000:
            sent += client.send(block[sent % len(HEARTBEAT) :])
    return sent


def a_million_names(*, quick: bool) -> Iterator[Figure]:
    """One Metadata of 4 MB that names a million topics: how long another client waits meanwhile."""
    del quick
    names = (1_000_000).to_bytes(4, "big") + b"\0\2tt" * 1_000_000
    head = struct.pack(">hhih3s", _METADATA, 1, 7, 3, b"app")
    request = struct.pack(">i", len(head + names)) + head + names
    thresholds = "[thresholds]\ntotal = 1000000000000\n"
    for what, running in (
        ("where topics have thresholds", daemon(policy=thresholds)),
        ("of a client with a mutation quota", daemon(controller_mutation_rate=1000.0)),
    ):
        with running as each:
            longest_ms = _pause(each, lambda each=each: _send_and_wait(each, request))  # type: ignore[misc]
        yield Figure(what=f"Metadata with a million names {what}: pause", measured=longest_ms, unit="ms", bound=20)


def _send_and_wait(running: Running, request: bytes) -> None:
    with running.client() as client, suppress(OSError):
        client.sendall(request)
        client.recv(1)


def _pause(running: Running, do: Callable[[], None], *, rounds: int = 5) -> float:
    """Return the longest that another client's request takes meanwhile, in ms, as the best of some rounds."""
    found = []
    for _ in range(rounds):
        times_ms: list[float] = []
        is_ending = threading.Event()
        is_served = threading.Event()

        def probe(
            times_ms: list[float] = times_ms,
            is_ending: threading.Event = is_ending,
            is_served: threading.Event = is_served,
        ) -> None:
            with running.client() as client:
                while not is_ending.wait(0.002):
                    began_s = time.perf_counter()
                    client.sendall(HEARTBEAT)
                    client.recv(64)
                    times_ms.append((time.perf_counter() - began_s) * 1000)
                    is_served.set()

        thread = threading.Thread(target=probe)
        thread.start()
        is_served.wait(_WAIT_S)
        do()
        is_ending.wait(0.2)
        is_ending.set()
        thread.join()
        found.append(max(times_ms[1:], default=float("inf")))
    return min(found)


def connections_that_say_nothing(*, quick: bool) -> Iterator[Figure]:
    """Silent connections behind the PROXY protocol, and what a port scan of the daemon is to the broker."""
    count = 100 if quick else 300
    limits = ("proxy.protocol.trusted=127.0.0.1", "max.connections=20")
    with daemon("--connect-timeout", "600", listener=limits) as running, ExitStack() as stack:
        before = running.descriptors
        for _ in range(count):
            stack.enter_context(running.client())
        _wait_until(
            lambda: running.counter("connections_delayed") > 0 or running.counter("connections_accepted") == count
        )
        held = running.descriptors - before
    what = f"{count} silent connections, PROXY protocol, max.connections=20: descriptors"
    yield Figure(what=what, measured=held, unit="", bound=24, note="20, one that waits, the status")
    with daemon() as running, ExitStack() as stack:
        _wait_until(lambda: running.broker.accepted > 0)  # the daemon asks at its start whether the broker is there
        before = running.broker.accepted
        for _ in range(count):
            stack.enter_context(running.client())
        _wait_until(lambda: running.counter("connections_accepted") == count)
        opened = running.broker.accepted - before
    yield Figure(
        what=f"{count} connections without a word: connections to the broker", measured=opened, unit="", bound=0
    )


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit("what was waited for did not come")
        time.sleep(0.05)


def event_log_of_long_names(*, quick: bool) -> Iterator[Figure]:
    """Charges of distinct client-ids of 32 kB that nobody writes: what the event log's queue holds."""
    del quick
    charges = ChargeQueue()
    source = ChargeSource(connection=1, ip="", route=Route(node_id=1, port=1, upstream=Address(host="", port=1)))
    record = charges.recorder(source)
    before = _own_mb()
    for number in range(20_000):
        record((0, "user", f"{number:032000}", QuotaType.PRODUCE, 0, 1.0, 0, False))
    grown = _own_mb() - before
    note = f"{len(charges)} wait, {charges.dropped} dropped"
    yield Figure(
        what="event log, client-ids of 32 kB: memory of the queue", measured=grown, unit="MB", bound=110, note=note
    )


def _own_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


ROWS: dict[str, Callable[..., Iterator[Figure]]] = {
    "requests-in-flight": requests_without_end,
    "metadata-names": a_million_names,
    "silent-connections": connections_that_say_nothing,
    "event-log-queue": event_log_of_long_names,
}
"""By name, as those of `bounds.py`."""


def main() -> None:
    names = sys.argv[1:] or list(ROWS)
    print(f"{'row':<22}{HEADING}")
    for name in names:
        for figure in ROWS[name](quick=False):
            print(f"{name:<22}{figure.line}", flush=True)


if __name__ == "__main__":
    main()
