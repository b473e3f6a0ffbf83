"""SIGKILL for daemon, broker and ZooKeeper in a random order, under load of three client libraries.

Each library sends numbered records against a quota that always holds it. Judged at the end, by what the broker has:
nothing acknowledged is lost, nothing is there twice or out of order, and no interval whatever has more bytes of a
client than rate x length + the window's burst + what the kills within it explain. A killed daemon forgets what passed
since it saved its state; and after any kill a client comes on a new connection, whose first request passes, as at a
broker.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path

from tests.support.brokers.appended_records import AppendedRecord, appended, make_topic
from tests.support.brokers.java_process import JavaServer, free_port
from tests.support.brokers.probes import kafka_brokers, zookeeper_serves
from tests.support.brokers.servers import Kafka, kafka_4, zookeeper_process
from tests.support.brokers.zookeeper_limit import set_producer_limit
from tests.support.daemon.process import DaemonProcess
from tests.support.daemon.quota_bound import Passed, excess_bytes
from tests.support.load.numbered_load import BATCH_BYTES, NumberedLoad, number_of, running_loads

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.enforcement.sharing.state import SAVE_S, read_state

TIMEOUT_S = 240.0
QUOTA = 40_000.0
WINDOW = QuotaWindow()
BURST_BYTES = QUOTA * WINDOW.samples * WINDOW.window_s
REQUEST_BYTES = BATCH_BYTES + 200
SLACK_S = 2.0
"""How much later than the daemon the broker may see the bytes of one moment, on a busy machine."""
ARRIVAL_MS = 200
"""How long after the end of a daemon the broker may take what it had sent on."""
TOPIC = "numbered"
RECORD_OVERHEAD = 20
"""Bytes of a record in a batch beside its value, at least."""


class Victim(Enum):
    """What is killed."""

    DAEMON = "daemon"
    BROKER = "broker"
    ZOOKEEPER = "ZooKeeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One blow: who, how long after the one before, how long they stay dead, and whether everybody recovers first."""

    victims: tuple[Victim, ...]
    after_s: float
    dead_s: float
    is_waited_for: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonKill:
    """A daemon's end: when, since when it had run, and up to when its state file remembers."""

    at_ms: int
    started_ms: int
    saved_ms: int

    @property
    def forgotten_ms(self) -> int:
        """How much of its life a daemon had not saved."""
        return self.at_ms - max(self.started_ms, self.saved_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientVerdict:
    """What became of one client's records.

    `excess_bytes` is beyond rate and kills, of `allowed_bytes`.
    """

    name: str
    acknowledged: int
    found: int
    lost: int
    doubled: int
    disordered: int
    failures: tuple[str, ...]
    excess_bytes: float
    allowed_bytes: float
    used: float
    """What part of rate x time it got."""

    @property
    def is_right(self) -> bool:
        wrong = self.lost or self.doubled or self.disordered or self.failures
        return not wrong and self.excess_bytes <= self.allowed_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KillsResult:
    """How a run ended: a verdict per client, and the longest time that a killed daemon forgot."""

    kills: Mapping[Victim, int]
    clients: tuple[ClientVerdict, ...]
    longest_forgotten_ms: int


def drawn(seed: int, count: int) -> Iterator[Kill]:
    """Yield blows until `count` processes were killed.

    The first three hit everybody once.
    """
    chance = random.Random(seed)
    first = chance.sample(list(Victim), 3)
    killed = 0
    while killed < count:
        victims = [first.pop()] if first else chance.choices(list(Victim), (6, 2, 2))
        if killed >= 3 and chance.random() < 0.15 and killed + 2 <= count:
            victims = chance.sample(list(Victim), 2)
        killed += len(victims)
        yield Kill(
            victims=tuple(victims),
            after_s=chance.uniform(0.1, 6.0),
            dead_s=chance.choice((0.0, chance.uniform(0.0, 2.0))),
            is_waited_for=killed >= count or chance.random() < 0.7,
        )


class Machinery:
    """ZooKeeper, a broker and the daemon, each of which can be killed and comes back at the same place."""

    def __init__(self, folder: Path, kafka: Kafka, zookeeper: tuple[str, JavaServer]) -> None:
        self.state_file = folder / "state"
        self.daemon_kills: list[DaemonKill] = []
        self.kill_times_ms: list[int] = []
        self.defects: list[str] = []
        (self._broker,) = kafka.servers
        self._zookeeper_address, self._zookeeper = zookeeper
        self._kafka = kafka
        port = free_port()
        self._arguments = [
            *("--upstream", kafka.bootstrap, "--listen", f"127.0.0.1:{port}", "--broker-address", f"1={port}"),
            *("--store", f"zk://{self._zookeeper_address}", "--control", str(folder / "c.sock")),
            *("--state-file", str(self.state_file), "--event-log", str(folder / "events")),
        ]
        self._started_ms = _now_ms()
        self.daemon = DaemonProcess(self._arguments)

    def strike(self, kill: Kill) -> None:
        """Kill the victims and start them again.

        They serve when this returns.
        """
        for victim in kill.victims:
            self.kill_times_ms.append(_now_ms())
            if victim is Victim.DAEMON:
                self._kill_daemon()
            else:
                self._server(victim)[0].kill()
        time.sleep(kill.dead_s)
        servers = [self._server(victim) for victim in kill.victims if victim is not Victim.DAEMON]
        for server, _ in servers:
            server.start_again()
        if Victim.DAEMON in kill.victims:
            self._start_daemon()
        for server, probe in servers:
            server.wait_ready(probe)

    def stop(self) -> None:
        """End the daemon, and take note of what it logged."""
        self.daemon.stop()
        self._note_defects()

    def _server(self, victim: Victim) -> tuple[JavaServer, Callable[[], bool]]:
        if victim is Victim.BROKER:
            return self._broker, lambda: kafka_brokers(self._kafka.bootstrap) == 1
        return self._zookeeper, lambda: zookeeper_serves(self._zookeeper_address)

    def _kill_daemon(self) -> None:
        self.daemon.kill()
        at_ms = _now_ms()
        self._note_defects()
        state = read_state(self.state_file)
        saved_ms = 0 if state is None else state.saved_ms
        self.daemon_kills.append(DaemonKill(at_ms=at_ms, started_ms=self._started_ms, saved_ms=saved_ms))

    def _start_daemon(self) -> None:
        """Start the daemon as a service manager does: again and again, for its store may not be there yet."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            try:
                self.daemon = DaemonProcess(self._arguments)
            except AssertionError:
                if time.monotonic() > deadline_s:
                    raise
            else:
                self._started_ms = _now_ms()  # it serves clients from now on
                return

    def _note_defects(self) -> None:
        for sign in ("Traceback", "internal error", "can't be restored"):
            self.defects += self.daemon.lines(sign)


def kills(seed: int, count: int, folder: Path, tell: Callable[[str], None]) -> KillsResult:
    """Run the loads while `count` processes are killed.

    Raises:
        AssertionError: a client did not recover, or a daemon logged a defect.
    """
    with zookeeper_process() as zookeeper, kafka_4(quick_start=True) as kafka:
        set_producer_limit(zookeeper[0], Entity.of(client_id=None), QUOTA)
        machinery = Machinery(folder, kafka, zookeeper)
        try:
            make_topic(machinery.daemon.bootstrap, TOPIC)
            with running_loads(machinery.daemon.bootstrap, TOPIC) as loads:
                for load in loads:
                    load.goes_on()
                killed = _struck(machinery, loads, drawn(seed, count), tell)
                for load in loads:
                    load.stop()
            records = appended(machinery.daemon.bootstrap, TOPIC)
            machinery.daemon.wait_until(lambda status: status.connections == 0)
        finally:
            machinery.stop()
    assert machinery.defects == []
    return KillsResult(
        kills=killed,
        clients=tuple(verdict(load, records, machinery) for load in loads),
        longest_forgotten_ms=max(kill.forgotten_ms for kill in machinery.daemon_kills),
    )


def _struck(
    machinery: Machinery, loads: Sequence[NumberedLoad], blows: Iterator[Kill], tell: Callable[[str], None]
) -> Counter[Victim]:
    killed: Counter[Victim] = Counter()
    for kill in blows:
        time.sleep(kill.after_s)
        start_s = time.monotonic()
        machinery.strike(kill)
        served_s = time.monotonic() - start_s
        if kill.is_waited_for:
            for load in loads:
                load.goes_on()
        killed.update(kill.victims)
        names = " and ".join(victim.value for victim in kill.victims)
        tell(
            f"{killed.total()}: {names}; served again after {served_s:.1f} s, {time.monotonic() - start_s:.1f} s in all"
        )
    return killed


def verdict(load: NumberedLoad, records: Sequence[AppendedRecord], machinery: Machinery) -> ClientVerdict:
    """Return what became of a client's records, and how far it went beyond its quota."""
    mine = [(number, each) for each in records for name, number in [number_of(each.value)] if name == load.name]
    numbers = [number for number, _ in mine]
    found = Counter(numbers)
    passed = [Passed(at_ms=each.at_ms, size=len(each.value) + RECORD_OVERHEAD) for _, each in mine]
    span_s = (passed[-1].at_ms - passed[0].at_ms) / 1000
    return ClientVerdict(
        name=load.name,
        acknowledged=len(load.acknowledged),
        found=len(mine),
        lost=(Counter(load.acknowledged) - found).total(),
        doubled=sum(1 for times in found.values() if times > 1),
        disordered=sum(1 for one, next_one in pairwise(numbers) if next_one < one),
        failures=tuple(load.failures),
        excess_bytes=excess_bytes(
            passed,
            forgiven(passed, machinery.daemon_kills, machinery.kill_times_ms),
            bytes_per_second=QUOTA,
        ),
        allowed_bytes=BURST_BYTES + REQUEST_BYTES + QUOTA * SLACK_S,
        used=sum(each.size for each in passed) / (QUOTA * span_s),
    )


def forgiven(passed: Sequence[Passed], ends: Sequence[DaemonKill], kill_times_ms: Sequence[int]) -> list[Passed]:
    """Return what kills explain: a request per new connection, and what a daemon had not saved at its end."""
    explained = [Passed(at_ms=at_ms, size=REQUEST_BYTES) for at_ms in kill_times_ms]
    for end in ends:
        unsaved = sum(each.size for each in passed if end.saved_ms < each.at_ms <= end.at_ms + ARRIVAL_MS)
        explained.append(Passed(at_ms=end.at_ms, size=unsaved))
    return sorted(explained, key=lambda each: each.at_ms)


def longest_unsaved_ms() -> float:
    """Return how much of what it served a daemon may forget: its period, and the time that two saves take."""
    return (SAVE_S + SLACK_S) * 1000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
