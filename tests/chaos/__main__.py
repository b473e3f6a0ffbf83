"""python -m tests.chaos --soak 60: what of the chaos and soak runs is too long for the test suite."""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos.kills import kills
from tests.chaos.soak import soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000), help="default: drawn")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="traffic for so long, which has to leave no trace")
    parser.add_argument("--kills", type=int, metavar="N", help="kill daemon, broker and ZooKeeper N times under load")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kafka-quotas-chaos-") as folder:
        if options.kills:
            told = kills(options.seed, options.kills, Path(folder), lambda line: print(line, flush=True))
            print(told)
        if options.soak:
            result = soak(options.soak, options.seed, Path(folder), lambda line: print(line, flush=True))
            grown = result.growth()
            print(f"records {result.records}, connections {result.connections}, failures {result.failures}")
            print("\n".join(grown) or "flat", flush=True)
            return 1 if grown or result.failures else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
