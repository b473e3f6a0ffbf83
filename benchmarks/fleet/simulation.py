"""How closely a fleet behaves as one broker: `python benchmarks/fleet/simulation.py`.

Clients that send as fast as they may draw on one quota, through 2 to 200 members with the real buckets, sharing and
report format on a virtual clock; the oracle is one quota manager with the same clients. The medium delays reports,
and loses, doubles and reorders some. Printed per scenario and way of sharing:

- `quota`: bytes of the oracle as a multiple of what the quota allows in that time, bursts not counted;
- `total`: bytes of the fleet as a multiple of the oracle's;
- `window`: most bytes in any quota window as a multiple of the most of the oracle;
- `Jain`: fairness between equal clients (1: all equal), of the fleet and of the oracle;
- `settled`: seconds after the last change from which on every window carries the quota within 5 %;
- `kB/s`: on the topic, with 75 bytes per record for Kafka's batch.

`--way fleet` is what daemons do, `--way none` members that know nothing of each other.
"""

import argparse
import heapq
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))

from outcome import LIMIT, Outcome
from scenarios import Client, Scenario, app, scenarios

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.bucket_pool import BucketPool
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.enforcement.config.address import parse_topic
from kafka_quotas.enforcement.config.settings import FleetSettings
from kafka_quotas.enforcement.sharing.buckets import SharedBucket
from kafka_quotas.enforcement.sharing.fleet import ADJUST_MS, Sharing
from kafka_quotas.enforcement.sharing.report import name_hash
from kafka_quotas.enforcement.telemetry.log import LogEvent

WINDOW: Final = QuotaWindow()
SETTINGS: Final = FleetSettings(target=parse_topic("kafka://broker:9092/fleet"), name="simulation")
KAFKA_BYTES: Final = 75
START_MS: Final = 1_000_000


class Way(StrEnum):
    """A way of sharing."""

    FLEET = "fleet"
    NONE = "none"


class Process:
    """One member: its quota manager and its part in the fleet."""

    def __init__(self, number: int, scenario: Scenario, way: Way, now_ms: int, generator: random.Random) -> None:
        self.number = number
        self.pool = BucketPool()
        self.manager = ClientQuotaManager(QuotaType.PRODUCE, WINDOW, pool=self.pool)
        for each in range(scenario.limits):
            self.manager.limits.update(Entity.of(client_id=app(each)), LIMIT)
        self.way = way
        self.sharing = Sharing(
            generator.getrandbits(64), SETTINGS, now_ms, name=f"member-{number}", windows=(WINDOW, WINDOW),
            notify=self.ignore, interval_ms=scenario.interval_ms,
        )  # fmt: skip
        self.bystanders = [self.manager.limiter("ANONYMOUS", f"other-{each}") for each in range(scenario.bystanders)]
        if scenario.bystanders:
            self.manager.limits.update(Entity.of(client_id=None), LIMIT)
        self.muted: dict[int, tuple[str, int]] = {}
        """Until when each client is throttled, with its name."""

    def ignore(self, event: LogEvent) -> None:
        """Read no log."""

    def serving(self, client: int) -> ClientQuotaManager:
        """Return what a client's requests are charged to."""
        del client
        return self.manager

    def shared(self, bucket: QuotaBucket) -> SharedBucket:
        """Return a bucket as the fleet has it."""
        return bucket

    def scan(self, now_ms: int) -> None:
        """Offer the buckets as the daemon does, and have the idle ones use this member's share alone."""
        for slice_ in self.pool.walk():
            for bucket in slice_:
                if bucket.recorded_ms is not None and now_ms - bucket.recorded_ms <= 2 * self.sharing.interval_ms:
                    self.sharing.offer(name_hash(str(bucket.name)), self.shared(bucket), now_ms)

    def adjust(self, now_ms: int) -> None:
        if self.way is Way.FLEET:
            self.pool.idle_share = self.sharing.idle_share
            self.scan(now_ms)
            self.sharing.adjust(now_ms)

    def receive(self, data: bytes, position: int, now_ms: int) -> None:
        if self.way is Way.FLEET:
            self.sharing.receive(data, position, now_ms)

    def report(self, now_ms: int) -> bytes:
        waiting: Counter[int] = Counter()
        for name, until_ms in self.muted.values():
            if until_ms > now_ms:
                bucket = self.manager.resolve("ANONYMOUS", name)[0]
                assert bucket is not None
                waiting[name_hash(str(bucket.name))] += 1
        return self.sharing.report(now_ms, waiting)


