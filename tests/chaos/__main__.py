"""python -m tests.chaos --kills 100 --cuts 1000 --soak 60: the runs that are too long for the test suite.

Each prints what it does, and its seed, by which it can be repeated.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.chaos.faulty_network import faulty
from tests.chaos.kills import kills, longest_unsaved_ms
from tests.chaos.soak import soak


def _tell(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run_kills(count: int, seed: int, folder: Path) -> bool:
    """Kill daemon, broker and ZooKeeper and return whether every client had its due and no more."""
    result = kills(seed, count, folder, _tell)
    for client in result.clients:
        _tell(client)
    killed = {victim.value: times for victim, times in result.kills.items()}
    _tell(f"killed {killed}, {result.longest_forgotten_ms} ms of a daemon's life forgotten at most")
    is_saved = result.longest_forgotten_ms <= longest_unsaved_ms()
    return is_saved and all(client.is_right for client in result.clients)


def run_cuts(count: int, seed: int, folder: Path) -> bool:
    """Cut connections and return whether every record is there once, and charged."""
    result = faulty(seed, count, folder, _tell)
    _tell(result)
    return result.is_right


def run_soak(minutes: float, seed: int, folder: Path) -> bool:
    """Let traffic pass and return whether it left no trace."""
    result = soak(minutes, seed, folder, _tell)
    _tell(f"records {result.records}, connections {result.connections}, failures {result.failures}")
    grown = result.growth()
    _tell("\n".join(grown) or "flat")
    return not grown and not result.failures


def main() -> int:
    """Run what was asked for, and return the exit code: 1 where anything was not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000), help="default: drawn")
    parser.add_argument("--kills", type=int, metavar="N", help="kill daemon, broker and ZooKeeper N times under load")
    parser.add_argument(
        "--cuts", type=int, metavar="N", help="cut N connections on both sides of the daemon under load"
    )
    parser.add_argument(
        "--soak", type=float, metavar="MINUTES", help="traffic for so long, which has to leave no trace"
    )
    options = parser.parse_args()
    wanted: list[tuple[Callable[[Path], bool], bool]] = [
        (lambda folder: run_kills(options.kills, options.seed, folder), options.kills is not None),
        (lambda folder: run_cuts(options.cuts, options.seed, folder), options.cuts is not None),
        (lambda folder: run_soak(options.soak, options.seed, folder), options.soak is not None),
    ]
    runs = [run for run, is_wanted in wanted if is_wanted]
    if not runs:
        parser.error("nothing to do: give --kills, --cuts or --soak")
    _tell(f"seed {options.seed}")
    done = []
    for run in runs:
        with tempfile.TemporaryDirectory(prefix="kafka-quotas-chaos-") as folder:
            done.append(run(Path(folder)))
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
