"""What the daemon adds to a round trip, and what a connection takes: `python benchmarks/daemon/latency.py`.

latency: 100-byte records, one request in flight on one connection, to the broker directly, through the daemon with a
quota in force, and through HAProxy in TCP mode, in turn. Printed: p50 and p99, and how much is added. Aim: at most 50
us at p50. memory: resident at rest and per idle connection that has said hello. Aims: 40 MB, and 16 KiB.
"""

import argparse
import shutil
import socket
import statistics
import struct
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import cost
import proxy_load

from kafka_quotas.commands.testbed.daemon_process import running_daemon

_ANSWER_BYTES = 1 << 16


def round_trips(port: int, count: int) -> list[float]:
    """Microseconds of each round trip."""
    frame = proxy_load.request(proxy_load.produce("probe", size=200, in_flight=1, count=count))
    taken = []
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            begin = time.perf_counter_ns()
            sock.sendall(frame)
            (length,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
            sock.recv(length, socket.MSG_WAITALL)
            taken.append((time.perf_counter_ns() - begin) / 1000)
    return taken


def latency(rounds: int, count: int) -> None:
    measured: dict[str, list[list[float]]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(proxy_load.broker())
        store_url = f"local:{folder / 'quotas.db'}"
        cost.set_quota(store_url, producer_byte_rate=cost.NEVER_REACHED)
        running = stack.enter_context(
            running_daemon(upstream=f"127.0.0.1:{upstream}", store_url=store_url, window=cost.WINDOW, folder=folder)
        )
        ports = {"direct": upstream, "daemon": int(running.bootstrap.rpartition(":")[2])}
        if shutil.which("haproxy"):
            ports["haproxy"] = stack.enter_context(cost.haproxy(folder, upstream))[0]
        for _ in range(rounds):
            for name, port in ports.items():
                measured.setdefault(name, []).append(round_trips(port, count))
    print(f"{'':<10}{'p50 us':>9}{'p99 us':>9}{'added p50':>11}{'added p99':>11}   best of {rounds} rounds of {count}")
    direct = best(measured["direct"])
    for name, rows in measured.items():
        p50, p99 = best(rows)
        print(f"{name:<10}{p50:>9.1f}{p99:>9.1f}{p50 - direct[0]:>11.1f}{p99 - direct[1]:>11.1f}")


def best(rows: list[list[float]]) -> tuple[float, float]:
    """Return the smallest median and the smallest 99th percentile of some rounds: other work only adds."""
    return min(map(statistics.median, rows)), min(statistics.quantiles(row, n=100)[98] for row in rows)


def memory(connections: int) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(proxy_load.broker())
        running = stack.enter_context(
            running_daemon(
                upstream=f"127.0.0.1:{upstream}",
                store_url=f"local:{folder / 'quotas.db'}",
                window=cost.WINDOW,
                folder=folder,
            )
        )
        at_rest = resident(running.pid)
        port = int(running.bootstrap.rpartition(":")[2])
        frame = proxy_load.request(proxy_load.produce("hello", size=200, in_flight=1, count=1))
        for _ in range(connections):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            sock.sendall(frame)
            sock.recv(_ANSWER_BYTES)
        with_all = resident(running.pid)
    print(f"resident at rest: {at_rest / 1e6:.1f} MB")
    print(f"per idle connection: {(with_all - at_rest) / connections / 1024:.1f} KiB ({connections} connections)")


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"process {pid} is gone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each way is measured (default 5)")
    parser.add_argument("--count", type=int, default=5000, help="round trips per round (default 5000)")
    parser.add_argument("--connections", type=int, default=1000, help="idle connections (default 1000)")
    arguments = parser.parse_args()
    latency(arguments.rounds, arguments.count)
    memory(arguments.connections)


if __name__ == "__main__":
    main()
