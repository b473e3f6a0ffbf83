"""A program that is ended when whoever started it ends, also by SIGKILL, which nobody can clean up after.

Run as a script, `python -I tied_process.py PARENT_PID PROGRAM ARGUMENT...` asks the kernel for SIGTERM at the parent's
death and becomes the program. (`preexec_fn` may hang where the parent has threads, as one with librdkafka has.)
**Source:** prctl(2), `PR_SET_PDEATHSIG`: kept over execve, and about the thread that started the process, so that is to
be the main thread. Other systems than Linux don't have it, and go without.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def tied(command: Sequence[str]) -> list[str]:
    """The command line that runs a command tied to this process. Its first part is a program with its full path."""
    return [sys.executable, "-I", __file__, str(os.getpid()), *command]


def _become(parent: int, command: list[str]) -> None:
    """Never returns, but where the parent is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == parent:  # it may have ended before the kernel was asked
        os.execv(command[0], command)  # noqa: S606 - the program that our own caller names


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
