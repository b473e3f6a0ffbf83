"""The daemon as a process of its own, as a user runs it."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes.awaiting import interval_s
from tests.support.processes.forked_program import ForkedProgram
from tests.support.processes.logged_process import SOON_S, LoggedProcess
from tests.support.stores.stored_quotas import store_quotas

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.enforcement.control.client import ask_status
from kafka_quotas.enforcement.control.server import ControlError
from kafka_quotas.enforcement.telemetry.status import DaemonStatus

START_S = 240.0
STOP_S = 120.0


class DaemonProcess(LoggedProcess):
    """A running daemon: where it listens, and what it logged so far."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = (),
    ) -> None:
        """Start it, in a fresh Python if that has a path or a program of its own, and wait until it listens."""
        command, variables = ["daemon", "run", *arguments], {**os.environ, **(environment or {})}
        if not program and "PYTHONPATH" not in (environment or {}):
            super().__init__(ForkedProgram(command, variables))
        else:
            process = subprocess.Popen(
                [sys.executable, *(program or ("-m", "kafka_quotas")), *command],
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
                env=variables,
            )
            super().__init__(process)
        try:
            started = self.wait_for_log("daemon listening", timeout_s=START_S)
            self.bootstrap = _field(started, "listen")
            self.control = Path(_field(started, "control"))
            self.metrics_url = _field(started, "metrics") if "metrics=" in started else ""
        except AssertionError:
            self._process.kill()
            self.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def status(self) -> DaemonStatus:
        return ask_status(self.control)

    def wait_until(self, holds, *, timeout_s: float = SOON_S) -> DaemonStatus:
        """The first status for which `holds` is true.

        Fails after `timeout_s`. For a while there may be no answer.
        """
        began_s = time.monotonic()
        pause = threading.Event()
        last: DaemonStatus | ControlError | None = None
        while (waited_s := time.monotonic() - began_s) < timeout_s:
            try:
                last = self.status()
                if holds(last):
                    return last
            except ControlError as error:
                last = error
            pause.wait(interval_s(waited_s))
        raise AssertionError(f"it never came to hold; last: {last}")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the process without asking it.

        The log is complete then.
        """
        self._process.kill()
        self.stop()

    def wait(self) -> int:
        """The exit code.

        The log is complete then.
        """
        code = self._process.wait(STOP_S)
        self._reader.join(STOP_S)
        return code

    def stop(self) -> int:
        """The exit code after SIGTERM, or of a daemon that ended by itself."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.wait()
            raise
        finally:
            self.close_log(STOP_S)


@contextmanager
def running_daemon(
    folder: Path,
    *,
    upstream: str,
    options: Sequence[str] = (),
    store: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[DaemonProcess]:
    """A daemon in front of `upstream`, with a local store in `folder` unless `store` names another.

    Stopped at the end. `upstream` may name several brokers. Fails where the log holds a traceback.
    """
    daemon = DaemonProcess(
        [
            "--upstream",
            upstream,
            "--listen",
            "127.0.0.1:0",
            "--store",
            store or store_url(folder),
            "--control",
            str(folder / "control.sock"),
            *options,
        ],
        environment=environment,
    )
    try:
        yield daemon
    finally:
        daemon.stop()
    assert not daemon.lines("Traceback"), "".join(daemon.log)


def without(module: str, folder: Path) -> dict[str, str]:
    """The environment of a process in which a module can't be imported."""
    place = folder / f"without-{module}"
    place.mkdir()
    (place / "sitecustomize.py").write_text(f"import sys\n\nsys.modules['{module}'] = None\n")
    return {"PYTHONPATH": str(place)}


def store_url(folder: Path) -> str:
    """The address of the store of a daemon in this folder."""
    return f"local:{folder / 'quotas.db'}"


def set_quota(folder: Path, entity: Entity, **quotas: float | None) -> None:
    """Store quotas of a daemon in this folder, or remove those that are None."""
    store_quotas(store_url(folder), {entity: quotas})


def _field(line: str, name: str) -> str:
    match = re.search(rf'\b{name}=(?:"([^"]*)"|(\S+))', line)
    assert match is not None, f"no {name} in {line}"
    return match[1] or match[2]
