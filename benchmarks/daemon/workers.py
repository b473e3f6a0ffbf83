"""What two workers cost beside one process: `python benchmarks/daemon/workers.py`.

Two producers of 100-byte records, five requests in flight, through one process, through a daemon with two workers, and
each through a daemon of its own, which share nothing: what two processes could do at best. Every request is charged to
one bucket. Printed: requests per second, and the CPU time of all processes of the daemons per request; then what they
take while nothing happens. On two cores, which clients and broker use as well, the first figure can't double; the other
one shows what sharing costs. How closely 16 processes hold one limit: `python benchmarks/fleet/workers_simulation.py`.
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

import cost
import proxy_load

from kafka_quotas.commands.testbed.daemon_process import running_daemon
from kafka_quotas.enforcement.control.client import ask_status

IDLE_S = 5.0


def through(ports: list[int], pids: set[int], workload: proxy_load.Workload) -> tuple[float, float]:
    """Return (requests per second, CPU us per request) of one load per port."""
    before = sum(map(cost.cpu_ns, pids))
    begin = time.monotonic()
    loads = [multiprocessing.Process(target=proxy_load.run, args=(port, workload)) for port in ports]
    for load in loads:
        load.start()
    for load in loads:
        load.join()
    spent_s = time.monotonic() - begin
    requests = workload.count * len(ports)
    return requests / spent_s, (sum(map(cost.cpu_ns, pids)) - before) / 1000 / requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each way is measured (default 5)")
    parser.add_argument("--count", type=int, default=20_000, help="requests per load (default 20,000)")
    arguments = parser.parse_args()
    workload = replace(cost.WORKLOADS[3], count=arguments.count)
    with ExitStack() as stack:
        upstream = stack.enter_context(proxy_load.broker())
        ports: dict[str, list[int]] = {}
        pids: dict[str, set[int]] = {}
        for name, options in (("one", ()), ("other", ()), ("workers", ("--workers", "2"))):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            store_url = f"local:{folder / 'quotas.db'}"
            cost.set_quota(store_url, producer_byte_rate=cost.NEVER_REACHED)
            running = stack.enter_context(
                running_daemon(
                    upstream=f"127.0.0.1:{upstream}",
                    store_url=store_url,
                    window=cost.WINDOW,
                    folder=folder,
                    options=options,
                )
            )
            workers = ask_status(folder / "control.sock").workers
            ports[name] = [int(running.bootstrap.rpartition(":")[2])]
            pids[name] = {running.pid, *(row.pid for row in workers)}
        rows: dict[str, list[tuple[float, float]]] = {"one process": [], "two workers": [], "two daemons": []}
        for _ in range(arguments.rounds):
            rows["one process"].append(through(ports["one"] * 2, pids["one"], workload))
            rows["two workers"].append(through(ports["workers"] * 2, pids["workers"], workload))
            rows["two daemons"].append(through(ports["one"] + ports["other"], pids["one"] | pids["other"], workload))
        before, begin = {name: sum(map(cost.cpu_ns, each)) for name, each in pids.items()}, time.monotonic()
        time.sleep(IDLE_S)
        spent_s = time.monotonic() - begin
        idle = {name: (sum(map(cost.cpu_ns, pids[name])) - before[name]) / 1e7 / spent_s for name in pids}
    print(f"idle: one process {idle['one']:.2f} % of a core, two workers and their parent {idle['workers']:.2f} %")
    for name, measured in rows.items():
        rate = statistics.median(rate for rate, _ in measured)
        cpu = statistics.median(cpu for _, cpu in measured)
        least = min(cpu for _, cpu in measured)
        print(f"{name}: {rate:.0f} requests/s, {cpu:.1f} us of CPU per request (least {least:.1f})")


if __name__ == "__main__":
    main()
