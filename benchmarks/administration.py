"""Our commands and Kafka's own ConfigCommand side by side on one broker.

    python benchmarks/administration.py [--runs N] [--bootstrap HOST:PORT] [--entities N]

Each figure is that of a whole process: its wall time and its processor time, each the best of several runs, and its
largest resident size. What runs beside makes both programs slower, so the best is what they really need; the load of
the machine is printed. Both are run as they are installed, ours with compiled bytecode, kept in a folder of the
benchmark. 1,000 calls of ConfigCommand are extrapolated from 10. Without --bootstrap a broker is started for the time
of the benchmark (it needs Java); what is set on a given broker is removed at the end.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.brokers.java_process import java_command
from tests.support.brokers.maven import KAFKA_4, jars
from tests.support.brokers.servers import Kafka, kafka_4

CONFIG_COMMAND = "kafka.admin.ConfigCommand"
KEY = "producer_byte_rate"
TOOL_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1")
"""What makes a short run of a Java program fastest: Kafka's own script starts it slower."""
AIM_ALTER, AIM_APPLY, AIM_APPLY_S, AIM_LARGE_S, AIM_LARGE_MIB = 4.0, 300.0, 2.0, 3.0, 200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Wall time and processor time of a process in seconds, and its largest resident size in MiB."""

    seconds: float
    processor_s: float
    mebibytes: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--bootstrap", help="a broker that runs already, without authentication")
    parser.add_argument("--entities", type=int, default=10_000, help="how many are exported and diffed")
    options = parser.parse_args()
    with broker(options.bootstrap) as kafka, tempfile.TemporaryDirectory() as folder:
        store = f"kafka://{kafka.bootstrap}"
        os.environ["KAFKA_QUOTAS_JOURNAL"] = str(Path(folder) / "journal.jsonl")
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        print(f"Kafka {kafka.version}, Python {sys.version.split()[0]}, {os.cpu_count()} processors")
        print(f"load before: {' '.join(f'{load:.1f}' for load in os.getloadavg())}\n")
        compare_single(kafka, store, runs=options.runs)
        apply_thousand(kafka, store, Path(folder), runs=options.runs)
        for where in (store, f"local:{folder}/quotas.db"):
            large(where, Path(folder), count=options.entities, runs=options.runs)
        remove_all(store, Path(folder))
        print(f"\nload after: {' '.join(f'{load:.1f}' for load in os.getloadavg())}")


@contextmanager
def broker(bootstrap: str | None) -> Iterator[Kafka]:
    """Run the broker that is measured."""
    if bootstrap is not None:
        yield Kafka(bootstrap=bootstrap, sasl_bootstrap="", version=KAFKA_4.version, jars=jars(KAFKA_4))
        return
    with kafka_4() as kafka:
        yield kafka


def compare_single(kafka: Kafka, store: str, *, runs: int) -> None:
    """One alter and one describe, theirs and ours."""
    entity = ("--entity-type", "users", "--entity-name", "bench")
    alter = ("--alter", *entity, "--add-config", f"{KEY}=1000000")
    describe = ("--describe", *entity)
    ours_alter = ("alter", "--user", "bench", "--add-config", f"{KEY}=1000000", "--store", store)
    ours_describe = ("describe", "--user", "bench", "--store", store)
    for name, theirs, ours, aim in (
        ("one alter", alter, ours_alter, AIM_ALTER),
        ("one describe", describe, ours_describe, AIM_ALTER),
    ):
        config_command(kafka, theirs)
        kafka_quotas(*ours)
        pairs = [(config_command(kafka, theirs), kafka_quotas(*ours)) for _ in range(runs)]
        first, second = best(pair[0] for pair in pairs), best(pair[1] for pair in pairs)
        wall, processor = first.seconds / second.seconds, first.processor_s / second.processor_s
        print(
            f"{name}: ConfigCommand {shown(first)}, kafka-quotas {shown(second)}: "
            f"{wall:.1f} times faster {verdict(wall >= aim)} (target: {aim:g}), "
            f"{processor:.1f} times less processor time"
        )


def apply_thousand(kafka: Kafka, store: str, folder: Path, *, runs: int) -> None:
    """1,000 entities in one apply, against as many calls of ConfigCommand."""
    files = [quota_file(folder / f"thousand-{run}.yaml", 1000, value=1_000_000 + run) for run in range(runs)]
    ours = best(kafka_quotas("apply", str(path), "--store", store) for path in files)
    entities = (("--entity-type", "users", "--entity-name", f"user-{number:06d}") for number in range(10))
    change = ("--add-config", f"{KEY}=999999")
    theirs = [config_command(kafka, ("--alter", *entity, *change)) for entity in entities]
    theirs_s = sum(process.seconds for process in theirs) * 100
    ratio = theirs_s / ours.seconds
    processor = sum(process.processor_s for process in theirs) * 100 / ours.processor_s
    print(
        f"1,000 entities: ConfigCommand {theirs_s:.0f} s (extrapolated from 10), kafka-quotas apply {shown(ours)} "
        f"{verdict(ours.seconds < AIM_APPLY_S)} (target: {AIM_APPLY_S:g} s), {ratio:.0f} times faster "
        f"{verdict(ratio >= AIM_APPLY)} (target: {AIM_APPLY:g}), {processor:.0f} times less processor time"
    )


def large(store: str, folder: Path, *, count: int, runs: int) -> None:
    """Many entities exported and diffed."""
    kind = store.partition(":")[0]
    path = quota_file(folder / "large.yaml", count, value=2_000_000)
    filled = kafka_quotas("apply", str(path), "--store", store)
    changed = quota_file(folder / "changed.yaml", count, value=3_000_000)
    exported = folder / "exported.yaml"
    export = best(kafka_quotas("export", "--out", str(exported), "--store", store) for _ in range(runs))
    same = best(kafka_quotas("diff", str(exported), "--exit-code", "--store", store) for _ in range(runs))
    every = best(kafka_quotas("diff", str(changed), "--store", store) for _ in range(runs))
    print(f"{count:,} entities in {kind}: applied in {shown(filled)}, {filled.mebibytes:.0f} MiB")
    for name, processes in (
        ("exported, and diffed, all the same", (export, same)),
        ("exported, and diffed, all different", (export, every)),
    ):
        seconds = sum(process.seconds for process in processes)
        mebibytes = max(process.mebibytes for process in processes)
        print(
            f"{count:,} entities in {kind}: {name}: {' and '.join(shown(process) for process in processes)}, "
            f"{mebibytes:.0f} MiB {verdict(seconds < AIM_LARGE_S and mebibytes < AIM_LARGE_MIB)} "
            f"(target: {AIM_LARGE_S:g} s together, {AIM_LARGE_MIB:g} MiB)"
        )


def remove_all(store: str, folder: Path) -> None:
    """Remove all that the benchmark has set."""
    path = folder / "none.yaml"
    path.write_text("- {entity: {user: bench}, quotas: {producer_byte_rate: null}}\n", encoding="utf-8")
    owned = ("--selector", "user=bench", "--selector", "user=user-[0-9]*")
    kafka_quotas("apply", str(path), "--prune", "--prune-limit", "100", *owned, "--store", store)


def quota_file(path: Path, count: int, *, value: int) -> Path:
    """Write a file with N users."""
    lines = (
        f"- {{entity: {{user: user-{number:06d}}}, quotas: {{{KEY}: {value}, consumer_byte_rate: {value}}}}}\n"
        for number in range(count)
    )
    path.write_text("".join(lines), encoding="utf-8")
    return path


def kafka_quotas(*arguments: str) -> Process:
    """Run our command once, and end the benchmark if it fails."""
    return measured([str(Path(sys.executable).with_name("kafka-quotas")), *arguments])


def config_command(kafka: Kafka, arguments: Sequence[str]) -> Process:
    """One run of Kafka's command."""
    arguments = ("--bootstrap-server", kafka.bootstrap, *arguments)
    return measured(java_command(kafka.jars, CONFIG_COMMAND, arguments, options=TOOL_OPTIONS))


def measured(command: Sequence[str]) -> Process:
    """Run a process once, and end the benchmark if it fails."""
    begin_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)[:200]} ended with {process.returncode}")
    processor_s = usage.ru_utime + usage.ru_stime
    return Process(seconds=seconds, processor_s=processor_s, mebibytes=usage.ru_maxrss / 1024)


def best(processes: Iterable[Process]) -> Process:
    """Return the shortest wall and processor times and the largest size of all runs."""
    runs = list(processes)
    return Process(
        seconds=min(run.seconds for run in runs),
        processor_s=min(run.processor_s for run in runs),
        mebibytes=max(run.mebibytes for run in runs),
    )


def shown(process: Process) -> str:
    return f"{process.seconds:.2f} s (processor: {process.processor_s:.2f} s)"


def verdict(met: object) -> str:
    return "met" if met else "NOT MET"


if __name__ == "__main__":
    main()