class Simulation:
    """One run of one scenario."""

    def __init__(self, scenario: Scenario, way: Way, *, members: int | None = None) -> None:
        self.scenario, self.way = scenario, way
        self.generator = random.Random(7)
        self.events: list[tuple[int, int, Callable[[int], None]]] = []
        self.order = count()
        self.outcome = Outcome(seconds=scenario.seconds)
        self.position = count()
        self.log_ms = 0
        self.one = members == 1
        self.now_ms = START_MS
        self.processes = [
            Process(number, scenario, way, START_MS, self.generator) for number in range(members or scenario.members)
        ]
        self.delivered_ms: dict[int, int] = {}

    def at(self, at_ms: int, call: Callable[[int], None]) -> None:
        heapq.heappush(self.events, (at_ms, next(self.order), call))

    def run(self) -> Outcome:
        scenario = self.scenario
        for number, client in enumerate(scenario.clients):
            self.at(START_MS + 20_000 + self.generator.randrange(200), self.client(number, client))
        if not self.one:
            for process in self.processes:
                self.start(process, START_MS + self.generator.randrange(scenario.interval_ms))
            for member, _, to_ms in scenario.dead:
                self.at(START_MS + 20_000 + to_ms, self.restart(member))
        end_ms = START_MS + 20_000 + scenario.seconds * 1000
        while self.events and self.events[0][0] < end_ms:
            at_ms, _, call = heapq.heappop(self.events)
            self.now_ms = at_ms
            call(at_ms)
        return self.outcome

    def is_in(self, spans: tuple[tuple[int, int, int], ...], member: int, now_ms: int) -> bool:
        since_ms = now_ms - START_MS - 20_000
        return any(which == member and begin <= since_ms < end for which, begin, end in spans)

    def home(self, client: Client, now_ms: int) -> Process:
        if self.one:
            return self.processes[0]
        member = client.member
        if client.move is not None and now_ms - START_MS - 20_000 >= client.move[0]:
            member = client.move[1]
        while self.is_in(self.scenario.dead, member, now_ms):
            member = (member + 1) % len(self.processes)
        return self.processes[member]

    def client(self, number: int, client: Client) -> Callable[[int], None]:
        counted_ms = max(self.scenario.seconds * 500, self.scenario.changed_s * 1000)

        def send(now_ms: int) -> None:
            since_ms = now_ms - START_MS - 20_000
            for begin, end in client.spans:
                if begin <= since_ms < end:
                    break
                if since_ms < begin:
                    self.at(START_MS + 20_000 + begin + self.generator.randrange(200), send)
                    return
            else:
                return
            process = self.home(client, now_ms)
            limiter = process.serving(number).limiter("ANONYMOUS", client.name)
            throttle_ms = limiter.record(client.request, now_ms)
            process.muted[number] = (client.name, now_ms + throttle_ms)
            if client.name == "app":
                self.outcome.add(number, client.request, since_ms, counted_ms)
            think_ms = max(1, round(client.think_ms * self.generator.uniform(0.5, 1.5)))
            self.at(now_ms + throttle_ms + think_ms, send)

        return send

    def start(self, process: Process, at_ms: int) -> None:
        def adjust(now_ms: int) -> None:
            if self.processes[process.number] is process and not self.is_in(self.scenario.dead, process.number, now_ms):
                process.adjust(now_ms)
                self.at(now_ms + ADJUST_MS, adjust)

        def report(now_ms: int) -> None:
            if self.processes[process.number] is not process or self.is_in(self.scenario.dead, process.number, now_ms):
                return
            self.at(now_ms + self.scenario.interval_ms, report)
            for limiter in process.bystanders:
                limiter.record(1000, now_ms)
            if self.way is not Way.FLEET:
                return
            data = process.report(now_ms)
            since_ms = now_ms - START_MS - 20_000
            if self.is_in(self.scenario.stalled, process.number, now_ms):
                return
            if self.scenario.outage[0] <= since_ms < self.scenario.outage[1]:
                return
            if since_ms >= 0:
                self.outcome.published += len(data) + KAFKA_BYTES
            if self.generator.random() >= self.scenario.loss:
                self.publish(data, now_ms)
            if self.generator.random() < self.scenario.doubled:
                self.publish(data, now_ms + self.generator.randrange(1500))

        self.at(at_ms, adjust)
        self.at(at_ms + 1, report)

    def publish(self, data: bytes, now_ms: int) -> None:
        """Put a report into the one order after half of its delay, and bring it to each member after the rest."""
        low, high = self.scenario.delay_ms

        def arrive(at_ms: int) -> None:
            position = next(self.position)
            for process in list(self.processes):
                # Each reads in the order of the log.
                due_ms = max(at_ms + self.generator.randint(low, high) // 2, self.delivered_ms.get(id(process), 0))
                self.delivered_ms[id(process)] = due_ms
                self.at(due_ms, lambda then_ms, to=process: self.deliver(to, data, position, then_ms))

        self.at(now_ms + self.generator.randint(low, high) // 2, arrive)

    def deliver(self, process: Process, data: bytes, position: int, now_ms: int) -> None:
        if not self.is_in(self.scenario.stalled, process.number, now_ms):
            process.receive(data, position, now_ms)

    def restart(self, member: int) -> Callable[[int], None]:
        def again(now_ms: int) -> None:
            process = Process(member, self.scenario, self.way, now_ms, self.generator)
            self.processes[member] = process
            self.start(process, now_ms)

        return again


def row(scenario: Scenario, way: Way) -> str:
    began = time.monotonic()
    oracle = Simulation(replace(scenario, bystanders=0), Way.NONE, members=1).run()
    result = Simulation(scenario, way).run()
    clients = sum(client.name == "app" for client in scenario.clients)
    figures = (
        oracle.total() / LIMIT / scenario.seconds,
        result.total() / oracle.total(),
        max(result.windows(110)) / max(oracle.windows(110)),
        result.jain(clients),
        oracle.jain(clients),
        result.settled_s(scenario.changed_s),
        result.published / scenario.seconds / 1000,
        time.monotonic() - began,
    )
    return f"{scenario.name:26} {way.value:7}" + "".join(f"{figure:8.3f}" for figure in figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of the names of the scenarios to run")
    parser.add_argument("--seconds", type=int, help="most simulated seconds of a scenario (default: its own)")
    parser.add_argument("--way", choices=[each.value for each in Way], default=Way.FLEET.value)
    arguments = parser.parse_args()
    columns = ("quota", "total", "window", "Jain", "oracle", "settled", "kB/s", "took s")
    print(f"{'scenario':26} {'way':7}" + "".join(f"{column:>8}" for column in columns))
    for scenario in scenarios():
        if arguments.only in scenario.name:
            seconds = min(scenario.seconds, arguments.seconds or scenario.seconds)
            print(row(replace(scenario, seconds=seconds), Way(arguments.way)))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
