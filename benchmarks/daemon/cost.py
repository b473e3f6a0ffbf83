"""What the daemon costs, and how well it holds a quota: `python benchmarks/daemon/cost.py [cost] [tls] [quota]`.

cost: CPU time of the daemon per megabyte and per request, with a quota in force that is never reached, beside HAProxy
in TCP mode (Debian's `haproxy`), which relays and nothing else, without and with `option splice-auto`, on the same load
in the same run. `--compiled FOLDER` adds a daemon with a compiled hot path, whose wheel is in a folder: `pip install
--no-deps --target FOLDER WHEEL`. Aims, compiled against HAProxy spliced: 1.0 times its CPU time for bulk data and for
small requests with 5 in flight, 1.1 times with 1 in flight. tls: the same where TLS ends at the proxy.

Other claims have scripts of their own: `latency.py` (what is added to a round trip, memory), `shared_quota.py`
(real clients on 1 to 200 connections), `request_time.py` (the experiments of KIP-124).

quota: the rate of a librdkafka producer that could do ten times as much, under a quota of 20 MB/s over 60 s against
librdkafka's embedded cluster, judged by whole throttle cycles. Aim: within 2 %.
"""

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import proxy_load
from confluent_kafka import Producer

from kafka_quotas.commands.testbed.daemon_process import free_ports, running_daemon
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.plan.client_verdict import judge
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration

WINDOW = QuotaWindow()
QUOTA = 20e6
NEVER_REACHED = 1e12
RECORD_BYTES = 10_000
KIB = 1024
WORKLOADS = (
    proxy_load.produce("produce 64 KiB", size=64 * KIB, in_flight=5, count=16_000),
    proxy_load.produce("produce 1 MiB", size=1024 * KIB, in_flight=5, count=1000),
    proxy_load.fetch("fetch 1 MiB", size=1024 * KIB, count=1000),
    proxy_load.produce("100 B, 5 in flight", size=200, in_flight=5, count=60_000),
    proxy_load.produce("100 B, 1 in flight", size=200, in_flight=1, count=30_000),
)
HAPROXY = """global
  nbthread 1
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
{options}listen relay
  bind 127.0.0.1:{listen}{tls}
  server broker 127.0.0.1:{upstream}
"""

HAPROXY_OPTIONS = {"haproxy": "", "spliced": "  option splice-auto\n"}
"""By name; splicing leaves bulk data to the kernel, as an operator would have it."""


