"""How closely three daemons hold one quota together: `python benchmarks/fleet/real.py [--only ...]`.

Three daemons in front of a cluster of two brokers, 24 connections of librdkafka, kafka-python and Java spread unevenly
(16, 6 and 2), one quota. The fleet's topic is on a third broker, which is stopped for 20 s in one run; in another one
the quota is halved. The same connections at one daemon without a fleet show what Kafka's window itself gives. The bytes
are those of the daemons' event logs, exact and with the time at which they were charged, judged by whole throttle
cycles as `load-test` judges. Aim: within 3 %.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))

import shared_quota
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.brokers.servers import Kafka, kafka_4
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.plan.client_verdict import judge

WINDOW = QuotaWindow(samples=11, window_s=1)
SPREAD = ((10, 4, 2), (4, 1, 1), (2, 0, 0))
"""Connections of librdkafka, kafka-python and Java at each daemon."""
ALONE = ((16, 6, 2),)
"""All of them at one daemon, which is no member of a fleet."""
Spread = tuple[tuple[int, int, int], ...]
SETTLING_MS = 22_000
"""Time after a change of the quota that is not judged: two windows, for the first still has what was allowed before."""
_ONE_DAEMON = "one daemon"
EntityOf = Entity.of


class Fleet:
    """A daemon for each part of the spread, which can be killed and started again."""

    def __init__(self, folder: Path, upstream: Kafka, topic: Kafka, quota: float, spread: Spread) -> None:
        self.folder, self.upstream, self.topic, self.spread = folder, upstream, topic, spread
        self.quotas: list[tuple[float, float]] = []
        self.set_quota(quota)
        self.stacks = [ExitStack() for _ in spread]
        self.ports = ["0"] * len(spread)
        self.daemons = [self.start(number) for number in range(len(spread))]

    def set_quota(self, quota: float) -> None:
        self.quotas.append((time.time() * 1000, quota))
        set_quota(self.folder, EntityOf(client_id=shared_quota.CLIENT_ID), producer_byte_rate=quota)

    def start(self, number: int) -> DaemonProcess:
        folder = self.folder / str(number)
        folder.mkdir(exist_ok=True)
        fleet = ("--fleet", f"kafka://{self.topic.bootstrap}/fleet") if self.spread is SPREAD else ()
        options = (
            "--listen", f"127.0.0.1:{self.ports[number]}", "--scope", "cluster", *fleet,
            "--event-log", str(folder / "events"), "--event-log-rotate", "5",
        )  # fmt: skip
        running = self.stacks[number].enter_context(
            running_daemon(
                folder, upstream=self.upstream.bootstrap, store=f"local:{self.folder / 'quotas.db'}", options=options
            )
        )
        self.ports[number] = running.bootstrap.rpartition(":")[2]
        return running

    def kill_and_start(self, number: int) -> None:
        self.daemons[number].kill()
        time.sleep(3)
        self.daemons[number] = self.start(number)

    def close(self) -> None:
        for stack in self.stacks:
            stack.close()

    def charges(self) -> list[tuple[float, int, int]]:
        """Return (time in ms, bytes, throttle time) of all charges of all daemons, in order."""
        charges = []
        for path in self.folder.glob("*/events/events-*.jsonl*"):
            for line in text_of(path).splitlines():
                try:
                    event = json.loads(line)
                except ValueError:
                    continue  # the torn last line of a daemon that was killed
                if event["quota_type"] == "produce":
                    charges.append((float(event["ts_ms"]), int(event["bytes"]), int(event["throttle_ms"])))
        return sorted(charges)


def text_of(path: Path) -> str:
    """Return the text of a file of an event log, whose name may become that of a whole one meanwhile."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return path.with_suffix("").read_text()


