"""A program that ends when the process that started it ends, even by SIGKILL.

Run as a script, `python -I child_process.py PARENT_PID PROGRAM ARGUMENT...` asks the kernel for SIGTERM at the parent's
death and becomes the program. (`preexec_fn` may hang where the parent has threads, as one with librdkafka has.) Other
systems than Linux do not have this signal, and run the program without it.

The signal is kept over execve and refers to the thread that started the process, which must be the main thread.
**Source:** prctl(2), `PR_SET_PDEATHSIG`.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def child_command(command: Sequence[str]) -> list[str]:
    """Return the command line that runs a program, given with its full path, until this process ends."""
    return [sys.executable, "-I", __file__, str(os.getpid()), *command]


def _become(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == parent:  # it may have ended before the kernel was asked
        os.execv(command[0], command)  # noqa: S606 - the program that our own caller names


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
