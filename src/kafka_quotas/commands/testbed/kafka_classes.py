"""Kafka's own quota managers in a Java process, as the judge of throttle times.

The process compiles one source file against Kafka's jars, so it needs a JDK. Without one, or with the jars of a release
whose classes differ, there is no answer, and the caller has another judge.
"""

import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from kafka_quotas.commands.testbed.child_process import child_command
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.simulation import Event, EventOperation
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.results.prediction import ThrottleJudge
from kafka_quotas.pipeline.engine.spark_session import find_java

KAFKA_HOME: Final = "KAFKA_HOME"
"""The variable with the folder of an installed Kafka."""
_SOURCE: Final = Path(__file__).with_name("ThrottleTimes.java")
_TYPES: Final = {
    Workload.PRODUCE: "PRODUCE",
    Workload.CONSUME: "FETCH",
    Workload.MUTATE: "CONTROLLER_MUTATION",
}
_WORDS: Final = {EventOperation.RECORD_NOCHECK: "quiet", EventOperation.UNRECORD: "unrecord"}
_ORIGIN_MS: Final = 1_700_000_000_000
"""When the first charge happens: a bucket of tokens that was never used is full by then."""
_ANSWER_S: Final = 60.0


def known_jars(folder: Path | None, environment: Mapping[str, str]) -> Path | None:
    """Return the folder of Kafka's jars that was named, else that of an installed Kafka, else None."""
    if folder is not None:
        return folder
    home = environment.get(KAFKA_HOME)
    installed = Path(home) / "libs" if home else None
    return installed if installed is not None and installed.is_dir() else None


class KafkaClasses:
    """The running managers of one release."""

    def __init__(self, process: "subprocess.Popen[str]", *, name: str) -> None:
        self.name = name
        self._process = process

    def throttle_times(
        self, events: Sequence[Event], *, workload: Workload, quota: float, window: QuotaWindow
    ) -> Sequence[int] | None:
        """Return the throttle time in ms of every recorded event, None where the managers give no answer."""
        kind = _TYPES.get(workload)
        if kind is None or self._process.stdin is None or self._process.stdout is None:
            return None
        lines = [f"{kind} {window.samples} {window.window_s} {quota!r} {len(events)}"]
        for event in events:
            word = "record" if event.operation is None else _WORDS.get(event.operation, "record")
            lines.append(f"{_ORIGIN_MS + round(event.t_ms)} {word} {float(event.amount)!r}")
        watchdog = threading.Timer(_ANSWER_S, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write("\n".join(lines) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            return [int(figure) for figure in answer.split()] if answer else None
        except (OSError, ValueError):
            return None
        finally:
            watchdog.cancel()


@contextmanager
def kafka_classes(jars: Path | None) -> Iterator[ThrottleJudge | None]:
    """Run the managers of the release in a folder of jars for the block, None without jars or Java."""
    release = next((path.stem.partition("kafka-clients-")[2] for path in _clients(jars)), None)
    java = None
    if release is not None:
        with suppress(KafkaQuotasError):
            java = find_java()
    if java is None:
        yield None
        return
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
    process = subprocess.Popen(  # noqa: S603 - Java
        child_command([str(java), *options, str(_SOURCE)]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="ascii",
    )
    try:
        yield KafkaClasses(process, name=f"Kafka {release}'s own classes")
    finally:
        process.kill()
        with suppress(OSError):  # what is buffered has nobody to read it
            process.communicate()


def _clients(jars: Path | None) -> Sequence[Path]:
    return () if jars is None else sorted(jars.glob("kafka-clients-*.jar"))
