"""The program in processes that are forked from one which has imported it: an import takes most of a second.

    python -m tests.support.processes.forked_program DESCRIPTOR

serves a socket, on which `ForkedProgram` asks for processes and for their exit codes.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
_IMPORTED = (
    *("kafka_quotas.cli.main", "kafka_quotas.cli.daemon.run", "kafka_quotas.cli.completion.values"),
    *("kafka_quotas.stores.local", "kafka_quotas.wire.client.probes", "prometheus_client", "uvloop"),
)
_LARGEST = 1 << 18
"""Bytes of a request: arguments and an environment."""


class ForkedProgram:
    """A process of the program with a pipe for its standard error, as `subprocess.Popen` has it."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        asked = {"arguments": list(arguments), "environment": dict(environment), "folder": str(Path.cwd())}
        reader, writer = os.pipe()
        self.stderr = os.fdopen(reader, encoding="utf-8")
        self.pid = _PARENT.ask(asked, writer)
        os.close(writer)
        self.returncode: int | None = None
        self._descriptor = os.pidfd_open(self.pid)
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None and self._has_ended(0):
                self.returncode = _PARENT.ask({"ended": self.pid})
                os.close(self._descriptor)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not self._has_ended(timeout):
            raise subprocess.TimeoutExpired("kafka-quotas", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, timeout_s: float | None) -> bool:
        waiting = select.poll()
        waiting.register(self._descriptor, select.POLLIN)
        return bool(waiting.poll(None if timeout_s is None else timeout_s * 1000))


class _Parent:
    """The process that forks, which starts when it is first asked and ends with this one."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    def ask(self, asked: dict[str, Any], *descriptors: int) -> int:
        with self._lock:
            if self._socket is None:
                self._socket = self._started()
            socket.send_fds(self._socket, [json.dumps(asked).encode()], descriptors)
            return int(self._socket.recv(_LARGEST))

    def _started(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
            )

        def end() -> None:
            ours.close()
            process.wait()

        atexit.register(end)
        return ours


_PARENT = _Parent()


def serve(descriptor: int) -> None:
    """Fork processes, each of which runs the program, until nobody asks any more."""
    for name in _IMPORTED:
        import_module(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which is for who asks
    with socket.socket(fileno=descriptor) as asking:
        while content := socket.recv_fds(asking, _LARGEST, 1):
            data, descriptors, *_ = content
            if not data:
                return
            asked = json.loads(data)
            if descriptors:
                answer = os.fork()
                if answer == 0:
                    break
            else:
                answer = os.waitstatus_to_exitcode(os.waitpid(asked["ended"], 0)[1])
            for each in descriptors:
                os.close(each)
            asking.send(str(answer).encode())
    run(asked["arguments"], asked["environment"], asked["folder"], descriptors[0])


def run(arguments: list[str], environment: dict[str, str], folder: str, log: int) -> None:
    """Run the program in this process as if it had just been started."""
    from kafka_quotas.cli.start import program  # noqa: PLC0415 - only in a process of its own

    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(log, sys.stderr.fileno())
    os.close(log)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["kafka-quotas", *arguments]
    program()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
