"""KIP-124's experiments in front of a real broker: `python benchmarks/daemon/request_time.py [--seconds 15]`.

A consumer that polls without waiting, a flood of requests that the broker refuses, and a group of 10 and then 20
members that join again and again, each first without a limit and then with `request_percentage`. Printed: requests per
second, the thread time they take by the daemon's (estimated) accounts, and the latency of a calm client meanwhile. Aim:
with the limit the thread time is the limit's, give or take 10 %, for every kind of flood.
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.brokers.servers import Kafka, kafka_4

from kafka_quotas.commands.testbed.daemon_process import running_daemon
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.enforcement.config.cost_model_file import DEFAULT_COSTS
from kafka_quotas.enforcement.control.client import ask_status
from kafka_quotas.stores import open_store
from kafka_quotas.stores.kafka.broker_client import BrokerClient, KafkaAccess
from kafka_quotas.stores.store import Alteration
from kafka_quotas.wire.client.probes import CostProbe, Target, fetch_probe, small_probes

WINDOW = QuotaWindow(samples=3, window_s=1)
PERCENTAGE = 0.5
FLOOD, CALM = "flood", "calm"
PATIENCE_S = 30.0
METADATA, JOIN_GROUP = ApiKey.METADATA, ApiKey.JOIN_GROUP


@dataclass
class Client:
    """Asks one thing again and again, and notes how long each answer took (s)."""

    bootstrap: str
    client_id: str
    probe: CostProbe
    pause_s: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        """Send requests until the stop."""
        host, _, port = self.bootstrap.rpartition(":")
        peer = BrokerClient((host, int(port)), access=KafkaAccess(client_id=self.client_id), url="kafka://upstream")
        try:
            while not stop.is_set():
                begin = time.monotonic()
                peer.ask(self.probe, contact_deadline_s=begin + PATIENCE_S, deadline_s=begin + PATIENCE_S)
                self.latencies.append(time.monotonic() - begin)
                stop.wait(self.pause_s)
        finally:
            peer.close()


@contextmanager
def running(clients: list[Client]) -> Iterator[None]:
    stop = threading.Event()
    threads = [threading.Thread(target=client.run, args=(stop,), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)


def store_of(folder: Path) -> str:
    return f"local:{folder / 'quotas.db'}"


def set_limit(store_url: str, percentage: float | None) -> None:
    store = open_store(store_url)
    store.alter([Alteration(entity=Entity.of(client_id=FLOOD), changes={"request_percentage": percentage})])
    store.close()


def experiment(name: str, folder: Path, flood: list[Client], *, seconds: float) -> None:
    """Print one line without a limit and one with it."""
    bootstrap = flood[0].bootstrap
    calm_probe = small_probes(Target("calm", 0, "calm"))[0]
    for percentage in (None, PERCENTAGE):
        set_limit(store_of(folder), percentage)
        calm = Client(bootstrap, CALM, calm_probe, pause_s=0.02)
        with running([calm, *flood]):
            time.sleep(WINDOW.samples * WINDOW.window_s + 1)  # the burst of the first windows
            before = sum(len(client.latencies) for client in flood)
            seen = len(calm.latencies)
            time.sleep(seconds)
            requests = sum(len(client.latencies) for client in flood) - before
            rows = [row for row in ask_status(folder / "control.sock").buckets if row.client_id == FLOOD]
        share = requests / seconds * DEFAULT_COSTS.request_nanos(flood[0].probe.api_key, 100) / 1e7
        told = f", daemon's account {rows[0].observed:.1f} %" if rows else ""
        latencies = sorted(calm.latencies[seen:])
        p50, p99 = statistics.median(latencies) * 1000, latencies[int(0.99 * (len(latencies) - 1))] * 1000
        limit = "no limit" if percentage is None else f"{percentage:g} %"
        print(
            f"{name:<22}{limit:<10}{requests / seconds:>9.0f} requests/s, {share:.1f} % of a thread (estimated){told}; "
            f"calm client p50 {p50:.1f} ms, p99 {p99:.1f} ms"
        )


def deny(kafka: Kafka, topic: str) -> None:
    arguments = ["--bootstrap-server", kafka.bootstrap, "--add", "--deny-principal", "User:*", "--topic", topic]
    done = kafka.run_tool("org.apache.kafka.tools.AclCommand", arguments)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each line is measured (default 15)")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as name, kafka_4() as kafka:
        folder = Path(name)
        store_url = store_of(folder)
        deny(kafka, "forbidden")
        with running_daemon(upstream=kafka.bootstrap, store_url=store_url, window=WINDOW, folder=folder) as daemon:

            def clients(count: int, probe: Callable[[Target], CostProbe], topic: str = "open") -> list[Client]:
                target = Target(topic, 0, "flood")
                return [Client(daemon.bootstrap, FLOOD, probe(target)) for _ in range(count)]

            def poll(target: Target) -> CostProbe:
                return fetch_probe(target, offset=0, max_bytes=1024)

            def named(api_key: int) -> Callable[[Target], CostProbe]:
                return lambda target: next(probe for probe in small_probes(target) if probe.api_key == api_key)

            for title, flood in (
                ("fetch.max.wait.ms=0", clients(1, poll)),
                ("unauthorised", clients(4, named(METADATA), "forbidden")),
                ("10 group members", clients(10, named(JOIN_GROUP))),
                ("20 group members", clients(20, named(JOIN_GROUP))),
            ):
                experiment(title, folder, flood, seconds=seconds)


if __name__ == "__main__":
    main()
