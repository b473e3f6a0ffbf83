"""A process of which every line on standard error is kept, as soon as it is there."""

import subprocess
import threading

from tests.support.processes.forked_program import ForkedProgram

SOON_S = 120.0
"""What is waited for comes at once; on a machine that has much else to do it takes its time."""


class LoggedProcess:
    """A running process with a pipe for its standard error, and what it logged so far."""

    def __init__(self, process: "subprocess.Popen[str] | ForkedProgram") -> None:
        self._process = process
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def log(self) -> list[str]:
        with self._changed:
            return list(self._lines)

    def lines(self, *pieces: str) -> list[str]:
        """The log lines that hold all of these texts."""
        return [line for line in self.log if all(piece in line for piece in pieces)]

    def wait_for_log(self, *pieces: str, count: int = 1, timeout_s: float = SOON_S) -> str:
        """The `count`th line with all of these texts, as soon as it is there.

        Fails after `timeout_s`.
        """

        def found() -> list[str]:
            return [line for line in self._lines if all(piece in line for piece in pieces)]

        with self._changed:
            done = self._changed.wait_for(
                lambda: len(found()) >= count or self._process.poll() is not None, timeout=timeout_s
            )
            if done and len(found()) >= count:
                return found()[count - 1]
        raise AssertionError(f"no {pieces} in the log:\n" + "".join(self._lines))

    def close_log(self, timeout_s: float) -> None:
        """Wait until the log of an ended process is complete, and close its pipe."""
        self._reader.join(timeout_s)
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()
