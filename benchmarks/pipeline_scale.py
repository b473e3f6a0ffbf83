"""How the pipeline's replay grows: with the events, with one giant client, with the number of clients.

    python benchmarks/pipeline_scale.py [--cases doubling,giant,entities,largest,small,spark] [--events N] [--data DIR]

doubling   1 M to 64 M events: processor seconds beside those of half as many, and peak memory
giant      20 M events, 40 % of them of one client, beside the same without it
entities   20 M events of 1 million clients
largest    200 M events; peak memory may be 4 GiB
small      2 M events through usage with its tables on Spark, three times: a command from its start to its end, most
           of which is what Spark costs whatever the events; at most 24 s
spark      50 M events through usage, replay and recommend on Spark, whose driver has 512 MB and may
           collect 64 MB: commands as users run them, cold; the memory is the driver's Java

`--events` gives all cases but the first another number. `--data` keeps the events of `spark`, or uses those that are
there, and `--driver-memory` gives its Java another size.

Events come at the same rate, 20 M an hour, so that twice as many last twice as long. The replay runs in a closed loop,
in a process of its own, twice; the second run is told, and the largest memory of both. See `pipeline.py` for the rest.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline import cpu_seconds, machine_seconds, make_events, measured

EVENTS_PER_HOUR = 20e6
CLIENTS = 10_000
MOST_MIB = 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--events", type=float)
    parser.add_argument("--data", type=Path, help="a folder of events that is kept and, if there, used again")
    parser.add_argument("--driver-memory", default="512m")
    given = parser.parse_args()
    for case in given.cases.split(","):
        print(f"{case:32}{'M events/s':>11}{'wall s':>9}{'CPU s':>8}{'others':>8}{'peak MiB':>10}")
        job, usual = CASES[case]
        job(Asked(count=int(given.events or usual), data=given.data, driver_memory=given.driver_memory))
        print()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a case is to measure."""

    count: int
    """How many events."""
    data: Path | None
    """Where `spark` keeps its events, None for nowhere."""
    driver_memory: str
    """Heap of the Java of `spark`, as Spark takes it."""


def doubling(_: Asked) -> None:
    """Measure the sizes from 1 M to 64 M events."""
    before_s = None
    for millions in (1, 2, 4, 8, 16, 32, 64):
        cpu_s = tell(f"{millions} M", millions * 1_000_000)["cpu_s"]
        if before_s is not None:
            print(f"{'':32}{cpu_s / before_s:.2f} times the processor time of half as many", flush=True)
        before_s = cpu_s


def giant(asked: Asked) -> None:
    """One client that has two fifths of the events, and none such."""
    even = tell("the largest has 15 %", asked.count)
    uneven = tell("the largest has 40 %", asked.count, share=0.4)
    print(f"{'':32}{uneven['wall_s'] / even['wall_s']:.2f} times as long")


def entities(asked: Asked) -> None:
    """Measure a million clients."""
    for case in ("replay", "usage"):
        tell(f"1 M clients, {case}", asked.count, clients=1_000_000, case=case)


def largest(asked: Asked) -> None:
    """Measure what fits into 4 GiB."""
    peak_mib = tell(f"{asked.count / 1e6:g} M", asked.count)["peak_mib"]
    print(f"{'':32}{'within' if peak_mib <= MOST_MIB else 'MORE THAN'} {MOST_MIB} MiB")


def small(asked: Asked) -> None:
    """Measure a short command, of which the first leaves the paths of jars for the others."""
    commands(asked, ["usage"] * 3, memory="2g")


def on_spark(asked: Asked) -> None:
    """Measure commands whose driver is too small for their events."""
    commands(asked, ["usage", "replay", "recommend"], memory=asked.driver_memory)


def commands(asked: Asked, jobs: list[str], *, memory: str) -> None:
    """Print a line for each command on Spark."""
    heap = ("--spark-conf", f"spark.driver.memory={memory}", "--spark-conf", "spark.driver.maxResultSize=64m")
    with tempfile.TemporaryDirectory() as folder:
        data, quotas = asked.data or Path(folder) / "events", Path(folder) / "quotas.yaml"
        quotas.write_text("entries:\n  - {entity: {user: null}, quotas: {producer_byte_rate: 20k}}\n")
        if not data.exists():
            make_events(data, asked.count, CLIENTS, 0.0, hours=asked.count / EVENTS_PER_HOUR)
        options_of = {
            "usage": ("--quotas", str(quotas), "--out", f"{folder}/usage"),
            "replay": ("--quotas", str(quotas), "--out", f"{folder}/replay", "--spans"),
            "recommend": ("--min-recorded", "1h"),
        }
        for job in jobs:
            before_s, all_s = time.monotonic(), machine_seconds()
            command = [
                sys.executable,
                "-m",
                "kafka_quotas",
                "pipeline",
                job,
                str(data),
                *options_of[job],
                "--engine",
                "spark",
                *heap,
            ]
            with (Path(folder) / "printed").open("w+") as printed:
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=printed)
                own_s, peak_mib = used_by(process, cpu_seconds())
                wall_s, others_s = time.monotonic() - before_s, machine_seconds() - all_s - own_s
                printed.seek(0)
                failure = f"  FAILED: {printed.read()[-300:]}" if process.returncode else ""
            speed = asked.count / wall_s / 1e6
            print(f"{job:32}{speed:11.2f}{wall_s:9.1f}{own_s:8.1f}{others_s:8.1f}{peak_mib:10.0f}{failure}", flush=True)


def used_by(process: subprocess.Popen[bytes], before_s: float) -> tuple[float, float]:
    """Wait for a process and return the processor seconds of it and its children, and the peak MiB of its Java."""
    used_s, peak_kib = before_s, 0
    while process.poll() is None:
        used_s = max(used_s, cpu_seconds())
        peak_kib = max([peak_kib, *(peak_of_java(child) for child in Path("/proc").glob("[0-9]*"))])
        time.sleep(0.5)
    return used_s - before_s, peak_kib / 1024


def peak_of_java(process: Path) -> int:
    """Return the largest resident size in KiB of a process that is this benchmark's Java, else 0."""
    try:
        command = (process / "cmdline").read_bytes()
        if b"spark.driver.maxResultSize=64m" not in command or b"java" not in command.split(b"\0")[0]:
            return 0
        return int(re.search(r"VmHWM:\s+(\d+)", (process / "status").read_text())[1])  # type: ignore[index]
    except OSError:
        return 0


CASES: dict[str, tuple[Callable[[Asked], None], float]] = {
    "doubling": (doubling, 64e6),
    "giant": (giant, 20e6),
    "entities": (entities, 20e6),
    "largest": (largest, 200e6),
    "small": (small, 2e6),
    "spark": (on_spark, 50e6),
}
"""What each case runs, and with how many events."""


def tell(
    name: str, count: int, *, clients: int = CLIENTS, share: float = 0.0, case: str = "replay"
) -> dict[str, float]:
    """Print and return the figures of a case over N events."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "events"
        make_events(data, count, clients, share, hours=count / EVENTS_PER_HOUR)
        found = measured(case, data)
    print(
        f"{name:32}{found['steps'] / found['wall_s'] / 1e6:11.2f}{found['wall_s']:9.2f}{found['cpu_s']:8.2f}"
        f"{found['others_s']:8.2f}{found['peak_mib']:10.0f}",
        flush=True,
    )
    return found


if __name__ == "__main__":
    main()
