"""Traffic for a long time through one daemon in front of a real broker: its memory, descriptors and timers stay flat.

Three libraries' producers that are held by their quota all the time, connections that come and go in every way, limits
that change, and somebody who asks for status and metrics.
"""

import json
import random
import signal
import socket
import statistics
import struct
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.brokers.fake_broker import TIMEOUT_S, receive_frame
from tests.support.brokers.servers import kafka_4
from tests.support.daemon.process import DaemonProcess, set_quota, store_url
from tests.support.frames.enforcement import fetch, request
from tests.support.load.numbered_load import NumberedLoad, running_loads
from tests.support.processes.awaiting import await_true
from tests.support.processes.figures import open_descriptors, resident_bytes, threads

from kafka_quotas.core.model.entity import Entity

ENDINGS = ("close", "reset", "cut", "half-closed", "unanswered")
CLIENT_IDS = 200
_RESET = struct.pack("ii", 1, 0)


def api_versions(correlation_id: int, client_id: str) -> bytes:
    """An ApiVersions request of version 0."""
    return request(18, 0, correlation_id, b"", client_id=client_id)


def empty_produce(correlation_id: int, client_id: str) -> bytes:
    """A Produce request for no topic, which any broker answers."""
    return request(0, 7, correlation_id, b"\xff\xff" + struct.pack(">hii", 1, 30_000, 0), client_id=client_id)


def one_connection(address: str, chance: random.Random) -> str:
    """Open a connection, send some requests, and end it.

    Returns:
        how it ended, one of `ENDINGS`.

    Raises:
        OSError: an answer did not come.
    """
    host, _, port = address.rpartition(":")
    client_id = f"short-{chance.randrange(CLIENT_IDS)}"
    ending = chance.choice(ENDINGS)
    with socket.create_connection((host, int(port)), TIMEOUT_S) as sock:
        for number in range(chance.randrange(1, 4)):
            make = chance.choice((api_versions, empty_produce))
            sock.sendall(make(number, client_id))
            receive_frame(sock)
        asked = fetch(9, client_id=client_id) + empty_produce(10, client_id)
        if ending == "reset":
            sock.sendall(asked)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        elif ending == "cut":
            sock.sendall(asked[: chance.randrange(1, len(asked))])
        elif ending == "half-closed":
            sock.sendall(api_versions(11, client_id))
            sock.shutdown(socket.SHUT_WR)
            with suppress(ConnectionError):  # a broker may close at once
                receive_frame(sock)
        elif ending == "unanswered":
            sock.sendall(asked)
    return ending


QUOTA = 30_000.0
CONNECTIONS_PER_S = 5.0
RECORD_PAUSE_S = 0.02
LOOK_S = 5.0
SAMPLE_S = 30.0
TOPIC = "soak"
GROWTH_BYTES = 3_000_000
"""What resident memory may grow by between the second quarter of a run and the last: an allocator's unrest."""
GROWTH_OBJECTS = 0.05
"""What part more objects there may be, by the same comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the daemon held at one moment."""

    at_s: float
    resident_bytes: int
    descriptors: int
    threads: int
    timers: int
    objects: int
    connections: int
    buckets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakResult:
    """The samples of a run, and what passed in it."""

    samples: tuple[Sample, ...]
    records: dict[str, int]
    connections: dict[str, int]
    failures: tuple[str, ...]

    def growth(self) -> list[str]:
        """Return a line for each figure that grew from the second quarter of the run to the last."""
        second, last = quarter(self.samples, 1), quarter(self.samples, 3)
        found = []
        for name, allowed in (
            ("resident_bytes", float(GROWTH_BYTES)),
            ("descriptors", 3.0),
            ("threads", 1.0),
            ("timers", 6.0),
            ("buckets", 0.0),
            ("objects", GROWTH_OBJECTS * median(second, "objects")),
        ):
            before, after = median(second, name), median(last, name)
            if after - before > allowed:
                found.append(f"{name}: {before:,.0f} in the second quarter, {after:,.0f} in the last")
        return found


