"""How long a Tab takes: the installed program completing a user's name, started as a shell starts it.

Prints the median and the worst of some runs per kind of store. Target: below 0.3 s, and no longer where the store can't
be reached. Run it on an idle machine: starting Python is most of it.

    python benchmarks/completion.py [--runs 15]
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = Path(sys.executable).parent / "kafka-quotas"


def seconds(store: str, home: Path) -> float:
    environment = os.environ | {
        "_KAFKA_QUOTAS_COMPLETE": "complete_bash",
        "COMP_WORDS": f"kafka-quotas describe --store {store} --user ",
        "COMP_CWORD": "5",
        "XDG_CACHE_HOME": str(home / "cache"),
    }
    before_s = time.perf_counter()
    subprocess.run([PROGRAM], env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - before_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder, socket.socket() as deaf:
        home = Path(folder)
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        store = f"local:{home}/quotas.db"
        altering = ["alter", "--store", store, "--user", "alice", "--add-config", "producer_byte_rate=1"]
        subprocess.run([PROGRAM, *altering], check=True, capture_output=True)
        kinds = {"local file": store, "server that says nothing": f"kafka://127.0.0.1:{deaf.getsockname()[1]}"}
        for kind, url in {**kinds, "nobody listens": "zk://127.0.0.1:9"}.items():
            measured = [seconds(url, home) for _ in range(runs)]
            print(f"{kind:26} median {statistics.median(measured):.3f} s, worst {max(measured):.3f} s")


if __name__ == "__main__":
    main()
