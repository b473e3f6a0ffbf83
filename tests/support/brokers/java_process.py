"""Java processes for tests: servers that are waited for by a probe, and Kafka's own command-line tools.

A server dies with the process that started it, also when that one is killed; it is ended by its own process id.
"""

import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.brokers.class_archive import archive_options
from tests.support.brokers.maven import MissingServerError

READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0
PROBE_INTERVAL_S = 0.1
LOG_TAIL_LINES = 60
QUICK_START = (
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:MetaspaceSize=256m",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
"""For Java that lives for minutes and has little to do: it starts with half of the work, and loses less later on.

The first option alone leaves 48 MB for machine code, in which Spark compiled again and again what it had just dropped;
the next two spare collections that only the loading of classes causes, and threads for them; the last two take the
17,000 classes of a Spark session as their compiler wrote them, whose verification is a third of loading them.
"""

_RESERVATIONS: list[socket.socket] = []


def java() -> str | None:
    """The `java` command, None where there is none on the path."""
    return shutil.which("java")


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on, below those that outgoing connections take.

    No process that asks gets it again while this one lives: the servers of one cluster begin to listen seconds later,
    and fifteen random ports held two equal ones in one of two hundred clusters.
    """
    for _ in range(200):
        port, reservation = random.randint(11000, 32000), socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0kafka-quotas-port-{port}")  # a name without a file, gone with the process
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            continue
        _RESERVATIONS.append(reservation)
        return port
    raise MissingServerError("no free port between 11000 and 32000")


def java_command(jars: Path, main_class: str, arguments: Sequence[str], *, options: Sequence[str] = ()) -> list[str]:
    """The command line that runs a class from a folder of jars."""
    quick = archive_options(jars)
    return [java() or "java", *options, *quick, "-XX:+UseSerialGC", "-cp", f"{jars}/*", main_class, *arguments]


def run_tool(
    jars: Path,
    main_class: str,
    arguments: Sequence[str],
    *,
    timeout_s: float = 300,
    stdin: str | None = None,
    options: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """What one of a server's own tools answered: exit code, standard output and standard error."""
    return subprocess.run(
        java_command(jars, main_class, arguments, options=["-Xmx256m", *QUICK_START, *options]),
        capture_output=True,
        text=True,
        input=stdin or "",
        timeout=timeout_s,
        check=False,
    )


class JavaServer:
    """A Java server with its log.

    Started at once, ready after `wait_ready`.
    """

    def __init__(
        self,
        name: str,
        jars: Path,
        main_class: str,
        arguments: Sequence[str],
        *,
        log: Path,
        options: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.log = log
        command = java_command(jars, main_class, arguments, options=["-Xms64m", "-Xmx512m", *options])
        setpriv = shutil.which("setpriv")
        if setpriv is not None:
            command = [setpriv, "--pdeathsig", "TERM", *command]
        self._command = command
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                self._command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.log.parent
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def wait_ready(self, probe: Callable[[], bool], *, beside: "Sequence[JavaServer]" = ()) -> None:
        """Wait until `probe` says yes.

        Raises `MissingServerError` with the end of the log where the process, or one beside it that has to live for
        this one to be ready, died or the time is up.
        """
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not _answers(probe):
            for server in (self, *beside):
                server.check_alive()
            if time.monotonic() > deadline:
                self.stop()
                raise MissingServerError(f"{self.name} was not ready in {READY_TIMEOUT_S} s:\n{self.log_tail()}")
            time.sleep(PROBE_INTERVAL_S)

    def check_alive(self) -> None:
        """Raise `MissingServerError` with the end of the log where the process ended."""
        if self._process.poll() is not None:
            raise MissingServerError(f"{self.name} ended with {self._process.returncode}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    def kill(self) -> None:
        """Kill the process, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def start_again(self) -> None:
        """Start a server again that was stopped or killed. It is ready after `wait_ready`."""
        self._process = self._started()

    def stop(self) -> None:
        """Stop the process, and wait until it is gone."""
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _answers(probe: Callable[[], bool]) -> bool:
    try:
        return probe()
    except OSError:
        return False