def cpu_ns(pid: int) -> int:
    """CPU time of a process, all its threads."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def set_quota(store_url: str, **quotas: float) -> None:
    store = open_store(store_url)
    store.alter([Alteration(entity=Entity.of(client_id=proxy_load.CLIENT_ID.decode()), changes=quotas)])
    store.close()


@contextmanager
def haproxy(
    folder: Path, upstream: int, certificate: Path | None = None, *, options: str = ""
) -> Iterator[tuple[int, int]]:
    """Yield the port and process id of HAProxy in TCP mode with one thread, which ends TLS if it has a certificate.

    `options` are further lines of its defaults.
    """
    port = free_ports(1)
    config = folder / "haproxy.cfg"
    tls = "" if certificate is None else f" ssl crt {certificate}"
    config.write_text(HAPROXY.format(listen=port, upstream=upstream, tls=tls, options=options))
    process = subprocess.Popen(["haproxy", "-db", "-f", str(config)], stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port)
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit(f"nothing listens on port {port}")


def make_certificate(folder: Path) -> Path:
    """Write a key and its certificate into one PEM file."""
    key, certificate, both = folder / "key.pem", folder / "certificate.pem", folder / "both.pem"
    subject = ["-subj", "/CN=localhost", "-days", "2"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run([*command, *subject], check=True, stderr=subprocess.DEVNULL)
    both.write_text(key.read_text() + certificate.read_text())
    return both


def tls_options(folder: Path, certificate: Path) -> list[str]:
    """Return the arguments with which TLS ends at the daemon."""
    listener = folder / "listener.properties"
    listener.write_text(
        f"security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location={certificate}\nssl.client.auth=none\n"
    )
    return ["--listener-config", str(listener)]


@contextmanager
def importing(folder: Path | None) -> Iterator[None]:
    """Have processes that start within the block import packages from a folder first, if there is one."""
    before = os.environ.get("PYTHONPATH")
    if folder is not None:
        os.environ["PYTHONPATH"] = str(folder)
    try:
        yield
    finally:
        if before is not None:
            os.environ["PYTHONPATH"] = before
        elif folder is not None:
            del os.environ["PYTHONPATH"]


def start_proxies(
    stack: ExitStack, upstream: int, certificate: Path | None, compiled: Path | None
) -> dict[str, tuple[int, int]]:
    """Start all proxies in front of a broker and return (port, process id) of each by its name."""
    proxies: dict[str, tuple[int, int]] = {}
    for name, packages in {"daemon": None, **({} if compiled is None else {"compiled": compiled})}.items():
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store_url = f"local:{folder / 'quotas.db'}"
        set_quota(store_url, producer_byte_rate=NEVER_REACHED, consumer_byte_rate=NEVER_REACHED)
        options = [] if certificate is None else tls_options(folder, certificate)
        with importing(packages):
            daemon = stack.enter_context(
                running_daemon(
                    upstream=f"127.0.0.1:{upstream}",
                    store_url=store_url,
                    window=WINDOW,
                    folder=folder,
                    options=options,
                )
            )
        proxies[name] = (int(daemon.bootstrap.rpartition(":")[2]), daemon.pid)
    if not shutil.which("haproxy"):
        print("haproxy is not installed (apt-get install haproxy): the daemon alone")
        return proxies
    for name, options in HAPROXY_OPTIONS.items():
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        proxies[name] = stack.enter_context(haproxy(folder, upstream, certificate, options=options))
    return proxies


def cost(rounds: int, *, scale: float, tls: bool = False, compiled: Path | None = None) -> None:
    """Print CPU time per megabyte and per request, daemon beside HAProxy, as the median of the rounds."""
    print("TLS ends at the proxy:" if tls else "plaintext:")
    workloads = [replace(workload, count=max(1, round(workload.count * scale))) for workload in WORKLOADS]
    spent: dict[tuple[str, str], list[int]] = {}
    with ExitStack() as stack:
        upstream = stack.enter_context(proxy_load.broker())
        certificate = make_certificate(Path(stack.enter_context(tempfile.TemporaryDirectory()))) if tls else None
        proxies = start_proxies(stack, upstream, certificate, compiled)
        for _ in range(rounds):
            for workload in workloads:
                for proxy, (port, pid) in proxies.items():
                    before = cpu_ns(pid)
                    proxy_load.run(port, workload, tls=tls)
                    spent.setdefault((workload.name, proxy), []).append(cpu_ns(pid) - before)
    print_cost(workloads, spent, tuple(proxies))


def print_cost(
    workloads: list[proxy_load.Workload], spent: dict[tuple[str, str], list[int]], proxies: tuple[str, ...]
) -> None:
    references = [name for name in HAPROXY_OPTIONS if name in proxies]
    times = "".join(f"{'/ ' + name:>11}" for name in references)
    print(f"{'workload':<20}{'proxy':<10}{'us/MB':>9}{'us/request':>12}{times}   all rounds, us/request")
    for workload in workloads:
        for proxy in proxies:
            each = spent[workload.name, proxy]
            median = statistics.median(each)
            times = "".join(
                f"{median / statistics.median(spent[workload.name, name]):>11.2f}" if proxy != name else f"{'':>11}"
                for name in references
            )
            rounds = " ".join(f"{ns / 1000 / workload.count:.1f}" for ns in sorted(each))
            print(
                f"{workload.name:<20}{proxy:<10}{median / 1000 / workload.megabytes:>9.0f}"
                f"{median / 1000 / workload.count:>12.1f}{times}   {rounds}"
            )


def quota(seconds: float) -> None:
    """Print the rate that a greedy librdkafka producer got, and what it could get without a quota."""
    cluster = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    (address,) = (f"{broker.host}:{broker.port}" for broker in cluster.list_topics(timeout=10).brokers.values())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store_url = f"local:{folder / 'quotas.db'}"
        with running_daemon(upstream=address, store_url=store_url, window=WINDOW, folder=folder) as daemon:
            set_quota(store_url, consumer_byte_rate=NEVER_REACHED)
            free = acknowledged(daemon.bootstrap, 5.0)
            rate = sum(size for _, size in free) / (free[-1][0] - free[0][0]) * 1000
            print(f"without a quota: {rate / 1e6:.0f} MB/s")
            set_quota(store_url, producer_byte_rate=QUOTA)
            time.sleep(WINDOW.samples * WINDOW.window_s + 2)  # what was produced without a quota must not count
            before = cpu_ns(daemon.pid)
            acks = acknowledged(daemon.bootstrap, seconds)
            spent = cpu_ns(daemon.pid) - before
    total = sum(size for _, size in acks) / 1e6
    verdict = judge(acks, quota=QUOTA, window_ms=WINDOW.samples * WINDOW.window_ms)
    print(f"with a quota of {QUOTA / 1e6:g} MB/s over {seconds:g} s: {verdict.evidence}; holds: {verdict.ok}")
    print(f"daemon: {spent / 1000 / total:.0f} us of CPU per MB, {spent / 1e7 / seconds:.1f} % of one core")


def acknowledged(bootstrap: str, seconds: float) -> list[tuple[float, int]]:
    """(time in ms, bytes) of every record that was acknowledged."""
    acks: list[tuple[float, int]] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": proxy_load.CLIENT_ID.decode(),
            "acks": "1",
            "linger.ms": "5",
            "batch.size": "1000000",
            "queue.buffering.max.kbytes": "16000",
        }
    )
    payload = bytes(RECORD_BYTES)

    def delivered(error: object, _: object) -> None:
        if error is None:
            acks.append((time.monotonic() * 1000, RECORD_BYTES))

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            producer.produce("benchmark", payload, partition=0, on_delivery=delivered)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    producer.purge()
    producer.flush(5)
    return acks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["cost", "tls", "quota", []], help="all, if nothing is named")
    parser.add_argument("--rounds", type=int, default=3, help="how often each load is run (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of each load is run (default 1)")
    parser.add_argument("--compiled", type=Path, metavar="FOLDER", help="packages with a compiled hot path")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the quota is held (default 60)")
    arguments = parser.parse_args()
    what = arguments.what or ["cost", "tls", "quota"]
    if "cost" in what:
        cost(arguments.rounds, scale=arguments.scale, compiled=arguments.compiled)
    if "tls" in what:
        cost(arguments.rounds, scale=arguments.scale, tls=True, compiled=arguments.compiled)
    if "quota" in what:
        quota(arguments.seconds)


if __name__ == "__main__":
    main()
