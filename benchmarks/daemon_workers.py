"""Whether a second process would pay: `python benchmarks/daemon_workers.py`.

Two producers of 100-byte records, first both through one daemon, then each through a daemon of its own: what two
workers could do at best, for they would share every bucket under a lock on top of it. Printed: requests per second, and
the CPU time of the daemons per request. With as many cores as worker processes, clients and brokers need, the second
figure would be the same and the first one twice as large.
"""

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import daemon
import proxy_load

from kafka_quotas.commands.testbed.daemon_process import running_daemon


def through(ports: list[int], pids: list[int], workload: proxy_load.Workload) -> tuple[float, float]:
    """Return (requests per second, CPU us per request) of one load per port."""
    before = sum(map(daemon.cpu_ns, set(pids)))
    begin = time.monotonic()
    loads = [multiprocessing.Process(target=proxy_load.run, args=(port, workload)) for port in ports]
    for load in loads:
        load.start()
    for load in loads:
        load.join()
    spent_s = time.monotonic() - begin
    requests = workload.count * len(ports)
    return requests / spent_s, (sum(map(daemon.cpu_ns, set(pids))) - before) / 1000 / requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each way is measured (default 5)")
    parser.add_argument("--count", type=int, default=20_000, help="requests per load (default 20,000)")
    arguments = parser.parse_args()
    workload = replace(daemon.WORKLOADS[3], count=arguments.count)
    with ExitStack() as stack:
        upstream = stack.enter_context(proxy_load.broker())
        daemons = []
        for _ in range(2):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            store_url = f"local:{folder / 'quotas.db'}"
            daemon.set_quota(store_url, producer_byte_rate=daemon.NEVER_REACHED)
            daemons.append(
                stack.enter_context(
                    running_daemon(
                        upstream=f"127.0.0.1:{upstream}", store_url=store_url, window=daemon.WINDOW, folder=folder
                    )
                )
            )
        ports = [int(running.bootstrap.rpartition(":")[2]) for running in daemons]
        pids = [running.pid for running in daemons]
        rows: dict[str, list[tuple[float, float]]] = {"one": [], "two": []}
        for _ in range(arguments.rounds):
            rows["one"].append(through([ports[0]] * 2, [pids[0]] * 2, workload))
            rows["two"].append(through(ports, pids, workload))
    for name, measured in rows.items():
        rate = statistics.median(rate for rate, _ in measured)
        cpu = statistics.median(cpu for _, cpu in measured)
        print(f"{name} daemon{'s' if name == 'two' else ''}: {rate:.0f} requests/s, {cpu:.1f} us of CPU per request")


if __name__ == "__main__":
    main()
