"""What a daemon may take and how long it may keep everybody waiting: `python benchmarks/daemon/bounds.py [ROW ...]`.

Each row runs the real daemon in a process of its own, in front of a broker that answers without looking, does the worst
that a client can, and prints what was measured beside what it may be. Without names all rows run, which takes some
minutes; `--quick` leaves out what takes longest.

Costs are CPU time of the daemon, and memory is what is resident. A pause is the longest that a client waits that asks
one question after the other while the daemon does something else; the best of several rounds, for other work on the
machine only adds. The exit code is 1 where a figure is beyond its bound.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import bounds_clients
import bounds_connections
import bounds_limits
from bounds_figure import HEADING, Figure

ROWS: dict[str, Callable[..., Iterator[Figure]]] = {
    "client-ids-unlimited": bounds_clients.long_names_without_a_quota,
    "client-ids": bounds_clients.long_names_with_a_quota,
    "limits": bounds_limits.limits_at_start_and_changed,
    "pauses": bounds_clients.pauses_with_many_buckets,
    **bounds_connections.ROWS,
}
"""By name. Each takes `quick` and yields its figures as it finds them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"which rows to run: {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="leave out what takes longest")
    arguments = parser.parse_args()
    unknown = set(arguments.rows) - ROWS.keys()
    if unknown:
        parser.error(f"no row is called {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    print(f"{'row':<22}{HEADING}")
    beyond = 0
    for name in arguments.rows or ROWS:
        for figure in ROWS[name](quick=arguments.quick):
            beyond += not figure.holds
            print(f"{name:<22}{figure.line}", flush=True)
    sys.exit(1 if beyond else 0)


if __name__ == "__main__":
    main()
