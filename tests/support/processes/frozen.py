"""Processes that stand still for a while, as on a machine that hangs."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes.awaiting import await_true


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process of the tests' own with all its threads, and let it run again at the end.

    The signal only asks for the stop: on a busy machine the threads of a server still answer after `kill` has returned
    (93 of 300 times, for up to 0.1 s).
    """
    os.kill(pid, signal.SIGSTOP)
    try:
        await_true(lambda: _all_threads_stopped(pid), f"process {pid} stops")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _all_threads_stopped(pid: int) -> bool:
    states = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            states.append(path.read_text().rpartition(")")[2].split()[0])
        except FileNotFoundError:  # that thread has ended meanwhile
            return False
    return all(state == "T" for state in states)
