"""Our commands and Kafka's own ConfigCommand side by side on one broker.

    python benchmarks/administration.py [--runs N] [--bootstrap HOST:PORT]

Each figure is the wall time of a whole process, the median of several runs; memory is its largest resident size. The
processor time beside it is what the wall time comes down to on an idle machine.
1,000 calls of ConfigCommand are extrapolated from 10. Without --bootstrap a broker is started for the time of the
benchmark (it needs Java); what is set on a given broker is removed at the end.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.maven import KAFKA_4, jars
from tests.support.servers import Kafka, kafka_4

CONFIG_COMMAND = "kafka.admin.ConfigCommand"
KEY = "producer_byte_rate"
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
    options = parser.parse_args()
    with broker(options.bootstrap) as kafka, tempfile.TemporaryDirectory() as folder:
        store = f"kafka://{kafka.bootstrap}"
        os.environ["KAFKA_QUOTAS_JOURNAL"] = str(Path(folder) / "journal.jsonl")
        print(f"Kafka {kafka.version}, Python {sys.version.split()[0]}, {os.cpu_count()} processors\n")
        compare_single(kafka, store, runs=options.runs)
        apply_thousand(kafka, store, Path(folder))
        for where in (store, f"local:{folder}/quotas.db"):
            large(where, Path(folder))
        remove_all(store, Path(folder))


@contextmanager
def broker(bootstrap: str | None) -> Iterator[Kafka]:
    """The broker that is measured."""
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
        first = median(lambda theirs=theirs: config_command(kafka, theirs), runs)  # type: ignore[misc]
        runs_of_ours = [kafka_quotas(*ours) for _ in range(runs)]
        second = statistics.median(process.seconds for process in runs_of_ours)
        processor_s = statistics.median(process.processor_s for process in runs_of_ours)
        print(
            f"{name}: ConfigCommand {first:.2f} s, kafka-quotas {second:.2f} s (processor: {processor_s:.2f} s): "
            f"{first / second:.1f} times faster "
            f"{verdict(first / second >= aim)} (aim: {aim:g})"
        )


def apply_thousand(kafka: Kafka, store: str, folder: Path) -> None:
    """1,000 entities in one apply, against as many calls of ConfigCommand."""
    path = quota_file(folder / "thousand.yaml", 1000, value=1_000_000)
    ours = kafka_quotas("apply", str(path), "--store", store)
    changed = quota_file(folder / "thousand-changed.yaml", 1000, value=1_500_000)
    unseen = kafka_quotas("apply", str(changed), "--no-wait", "--store", store)
    begin_s = time.perf_counter()
    for number in range(10):
        entity = ("--entity-type", "users", "--entity-name", f"user-{number:06d}")
        config_command(kafka, ("--alter", *entity, "--add-config", f"{KEY}=1000001"))
    theirs_s = (time.perf_counter() - begin_s) * 100
    ratio = theirs_s / ours.seconds
    print(
        f"1,000 entities: ConfigCommand {theirs_s:.0f} s (extrapolated from 10), "
        f"kafka-quotas apply {ours.seconds:.2f} s (processor: {ours.processor_s:.2f} s) "
        f"{verdict(ours.seconds < AIM_APPLY_S)} (aim: {AIM_APPLY_S:g} s), {ratio:.0f} times faster "
        f"{verdict(ratio >= AIM_APPLY)} (aim: {AIM_APPLY:g}); "
        f"with --no-wait, as ConfigCommand does, {unseen.seconds:.2f} s"
    )


def large(store: str, folder: Path) -> None:
    """10,000 entities exported and diffed."""
    kind = store.partition(":")[0]
    path = quota_file(folder / "large.yaml", 10_000, value=2_000_000)
    filled = kafka_quotas("apply", str(path), "--store", store)
    changed = quota_file(folder / "changed.yaml", 10_000, value=3_000_000)
    exported = folder / "exported.yaml"
    export = kafka_quotas("export", "--out", str(exported), "--store", store)
    same = kafka_quotas("diff", str(exported), "--exit-code", "--store", store)
    every = kafka_quotas("diff", str(changed), "--store", store)
    print(f"10,000 entities in {kind}: applied in {filled.seconds:.2f} s, {filled.mebibytes:.0f} MiB")
    for name, process in (("exported", export), ("diffed, all the same", same), ("diffed, all different", every)):
        fast = process.seconds < AIM_LARGE_S and process.mebibytes < AIM_LARGE_MIB
        print(
            f"10,000 entities in {kind}: {name} in {process.seconds:.2f} s "
            f"(processor: {process.processor_s:.2f} s), {process.mebibytes:.0f} MiB "
            f"{verdict(fast)} (aim: {AIM_LARGE_S:g} s, {AIM_LARGE_MIB:g} MiB)"
        )


def remove_all(store: str, folder: Path) -> None:
    """Nothing; what the benchmark has set is removed."""
    path = folder / "none.yaml"
    path.write_text("- {entity: {user: bench}, quotas: {producer_byte_rate: null}}\n", encoding="utf-8")
    owned = ("--selector", "user=bench", "--selector", "user=user-[0-9]*")
    kafka_quotas("apply", str(path), "--prune", "--prune-limit", "100", *owned, "--store", store)


def quota_file(path: Path, count: int, *, value: int) -> Path:
    """A file with so many users."""
    lines = (
        f"- {{entity: {{user: user-{number:06d}}}, quotas: {{{KEY}: {value}, consumer_byte_rate: {value}}}}}\n"
        for number in range(count)
    )
    path.write_text("".join(lines), encoding="utf-8")
    return path


def kafka_quotas(*arguments: str) -> Process:
    """One run of our command; anything but success ends the benchmark."""
    begin_s = time.perf_counter()
    program = str(Path(sys.executable).with_name("kafka-quotas"))
    process = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"kafka-quotas {' '.join(arguments[:2])} ended with {process.returncode}")
    processor_s = usage.ru_utime + usage.ru_stime
    return Process(seconds=seconds, processor_s=processor_s, mebibytes=usage.ru_maxrss / 1024)


def config_command(kafka: Kafka, arguments: Sequence[str]) -> float:
    """The wall time of one run of Kafka's command (seconds)."""
    begin_s = time.perf_counter()
    result = kafka.run_tool(CONFIG_COMMAND, ["--bootstrap-server", kafka.bootstrap, *arguments])
    seconds = time.perf_counter() - begin_s
    if result.returncode:
        raise SystemExit(f"ConfigCommand ended with {result.returncode}:\n{result.stderr}")
    return seconds


def median(run: Callable[[], float], runs: int) -> float:
    """The median of some runs, after one that warms the caches of the system."""
    run()
    return statistics.median(run() for _ in range(runs))


def verdict(met: object) -> str:
    return "met" if met else "NOT MET"


if __name__ == "__main__":
    main()
