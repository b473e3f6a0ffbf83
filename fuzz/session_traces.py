"""Random connections for as long as is wanted: `python fuzz/session_traces.py --seconds 600 --seed 1`.

Each is a string of bytes that `tests/support/daemon/connection_trace.py` turns into a client, a broker and how the
network cuts what they say; there is what must hold. A trace for which it doesn't is printed, with what went wrong, and
ends the run: `--trace HEX` runs it again.
"""

import argparse
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.support.daemon.connection_trace import Trace
from tests.support.frames.client_messages import CODES


def random_trace(source: random.Random) -> bytes:
    """Return up to 150 steps, half of them of the client and half of the network, the broker and the clock."""
    steps = [source.randrange(256)]
    for _ in range(source.randrange(2, 150)):
        steps += [source.choice((source.randrange(CODES), 128 + source.randrange(8))), source.randrange(256)]
    if source.randrange(2):
        steps.append(source.randrange(4))  # bounds
    return bytes(steps)


def check(data: bytes) -> None:
    """Check that a trace with shortcuts and one without show the same on their connections."""
    assert Trace(data).outcome() == Trace(data, is_fast=False).outcome(), "shortcuts changed something"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trace", type=bytes.fromhex, help="run this one only")
    arguments = parser.parse_args()
    if arguments.trace is not None:
        check(arguments.trace)
        return 0
    source, until, count = random.Random(arguments.seed), time.monotonic() + arguments.seconds, 0
    while time.monotonic() < until:
        data = random_trace(source)
        try:
            check(data)
        except Exception as error:
            print(f"{data.hex()}: {type(error).__name__}: {error}", file=sys.stderr)
            raise
        count += 1
    print(f"{count} traces, each twice, seed {arguments.seed}: all hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
