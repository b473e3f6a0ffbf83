"""How closely the workers of one daemon behave as one process: `python benchmarks/fleet/workers_simulation.py`.

The clients, the oracle and the columns are those of `simulation.py`, on the same virtual clock. Workers have the
real buckets and `SharedCharges`: each takes what its clients were charged every `--tick-ms`, its parent passes that on
after as long. `--fleet` has them share as a fleet's members do, with reports every 50 ms.
"""

import argparse
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).parent))

import simulation
from outcome import LIMIT
from scenarios import REST, Scenario, app, spread
from simulation import WINDOW, Way, row

from kafka_quotas.core.clock import VirtualClock
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.topics.thresholds import ThresholdRegistry
from kafka_quotas.enforcement.topics.topic_cache import TopicCache
from kafka_quotas.enforcement.workers.shared_charges import SharedCharge, SharedCharges
from kafka_quotas.stores.store import QuotaEntry


class Worker(simulation.Process):
    """One worker: its quotas, and what it has not heard yet of the others."""

    everyone: ClassVar[list["Worker"]] = []

    def __init__(self, number: int, scenario: Scenario, way: Way, now_ms: int, generator: Random) -> None:
        super().__init__(number, scenario, way, now_ms, generator)
        self.policy = QuotaRegistry(WINDOW, pool=self.pool)
        limits = {"producer_byte_rate": LIMIT}
        names = [app(each) for each in range(scenario.limits)]
        self.policy.apply([QuotaEntry(entity=Entity.of(client_id=name), quotas=limits) for name in names])
        self.manager = self.policy.broker(1).manager(QuotaType.PRODUCE, Mode.KAFKA)
        clock = VirtualClock(now_ms)
        thresholds = ThresholdRegistry(cache=TopicCache(), counters=Counters(), notify=self.ignore, clock=clock)
        self.shared = SharedCharges(self.policy, thresholds)
        self.heard: deque[tuple[int, list[SharedCharge]]] = deque()
        self.everyone.append(self)

    def adjust(self, now_ms: int) -> None:
        if self.way is Way.NONE:
            return
        while self.heard and self.heard[0][0] <= now_ms:
            self.shared.record(self.heard.popleft()[1], now_ms)
        charges = self.shared.take(now_ms)
        for other in self.everyone:
            if charges and other is not self:
                other.heard.append((now_ms + simulation.ADJUST_MS, charges))

    def report(self, now_ms: int) -> bytes:
        del now_ms
        return b""

    def receive(self, data: bytes, position: int, now_ms: int) -> None:
        """Hear nothing by reports."""


def scenarios() -> list[Scenario]:
    base = Scenario(name="2, 1 and 1 client", members=2, clients=spread(2, 2), seconds=60)
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
    arguments = parser.parse_args()
    if arguments.fleet:
        simulation.ADJUST_MS = 20  # type: ignore[misc]
    else:
        simulation.ADJUST_MS = arguments.tick_ms  # type: ignore[misc]
        simulation.Process = Worker  # type: ignore[misc]
    columns = ("quota", "total", "window", "Jain", "oracle", "settled", "kB/s", "took s")
    print(f"{'scenario':26} {'way':7}" + "".join(f"{column:>8}" for column in columns))
    for scenario in scenarios():
        Worker.everyone.clear()
        print(row(replace(scenario, delay_ms=(0, 2), interval_ms=50 if arguments.fleet else 500), Way.FLEET))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
