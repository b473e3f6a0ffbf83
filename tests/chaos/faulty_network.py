"""Three libraries' producers on a network that delays, cuts, resets and trickles, on both sides of the daemon.

The proxies stand at 127.0.0.2, where broker and daemon say that they are, and lead to the same ports of 127.0.0.1.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.brokers.appended_records import appended, make_topic
from tests.support.brokers.java_process import free_port
from tests.support.brokers.servers import Kafka, kafka_4
from tests.support.daemon.fault_proxy import READ_BYTES, Ending, Fault, FaultProxy, Faults, fault_proxy
from tests.support.daemon.process import DaemonProcess, set_quota, store_url
from tests.support.load.numbered_load import RECORD_BYTES, number_of, running_loads
from tests.support.processes.awaiting import await_true

from kafka_quotas.core.model.entity import Entity

ADVERTISED = "127.0.0.2"
QUOTA = 100_000.0
TOPIC = "numbered"
RECORDS = 30
"""How many more each client has to have acknowledged between two looks at the number of cuts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyResult:
    """What became of the records of each client, and what passed."""

    acknowledged: dict[str, int]
    lost: dict[str, int]
    doubled: dict[str, int]
    failures: tuple[str, ...]
    uncharged_bytes: dict[str, int]
    """Of records that the broker has, beyond what the daemon charged; below zero where it charged more."""
    cuts: int

    @property
    def is_right(self) -> bool:
        """Whether every acknowledged record is there once, and what is there was charged."""
        wrong = (*self.failures, *self.lost.values(), *self.doubled.values())
        return not any(wrong) and max(self.uncharged_bytes.values()) <= 0


@dataclass(slots=True)
class Weather:
    """What connections meet: faults that the seed and their number say, or nothing while it is calm."""

    seed: str
    is_calm: bool = True

    def faults(self, number: int) -> Faults:
        """Return what the connection of a number meets.

        Sooner or later it is cut.
        """
        if self.is_calm:
            return Faults()
        chance = random.Random(f"{self.seed}-{number}")
        piece_bytes, delay_s = chance.choice(
            (
                *((READ_BYTES, 0.0),) * 3,
                (READ_BYTES, chance.uniform(0.005, 0.1)),
                (chance.randrange(300, 3000), chance.uniform(0.0, 0.005)),
            )
        )
        to_client = round(10 ** chance.uniform(0.0, 4.0)) if chance.random() < 0.2 else None
        is_cut_early = chance.random() < 0.3  # most often before a client knows where the broker is
        request_bytes = round(10 ** (chance.uniform(0.0, 2.5) if is_cut_early else chance.uniform(3.0, 5.3)))
        ending = chance.choice((Ending.CLOSE, Ending.RESET))
        shape = {"ending": ending, "piece_bytes": piece_bytes, "delay_s": delay_s}
        return Faults(
            to_upstream=Fault(cut_after=request_bytes, **shape), to_client=Fault(cut_after=to_client, **shape)
        )


def endings(proxy: FaultProxy) -> int:
    """Return how many connections were cut."""
    return sum(1 for each in proxy.passages if each.ended.is_set() and each.faults != Faults())


def faulty(seed: int, cuts: int, folder: Path, tell: Callable[[str], None]) -> FaultyResult:
    """Run the loads until so many connections were cut.

    Raises:
        AssertionError: a client did not get on, or the daemon logged a defect.
    """
    set_quota(folder, Entity.of(client_id=None), producer_byte_rate=QUOTA)
    port = free_port()
    weathers = (Weather(f"client-{seed}"), Weather(f"broker-{seed}"))
    with kafka_4(quick_start=True, advertised_host=ADVERTISED) as kafka, _network(kafka, port, weathers) as sides:
        upstream = kafka.bootstrap.replace("127.0.0.1", ADVERTISED)
        daemon = DaemonProcess(
            [
                *("--upstream", upstream, "--listen", f"127.0.0.1:{port}", "--advertised-host", ADVERTISED),
                *("--broker-address", f"1={port}"),
                *("--store", store_url(folder), "--control", str(folder / "control.sock")),
                *("--event-log", str(folder / "events")),
            ]
        )
        try:
            make_topic(kafka.bootstrap, TOPIC)
            _set_calm(weathers, is_calm=False)
            with running_loads(f"{ADVERTISED}:{port}", TOPIC) as loads:
                while sum(map(endings, sides)) < cuts:
                    for load in loads:
                        load.goes_on(RECORDS)
                    tell(f"{sum(map(endings, sides))} connections were cut")
                _set_calm(weathers, is_calm=True)
                for load in loads:
                    load.stop()
            found = Counter(number_of(record.value) for record in appended(kafka.bootstrap, TOPIC))
            await_true(lambda: daemon.status().connections == 0, "connections end", timeout_s=60)
        finally:
            daemon.stop()
    assert not daemon.lines("Traceback"), "".join(daemon.log)
    assert not daemon.lines("internal error"), "".join(daemon.log)
    charged = _produced(folder / "events")
    names = [load.name for load in loads]
    passed = Counter(name for name, _ in found.elements())
    return FaultyResult(
        acknowledged={load.name: len(load.acknowledged) for load in loads},
        lost={load.name: sum((load.name, number) not in found for number in load.acknowledged) for load in loads},
        doubled={name: sum(times - 1 for (owner, _), times in found.items() if owner == name) for name in names},
        failures=tuple(failure for load in loads for failure in load.failures),
        uncharged_bytes={name: passed[name] * RECORD_BYTES - charged[name] for name in names},
        cuts=sum(map(endings, sides)),
    )


def _set_calm(weathers: Sequence[Weather], *, is_calm: bool) -> None:
    for weather in weathers:
        weather.is_calm = is_calm


@contextmanager
def _network(kafka: Kafka, port: int, weathers: tuple[Weather, Weather]) -> Iterator[tuple[FaultProxy, FaultProxy]]:
    """The proxies in front of the daemon at a port, and in front of the broker."""
    broker_port = int(kafka.bootstrap.rpartition(":")[2])
    at_client, at_broker = (weather.faults for weather in weathers)
    with (
        fault_proxy(f"127.0.0.1:{port}", at_client, host=ADVERTISED, port=port) as client_side,
        fault_proxy(kafka.bootstrap, at_broker, host=ADVERTISED, port=broker_port) as broker_side,
    ):
        yield client_side, broker_side


def _produced(events: Path) -> Counter[str]:
    produced: Counter[str] = Counter()
    for file in events.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if event["quota_type"] == "produce":
                produced[event["client_id"]] += event["bytes"]
    return produced
