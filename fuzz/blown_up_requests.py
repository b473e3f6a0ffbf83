"""Requests with one part blown up, for as long as is wanted: `python fuzz/blown_up_requests.py --seconds 600 --seed 1`.

Each is a request of some API and version of which one array, text or tag section is as long as fits, cut at random
places, on one connection or on eight. The same bytes are served twice: unread as a control, then as they are. A round
in which an honest client waits or loses, or the daemon's memory grows, by more than is allowed ends the run with 1.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.support.daemon.blown_up_run import attack, run

SIZES = (64 * 1024, 1024 * 1024, 2 * 1024 * 1024 - 1000, 8 * 1024 * 1024, 100 * 1024 * 1024 - 100_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--attacks", type=int, default=40, help="how many requests a round has (default 40)")
    parser.add_argument("--most-bytes", type=int, default=SIZES[-1], help="the longest request")
    arguments = parser.parse_args()
    until, seed = time.monotonic() + arguments.seconds, arguments.seed
    sizes = tuple(size for size in SIZES if size <= arguments.most_bytes)
    while time.monotonic() < until:
        source = random.Random(seed)
        attacks = [attack(source, sizes) for _ in range(arguments.attacks)]
        with tempfile.TemporaryDirectory(prefix="blown-up-") as folder:
            outcome = run(attacks, Path(folder), rehearsed=attacks)
        print(f"seed {seed}: {outcome}", flush=True)
        if found := outcome.findings():
            print(f"seed {seed}: {'; '.join(found)}", file=sys.stderr)
            return 1
        seed += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
