"""How closely the workers of one daemon behave as one process: `python benchmarks/fleet/workers_simulation.py`.

The clients, the oracle and the columns are those of `simulation.py`, on the same virtual clock. Workers have the
real buckets and `SharedCharges`: each takes what its clients were charged every `--tick-ms`, its parent passes that on
after as long. `--fleet` has them share as a fleet's members do, with reports every 50 ms. `--in-fleets N` runs fleets
whose members have N workers each, 20 to 100 ms from each other.
"""

import argparse
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tests have the clock
sys.path.insert(0, str(Path(__file__).parent))

import simulation
from outcome import LIMIT
from scenarios import REST, Scenario, app, spread
from simulation import ADJUST_MS, WINDOW, Way, row
from tests.support.core.virtual_clock import VirtualClock

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_bucket import QuotaBucket
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.config.listener_settings import ListenerSettings
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas
from kafka_quotas.enforcement.proxy.proxy_quotas import ProxyQuotas
from kafka_quotas.enforcement.sharing.buckets import SharedBucket
from kafka_quotas.enforcement.sharing.charges import SharedCharge, SharedCharges
from kafka_quotas.enforcement.sharing.fleet import Sharing
from kafka_quotas.enforcement.telemetry.log import LogEvent
from kafka_quotas.stores.store import QuotaEntry

HERE = Address(host="127.0.0.1", port=1)


class Charged:
    """The quotas of one process, and what it has not heard yet of the others."""

    def __init__(self, scenario: Scenario, now_ms: int) -> None:
        listener = ListenerSettings(upstreams=(HERE,), listen=HERE)
        settings = DaemonSettings(
            main=listener, listeners=(listener,), rules=EnforcementRules(window=WINDOW, mutation_window=WINDOW)
        )
        quotas = ProxyQuotas(settings, ConnectionQuotas(WINDOW), VirtualClock(now_ms), notify=ignore)
        policy, self.pool = quotas.registry, quotas.registry.pool
        limits = {"producer_byte_rate": LIMIT}
        names = [app(each) for each in range(scenario.limits)]
        policy.apply([QuotaEntry(entity=Entity.of(client_id=name), quotas=limits) for name in names])
        self.manager = policy.broker(1).manager(QuotaType.PRODUCE, Mode.KAFKA)
        self.charges = SharedCharges(quotas)
        self.heard: deque[tuple[int, list[SharedCharge], bool]] = deque()

    def hear(self, now_ms: int) -> None:
        while self.heard and self.heard[0][0] <= now_ms:
            _, charges, are_own = self.heard.popleft()
            if are_own:
                self.charges.echoed(charges)
            else:
                self.charges.record(charges, now_ms)


def ignore(event: LogEvent) -> None:
    """Read no log."""


class Worker(simulation.Process):
    """One worker of a daemon without a fleet, which hears of the others' charges a tick later."""

    everyone: ClassVar[list["Worker"]] = []

    def __init__(self, number: int, scenario: Scenario, way: Way, now_ms: int, generator: Random) -> None:
        super().__init__(number, scenario, way, now_ms, generator)
        self.charged = Charged(scenario, now_ms)
        self.pool = self.charged.pool
        self.manager = self.charged.manager
        self.everyone.append(self)

    def adjust(self, now_ms: int) -> None:
        if self.way is Way.NONE:
            return
        self.charged.hear(now_ms)
        charges = self.charged.charges.take(now_ms)
        for other in self.everyone:
            if charges and other is not self:
                other.charged.heard.append((now_ms + simulation.ADJUST_MS, charges, False))

    def report(self, now_ms: int) -> bytes:
        del now_ms
        return b""

    def receive(self, data: bytes, position: int, now_ms: int) -> None:
        """Hear nothing by reports."""


