"""Runs every shipped scenario, one after the other, and writes what came out into the pages of `docs/scenarios`.

Run it by `python -m generators.scenario_pages` on a machine with no other work: it waits until the load average is
below 1, and each page says what the machine was and what other programs took of it meanwhile. Each scenario is run by
the command of its own page, in a process that has a time limit. What a run printed stays in a folder, so a series that
was ended, or whose time is over, continues where it was: a scenario is run again only where its file or the tool
changed since, or its exit code was not 0. Where a run came out otherwise than its page showed, a line says in what.
"""

import argparse
import datetime as dt
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from generators.measured_page import JARS, Measurement, differences, measured_page, page_command
from kafka_quotas.loadtest.scenario.model import shipped_names

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = ROOT / "docs" / "scenarios"
_SOURCE: Final = ROOT / "src" / "kafka_quotas"
_MOST_LOAD: Final = 1.0
_LOOK_S: Final = 5.0
_ENDING_S: Final = 60.0
"""How long a run that was interrupted may take to put everything back."""
_TIMED_OUT: Final = 124


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The circumstances that all runs of one series share."""

    jars: Path
    """Folder of Kafka's jars, fetched there by the first run that needs them."""
    kept: Path
    """Folder for what each run printed."""
    time_limit_s: float
    """Seconds after which a run is interrupted."""
    load_average: float
    """Load average of the minute before the series."""


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 where every run exited with 0, 1 where one did not or was not begun, 2 where the machine is busy."""
    arguments = _parsed(argv)
    load_average = quiet_load(0.0 if arguments.busy else arguments.wait)
    if load_average >= _MOST_LOAD and not arguments.busy:
        _say(f"error: the load average is {load_average:.2f}; figures for the pages need less than {_MOST_LOAD:g}")
        _say("hint: end what else runs, or allow it with --busy, which the pages will show")
        return 2
    series = Series(
        jars=arguments.jars.absolute(),
        kept=arguments.kept.absolute(),
        time_limit_s=arguments.time_limit,
        load_average=load_average,
    )
    started_s = time.monotonic()
    failed, left = [], []
    for name in arguments.names or shipped_names():
        if time.monotonic() - started_s >= arguments.within:
            left.append(name)
        elif not _written(name, series, again=arguments.again):
            failed.append(name)
    _say(f"{'the others' if left else 'all'} written after {time.monotonic() - started_s:.0f} s")
    for name in failed:
        _say(f"warning: {name} did not exit with 0; look at its page, and run this command again")
    if left:
        _say(f"warning: no time was left for {', '.join(left)}; run this command again, which keeps what is done")
    return 1 if failed or left else 0


def quiet_load(wait_s: float) -> float:
    """Return the load average as soon as it is low enough, or after `wait_s` seconds as it is then."""
    deadline_s, is_waiting = time.monotonic() + wait_s, False
    while (load_average := os.getloadavg()[0]) >= _MOST_LOAD and time.monotonic() < deadline_s:
        if not is_waiting:
            _say(f"the load average is {load_average:.2f}; waiting up to {wait_s:.0f} s until it is below 1")
            is_waiting = True
        time.sleep(_LOOK_S)
    return load_average


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m generators.scenario_pages",
        description="Run the shipped scenarios and write what came out into docs/scenarios.",
    )
    parser.add_argument("names", nargs="*", metavar="SCENARIO", help="default: all")
    parser.add_argument("--jars", type=Path, default=ROOT / ".cache" / "kafka-4.3.1", help="folder of Kafka's jars")
    parser.add_argument("--kept", type=Path, default=ROOT / ".cache" / "scenarios", help="folder for finished runs")
    parser.add_argument("--again", action="store_true", help="run those again that are finished")
    parser.add_argument("--busy", action="store_true", help="run on a machine that has other work as well")
    parser.add_argument("--time-limit", type=float, default=400.0, metavar="SECONDS", help="of one scenario")
    parser.add_argument(
        "--wait", type=float, default=600.0, metavar="SECONDS", help="for the machine to become quiet; default: 600"
    )
    parser.add_argument(
        "--within",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help="of the series, after which no other scenario begins; default: 1800",
    )
    arguments = parser.parse_args(argv)
    unknown = sorted(set(arguments.names) - set(shipped_names()))
    if unknown:
        parser.error(f"no scenario is called {', '.join(unknown)}")
    return arguments


def _written(name: str, series: Series, *, again: bool) -> bool:
    """Write the page of a scenario from its run or from the one that is kept, and return whether it exited with 0."""
    (page,) = PAGES.rglob(f"{name}.md")
    before = page.read_text(encoding="utf-8")
    kept = series.kept / f"{name}.json"
    measurement = None if again else kept_measurement(kept, digest(name))
    if measurement is None:
        measurement = _run(name, page_command(before), series)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(asdict(measurement), indent=1), encoding="utf-8")
    _say(f"{name}: exit code {measurement.exit_code}, {measurement.elapsed_s:.0f} s")
    changed = differences(before, measurement)
    _say(f"{name}: came out {'otherwise than' if changed else 'as'} on its page")
    for line in changed:
        _say(f"  {line}")
    page.write_text(measured_page(before, measurement), encoding="utf-8")
    return measurement.exit_code == 0


def kept_measurement(file: Path, wanted: str) -> Measurement | None:
    """Return the run that a file keeps, None where it has no run of that digest that exited with 0."""
    if not file.exists():
        return None
    measurement = Measurement(**json.loads(file.read_text(encoding="utf-8")))
    return measurement if measurement.digest == wanted and measurement.exit_code == 0 else None


def digest(name: str) -> str:
    """Return a digest of what a run depends on: the scenario's file, and the tool's own source."""
    files = (*sorted(_SOURCE.rglob("*.py")), *_SOURCE.rglob(f"{name}.yaml"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def _run(name: str, arguments: Sequence[str], series: Series) -> Measurement:
    command = [
        sys.executable,
        "-m",
        "kafka_quotas",
        *(str(series.jars) if each == JARS else each for each in arguments),
    ]
    _say(f"{name}: {' '.join(arguments)}")
    started_s, others_s = time.monotonic(), _other_cpu_s()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:  # noqa: S603 - ours
        try:
            output, _ = process.communicate(timeout=series.time_limit_s)
            code = process.returncode
        except subprocess.TimeoutExpired:
            output, code = _interrupted(process), _TIMED_OUT
    elapsed_s = time.monotonic() - started_s
    return Measurement(
        name=name,
        digest=digest(name),
        exit_code=code,
        output=output,
        day=f"{dt.datetime.now(tz=dt.UTC):%-d %B %Y}",
        machine=_machine(),
        load_average=series.load_average,
        other_cores=max(0.0, _other_cpu_s() - others_s) / elapsed_s,
        versions=_versions(series.jars if JARS in arguments else None),
        elapsed_s=elapsed_s,
    )


def _interrupted(process: subprocess.Popen[str]) -> str:
    """Interrupt a run that took too long, so that it puts everything back, and return what it printed."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=_ENDING_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0]


def _other_cpu_s() -> float:
    """Return the CPU seconds of this machine since its start that neither this program nor its children took."""
    user, nice, system, _, _, irq, soft_irq, *_ = map(
        int, Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    )
    busy_s = (user + nice + system + irq + soft_irq) / os.sysconf("SC_CLK_TCK")
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return busy_s - sum(each.ru_utime + each.ru_stime for each in own)


def _machine() -> str:
    memory_kib = int(re.findall(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(encoding="ascii"))[0])
    return f"{len(os.sched_getaffinity(0))} cores and {memory_kib / 1024 / 1024:.0f} GiB of memory"


def _versions(jars: Path | None) -> str:
    """Return the versions that a run's figures depend on, with Kafka's where a broker ran from these jars."""
    packages = [f"{name} {importlib.metadata.version(name)}" for name in ("kafka-quotas", "confluent-kafka")]
    brokers = [] if jars is None else sorted(jars.glob("kafka-server-[0-9]*.jar"))
    kafka = [f"Kafka {brokers[-1].stem.rpartition('-')[2]}"] if brokers else []
    return ", ".join([*packages, *kafka, f"Python {platform.python_version()}"])


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
