"""Whether bulk data should pass without being touched: `python benchmarks/daemon/splice.py`.

A relay that does nothing else, in two forms: one that copies (reads up to 256 KiB and writes them), and one that reads
the first 12 bytes of each request, passes them on and lets the kernel move the rest from socket to socket by way of a
pipe (`os.splice`), as a daemon could do once a header has been seen. Both block in a thread per direction, so that the
event loop's cost is in neither. Printed: CPU time per megabyte of either, and of HAProxy without and with its own
splicing where it is installed. Kernel TLS can't be tried: Python's event loops, uvloop too, do TLS in memory and not on
the socket.
"""

import argparse
import contextlib
import fcntl
import multiprocessing
import os
import shutil
import socket
import statistics
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import cost
import proxy_load

READ_BYTES = 256 * 1024
PIPE_BYTES = 1 << 20
HEAD_BYTES = 12


def copied(source: socket.socket, sink: socket.socket) -> None:
    """Write on what comes, until the source ends."""
    while data := source.recv(READ_BYTES):
        sink.sendall(data)


def spliced(source: socket.socket, sink: socket.socket) -> None:
    """Read the head of each request and let the kernel move the rest, until the source ends."""
    out, into = os.pipe()
    try:
        fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        while len(head := source.recv(HEAD_BYTES, socket.MSG_WAITALL)) == HEAD_BYTES:
            sink.sendall(head, socket.MSG_MORE)
            left = 4 + struct.unpack_from(">i", head)[0] - HEAD_BYTES
            while left:
                moved = os.splice(source.fileno(), into, left, flags=os.SPLICE_F_MOVE)
                if not moved:
                    return
                left -= moved
                while moved:
                    moved -= os.splice(out, sink.fileno(), moved, flags=os.SPLICE_F_MOVE)
    finally:
        os.close(out)
        os.close(into)


def serve(requests: Callable[[socket.socket, socket.socket], None], upstream: int, port_to: Connection) -> None:
    """Serve one connection after the other until the process is ended."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port_to.send(server.getsockname()[1])
        while True:
            client, _ = server.accept()
            with client, socket.create_connection(("127.0.0.1", upstream)) as broker:
                for sock in (client, broker):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                answers = threading.Thread(target=copied, args=(broker, client))
                answers.start()
                with contextlib.suppress(OSError):  # the load closes as soon as it has what it wants
                    requests(client, broker)
                broker.shutdown(socket.SHUT_RDWR)
                answers.join()


@contextmanager
def relay(requests: Callable[[socket.socket, socket.socket], None], upstream: int) -> Iterator[tuple[int, int]]:
    """(port, process id) of a relay in a process of its own."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=serve, args=(requests, upstream, sender), daemon=True)
    process.start()
    try:
        yield receiver.recv(), process.pid or 0
    finally:
        process.kill()
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each load is run (default 5)")
    parser.add_argument("--scale", type=float, default=0.3, help="how much of the loads of daemon.py is run (0.3)")
    arguments = parser.parse_args()
    loads = [replace(load, count=round(load.count * arguments.scale)) for load in cost.WORKLOADS[:2]]
    spent: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        upstream = stack.enter_context(proxy_load.broker())
        relays = {
            "copied": stack.enter_context(relay(copied, upstream)),
            "spliced": stack.enter_context(relay(spliced, upstream)),
        }
        if shutil.which("haproxy"):
            for name, options in cost.HAPROXY_OPTIONS.items():
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                relays[name] = stack.enter_context(cost.haproxy(folder, upstream, options=options))
        for _ in range(arguments.rounds):
            for load in loads:
                for name, (port, pid) in relays.items():
                    before = cost.cpu_ns(pid)
                    proxy_load.run(port, load)
                    spent.setdefault((load.name, name), []).append((cost.cpu_ns(pid) - before) / 1000 / load.megabytes)
    print(f"{'workload':<20}{'relay':<20}{'us/MB':>9}   all rounds")
    for (load_name, name), each in spent.items():
        rounds = " ".join(f"{us:.0f}" for us in each)
        print(f"{load_name:<20}{name:<20}{statistics.median(each):>9.0f}   {rounds}")


if __name__ == "__main__":
    main()
