"""The daemon as a child process: started, awaited until it listens, and always stopped.

It ends with this process even where that is killed.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_quotas.commands.testbed.child_process import child_command
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.extras import require_linux
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.enforcement import MAX_PATH_BYTES, ask_status

LISTENING = "daemon listening"
"""The daemon's log message once it accepts clients."""

_CONTROL = "control.sock"
_HOST = "127.0.0.1"
_PORTS = range(20_000, 32_000)  # below the range that outgoing connections are given
_PORT_ATTEMPTS = 20
_READY_S = 60.0  # on a machine that is very busy an interpreter takes half a minute to start
_LOOK_S = 0.02
_STOP_S = 1.0
_DRAIN_S = 15.0  # connections with requests in flight are given ten


class DaemonStartError(KafkaQuotasError):
    """The daemon ended, or did not listen in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningDaemon:
    """A listening daemon: its address for clients, and its process id at first."""

    bootstrap: str
    pid: int
    restart: Callable[[], None]
    """Ends it in order, as a rolling restart does, and returns when it listens again: where it was, given its port."""


@contextlib.contextmanager
def running_daemon(
    *,
    upstream: str,
    store_url: str,
    window: QuotaWindow,
    folder: Path,
    options: Sequence[str] = (),
    port: int = 0,
) -> Iterator[RunningDaemon]:
    """Run a daemon in front of `upstream` for the block, with its log and socket in `folder`.

    `options` are further arguments of `daemon run`, and `port` is where it listens, 0 for any.

    Raises:
        DaemonStartError: The daemon does not start. The message has the last line of its log.
        KafkaQuotasError: This is not Linux.
    """
    require_linux("the daemon")
    log = folder / "daemon.log"
    with _control_path(folder) as control:
        arguments = {
            "--upstream": upstream,
            "--listen": f"{_HOST}:{port}",
            "--store": store_url,
            "--control": str(control),
            "--quota-window-num": str(window.samples),
            "--quota-window-size-seconds": str(window.window_s),
        }
        own = [part for argument in arguments.items() for part in argument]
        command = child_command([sys.executable, "-m", "kafka_quotas", "daemon", "run", *options, *own])
        process = _started(command, log)

        def restart() -> None:
            nonlocal process
            _end(process, drain_s=_DRAIN_S)
            process = _started(command, log)
            _wait_until_listening(process, log)

        try:
            _wait_until_listening(process, log)
            listen = ask_status(control).listeners[0].listen
            yield RunningDaemon(bootstrap=listen, pid=process.pid, restart=restart)
        finally:
            _end(process)


def _started(command: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
    with log.open("wb") as sink:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)  # noqa: S603 - this program


@contextlib.contextmanager
def _control_path(folder: Path) -> Iterator[Path]:
    """Yield the path of the control socket, in a folder of its own where that of the run is too long."""
    path = folder / _CONTROL
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="kafka-quotas-", dir="/tmp", ignore_cleanup_errors=True) as short:
        yield Path(short) / _CONTROL


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive ports that are free at the moment.

    Raises:
        DaemonStartError: There are none.
    """
    for first in random.sample(_PORTS, _PORT_ATTEMPTS):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind((_HOST, port))
            except OSError:
                continue
            return first
    raise DaemonStartError(f"no {count} free ports in a row between {_PORTS.start} and {_PORTS.stop}")


def _wait_until_listening(process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while LISTENING not in (text := log.read_text(encoding="utf-8", errors="replace")):
        if process.poll() is not None:
            raise DaemonStartError(f"the daemon ended with exit code {process.returncode}: {last_line(text)}")
        if time.monotonic() > deadline:
            raise DaemonStartError(f"the daemon did not listen within {_READY_S:.0f} s: {last_line(text)}")
        time.sleep(_LOOK_S)


def last_line(text: str) -> str:
    """Return the last line of a log, for a message."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it wrote no log"


def _end(process: "subprocess.Popen[bytes]", *, drain_s: float = _STOP_S) -> None:
    # The second SIGTERM skips draining. On a busy machine the daemon takes seconds to finish its event log, by which it
    # may be judged.
    end_process(process, (signal.SIGTERM, drain_s), (signal.SIGTERM, _DRAIN_S), (signal.SIGKILL, _STOP_S))


def end_process(process: "subprocess.Popen[bytes]", *steps: tuple[signal.Signals, float | None]) -> None:
    """Send the signals in turn until the process has ended, each with the time to wait for that."""
    for number, patience_s in steps:
        if process.poll() is not None:
            return
        os.kill(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)


@contextlib.contextmanager
def work_folder() -> Iterator[Path]:
    """Create an empty folder for the block, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="kafka-quotas-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