class DaemonOfWorkers(simulation.Process):
    """A fleet's member: a parent that shares with the others, and workers that serve its clients in turn."""

    workers_each: ClassVar[int] = 2

    def __init__(self, number: int, scenario: Scenario, way: Way, now_ms: int, generator: Random) -> None:
        super().__init__(number, scenario, way, now_ms, generator)
        self.parent = Charged(scenario, now_ms)
        self.pool = self.parent.pool
        self.manager = self.parent.manager
        self.sharing = Sharing(
            self.sharing.number, self.settings, now_ms, notify=self.ignore, recorder=self.parent.charges
        )
        count = self.workers_each if way is Way.FLEET else 0
        self.workers = [Charged(scenario, now_ms) for _ in range(count)]
        self.members = scenario.members
        self.adjusted_ms = 0

    def serving(self, client: int) -> ClientQuotaManager:
        return self.workers[client // self.members % len(self.workers)].manager if self.workers else self.manager

    def shared(self, bucket: QuotaBucket) -> SharedBucket:
        self.parent.charges.offered(bucket)
        return bucket

    def adjust(self, now_ms: int) -> None:
        tick_ms = simulation.ADJUST_MS
        for process in (self.parent, *self.workers):
            process.hear(now_ms)
        if now_ms - self.adjusted_ms >= ADJUST_MS:
            self.adjusted_ms = now_ms
            super().adjust(now_ms)
        for process in (self.parent, *self.workers):
            charges = process.charges.take(now_ms)
            for other in (self.parent, *self.workers) if charges else ():
                # From worker to worker by way of the parent.
                ticks = 1 if self.parent in (process, other) else 2
                if other is not process or other is not self.parent:
                    other.heard.append((now_ms + ticks * tick_ms, charges, other is process))


def in_fleets() -> list[Scenario]:
    base = Scenario(name="2, 8 clients each", members=2, clients=spread(2, 16))
    uneven = spread(3, 24, [16, 6, 2])
    return [
        base,
        replace(base, name="3, 16/6/2", members=3, clients=uneven),
        replace(base, name="3, rest of 30 s", members=3, clients=spread(3, 24, spans=REST), changed_s=60),
        replace(
            base, name="3, one dies and returns", members=3, clients=uneven, dead=((0, 30_000, 35_000),), changed_s=35
        ),
        replace(base, name="10, even", members=10, clients=spread(10, 40)),
    ]


def scenarios(*, interval_ms: int) -> list[Scenario]:
    base = Scenario(
        name="2, 1 and 1 client",
        members=2,
        clients=spread(2, 2),
        seconds=60,
        delay_ms=(0, 2),
        interval_ms=interval_ms,
    )
    return [
        base,
        replace(base, name="2, 8 clients each", clients=spread(2, 16)),
        replace(base, name="2, very fast clients", clients=spread(2, 16, think_ms=2)),
        replace(base, name="2, rest of 30 s", clients=spread(2, 16, spans=REST), seconds=90, changed_s=60),
        replace(base, name="4, 20/1/1/1", members=4, clients=spread(4, 23, [20, 1, 1, 1])),
        replace(base, name="16, 1 client each", members=16, clients=spread(16, 16)),
        replace(base, name="16, 3 clients each", members=16, clients=spread(16, 48)),
        replace(base, name="16, 3 very fast each", members=16, clients=spread(16, 48, think_ms=2)),
        replace(base, name="16, all on one", members=16, clients=spread(16, 16, [16])),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tick-ms", type=int, default=10, help="pause between two exchanges (default 10)")
    parser.add_argument("--fleet", action="store_true", help="share by a fleet's reports instead")
    parser.add_argument("--in-fleets", type=int, metavar="N", help="run fleets of daemons with N workers each instead")
    arguments = parser.parse_args()
    if arguments.in_fleets:
        simulation.ADJUST_MS = arguments.tick_ms  # type: ignore[misc]
        simulation.Process = DaemonOfWorkers  # type: ignore[misc]
        DaemonOfWorkers.workers_each = arguments.in_fleets
    elif arguments.fleet:
        simulation.ADJUST_MS = 20  # type: ignore[misc]
    else:
        simulation.ADJUST_MS = arguments.tick_ms  # type: ignore[misc]
        simulation.Process = Worker  # type: ignore[misc]
    columns = ("quota", "total", "window", "Jain", "oracle", "settled", "kB/s", "took s")
    print(f"{'scenario':26} {'way':7}" + "".join(f"{column:>8}" for column in columns))
    local = scenarios(interval_ms=50 if arguments.fleet else 500)
    for scenario in in_fleets() if arguments.in_fleets else local:
        Worker.everyone.clear()
        print(row(scenario, Way.FLEET))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