def load(stack: ExitStack, fleet: Fleet) -> None:
    """Start all clients."""
    for daemon, counts in zip(fleet.daemons, fleet.spread, strict=True):
        for work, count in zip((shared_quota.librdkafka, shared_quota.kafka_python), counts[:2], strict=True):
            stack.enter_context(shared_quota.threads(work, daemon.bootstrap, count))
        if counts[2]:
            stack.enter_context(shared_quota.java(daemon.bootstrap, counts[2], fleet.upstream))


def run(name: str, seconds: float, quota: float, kafka: tuple[Kafka, Kafka], act: Callable[[Fleet], None]) -> list[str]:
    """Measure one run, and return a line for each of its quotas."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        fleet = Fleet(Path(folder), *kafka, quota, ALONE if name == _ONE_DAEMON else SPREAD)
        stack.callback(fleet.close)
        load(stack, fleet)
        time.sleep(15)  # the first burst and its rest
        acting = threading.Thread(target=act, args=(fleet,))
        begin_ms = time.time() * 1000
        acting.start()
        time.sleep(seconds)
        acting.join()
        end_ms = time.time() * 1000
        time.sleep(6)  # the last files of the event logs become whole
        charges = fleet.charges()
    starts = [begin_ms, *(at_ms + SETTLING_MS for at_ms, _ in fleet.quotas[1:])]
    ends = [*(at_ms for at_ms, _ in fleet.quotas[1:]), end_ms]
    return [
        line(name, charges, in_force, begin_ms, end_ms)
        for (_, in_force), begin_ms, end_ms in zip(fleet.quotas, starts, ends, strict=True)
    ]


def line(name: str, charges: list[tuple[float, int, int]], quota: float, begin_ms: float, end_ms: float) -> str:
    measured = [each for each in charges if begin_ms <= each[0] < end_ms]
    sizes = [(at_ms, size) for at_ms, size, _ in measured]
    verdict = judge(sizes, quota=quota, window_ms=WINDOW.samples * WINDOW.window_ms, skip_ms=0)
    average = sum(size for _, size in sizes) / (end_ms - begin_ms) * 1000 / quota
    throttled = sum(throttle_ms > 0 for *_, throttle_ms in measured)
    figures = f"{quota / 1e6:5.1f} {average:8.3f} {verdict.ratio:8.3f} {len(measured):8} {throttled:9}"
    return f"{name:24} {figures}  {verdict.evidence}"


def halved(fleet: Fleet) -> None:
    time.sleep(30)
    fleet.set_quota(fleet.quotas[0][1] / 2)
    time.sleep(SETTLING_MS / 1000 + 33)  # three windows of the new quota


def topic_down(topic: Kafka) -> Callable[[Fleet], None]:
    def act(fleet: Fleet) -> None:
        del fleet
        time.sleep(10)
        for server in topic.servers:
            os.kill(server.pid, signal.SIGSTOP)
        time.sleep(20)
        for server in topic.servers:
            os.kill(server.pid, signal.SIGCONT)

    return act


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of the name of the runs to make")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each run is measured (default 60)")
    parser.add_argument("--quota", type=float, default=4e6, help="bytes per second (default 4e6)")
    arguments = parser.parse_args()
    print(f"{'run':24} {'MB/s':>5} {'average':>8} {'cycles':>8} {'requests':>8} {'throttled':>9}")
    with kafka_4(brokers=2) as upstream, kafka_4() as topic:
        admin = AdminClient({"bootstrap.servers": upstream.bootstrap})
        admin.create_topics([NewTopic("bench", shared_quota.PARTITIONS, 1)])["bench"].result(60)
        runs: dict[str, Callable[[Fleet], None]] = {
            _ONE_DAEMON: lambda _: None,
            "steady": lambda _: None,
            "one killed, started": lambda fleet: fleet.kill_and_start(1),
            "topic down for 20 s": topic_down(topic),
            "quota halved": halved,
        }
        for name, act in runs.items():
            if arguments.only in name:
                print(*run(name, arguments.seconds, arguments.quota, (upstream, topic), act), sep="\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