def quarter(samples: Sequence[Sample], number: int) -> Sequence[Sample]:
    """Return one quarter (0 to 3) of the samples."""
    return samples[len(samples) * number // 4 : len(samples) * (number + 1) // 4]


def median(samples: Sequence[Sample], name: str) -> float:
    """Return the median of one figure."""
    return statistics.median(getattr(sample, name) for sample in samples)


class _Surroundings:
    """Threads that connect, change limits and look, until the end."""

    def __init__(self, daemon: DaemonProcess, folder: Path, seed: int) -> None:
        self.ended = threading.Event()
        self.connections: Counter[str] = Counter()
        self.failures: list[str] = []
        self._daemon = daemon
        self._folder = folder
        self._chance = random.Random(seed)
        doings = ((self._connect, 1 / CONNECTIONS_PER_S), (self._change, 20.0), (self._look, LOOK_S))
        self._threads = [threading.Thread(target=self._repeat, args=each) for each in doings]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.ended.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, do: Callable[[], None], every_s: float) -> None:
        while not self.ended.wait(every_s):
            try:
                do()
            except (OSError, AssertionError) as error:
                self.failures.append(f"{do.__name__}: {error!r}")

    def _connect(self) -> None:
        self.connections[one_connection(self._daemon.bootstrap, self._chance)] += 1

    def _change(self) -> None:
        number = self._chance.randrange(20)
        value = self._chance.choice((None, 10_000.0, 1_000_000.0))
        set_quota(self._folder, Entity.of(client_id=f"short-{number}"), producer_byte_rate=value)

    def _look(self) -> None:
        self._daemon.status()
        with urllib.request.urlopen(self._daemon.metrics_url, timeout=30) as answer:
            answer.read()


def soak(minutes: float, seed: int, folder: Path, tell: Callable[[str], None]) -> SoakResult:
    """Run the traffic for some minutes.

    Raises:
        AssertionError: a client stopped getting on, or the daemon logged a defect.
    """
    counts = folder / "counts.json"
    set_quota(folder, Entity.of(client_id=None), producer_byte_rate=QUOTA, consumer_byte_rate=QUOTA)
    options = ["--state-file", str(folder / "state"), "--metrics-port", "0", "--control", str(folder / "control.sock")]
    log = ["--event-log", str(folder / "events"), "--event-log-keep", "100MiB"]
    with kafka_4() as kafka:
        daemon = DaemonProcess(
            ["--upstream", kafka.bootstrap, "--listen", "127.0.0.1:0", "--store", store_url(folder), *options, *log],
            program=("-m", "tests.support.daemon.counted_daemon", str(counts)),
        )
        try:
            result = _soaked(daemon, folder, minutes, seed, lambda: sampled(daemon, counts), tell)
        finally:
            daemon.stop()
    assert not daemon.lines("Traceback"), "".join(daemon.log)
    assert not daemon.lines("internal error"), "".join(daemon.log)
    return result


def _soaked(
    daemon: DaemonProcess,
    folder: Path,
    minutes: float,
    seed: int,
    sample: Callable[[], Sample],
    tell: Callable[[str], None],
) -> SoakResult:
    samples: list[Sample] = []
    with running_loads(daemon.bootstrap, TOPIC, pause_s=RECORD_PAUSE_S) as loads:
        for load in loads:
            load.goes_on()
        surroundings = _Surroundings(daemon, folder, seed)
        try:
            end_s = time.monotonic() + minutes * 60
            while (left_s := end_s - time.monotonic()) > 0:
                surroundings.ended.wait(min(SAMPLE_S, left_s))
                samples.append(sample())
                tell(json.dumps(asdict(samples[-1])))
                _check(loads)
        finally:
            surroundings.stop()
        for load in loads:
            load.stop()
    return SoakResult(
        samples=tuple(samples),
        records={load.name: len(load.acknowledged) for load in loads},
        connections=dict(surroundings.connections),
        failures=tuple(surroundings.failures + [failure for load in loads for failure in load.failures]),
    )


def _check(loads: Sequence[NumberedLoad]) -> None:
    for load in loads:
        load.goes_on(1)


def sampled(daemon: DaemonProcess, counts: Path) -> Sample:
    """Return what the daemon, started through `counted_daemon`, holds now."""
    with suppress(FileNotFoundError):
        counts.unlink()
    daemon.send(signal.SIGUSR2)
    await_true(counts.exists, "the daemon counts its objects", timeout_s=60)
    objects: dict[str, int] = json.loads(counts.read_text())
    status = daemon.status()
    return Sample(
        at_s=round(status.uptime_ms / 1000),
        resident_bytes=resident_bytes(daemon.pid),
        descriptors=open_descriptors(daemon.pid),
        threads=threads(daemon.pid),
        timers=objects.get("TimerHandle", 0),
        objects=sum(objects.values()),
        connections=status.connections,
        buckets=len(status.buckets),
    )
