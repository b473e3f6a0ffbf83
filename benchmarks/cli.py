"""How long the command takes as a whole process, beside `python -c "import typer"`.

Aims: `kafka-quotas --help` at most 3 times the import; `alter` on the local store at most 0.3 s.
Run: `.venv/bin/python benchmarks/cli.py [ROUNDS]`. The rounds are interleaved and the medians compared, so that a busy
machine slows all of them alike.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PROGRAM = str(Path(sys.executable).with_name("kafka-quotas"))
COMMANDS: Mapping[str, Sequence[str]] = {
    "python -c pass": (sys.executable, "-c", "pass"),
    "python -c 'import typer'": (sys.executable, "-c", "import typer"),
    "kafka-quotas --help": (PROGRAM, "--help"),
    "kafka-quotas alter": (PROGRAM, "alter", "--user", "alice", "--add-config", "producer_byte_rate=10MiB"),
    "kafka-quotas describe": (PROGRAM, "describe", "--output", "json"),
    "kafka-quotas describe --effective": (PROGRAM, "describe", "--effective", "--user", "alice", "--output", "json"),
}
HELP_LIMIT = 3.0
ALTER_LIMIT_S = 0.3


def main() -> int:
    """Return the exit code: 1 where an aim was missed."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as folder:
        seconds = measure(rounds, os.environ | {"KAFKA_QUOTAS_STORE": f"local:{folder}/quotas.db"})
    for name, taken in seconds.items():
        print(f"{name:<34} median {statistics.median(taken):.3f} s, best {min(taken):.3f} s")
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    ratio = medians["kafka-quotas --help"] / medians["python -c 'import typer'"]
    alter_s = medians["kafka-quotas alter"]
    print(f"--help / import typer: {ratio:.2f} (at most {HELP_LIMIT})")
    print(f"alter on the local store: {alter_s:.3f} s (at most {ALTER_LIMIT_S})")
    return 0 if ratio <= HELP_LIMIT and alter_s <= ALTER_LIMIT_S else 1


def measure(rounds: int, environment: Mapping[str, str]) -> dict[str, list[float]]:
    """Measure the seconds per run of each command, after one round that fills the caches."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for number in range(rounds + 1):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
            if number:
                seconds[name].append(time.perf_counter() - started)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
