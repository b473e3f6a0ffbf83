"""The start of the installed program.

It answers a shell's completion before it imports anything large.
"""

import atexit
import io
import os
import sys
from typing import NoReturn

from kafka_quotas.cli.completion import COMPLETE_VARIABLE
from kafka_quotas.core.errors import INTERRUPTED


def main() -> int:
    """Run the program and return the exit code, see `kafka_quotas.cli.main.main`."""
    instruction = os.environ.get(COMPLETE_VARIABLE)
    code = None if instruction is None else _complete(instruction)
    if code is not None:
        return code
    try:
        from kafka_quotas.cli.main import main as run  # noqa: PLC0415 - Typer takes most of the time to a prompt
    except KeyboardInterrupt:  # what `run` answers itself may come before it is there, on a busy machine for seconds
        return INTERRUPTED
    return run()


def program() -> NoReturn:
    """Run the program and end the process with its exit code."""
    end_process(main())


def end_process(code: int) -> NoReturn:
    """End the process with an exit code, quickly where a library with threads of its own was used.

    Arrow's threads may still let go of files of an object store. One that asks for Python's lock while the interpreter
    is taken down is ended by Python 3.11, and its C++ then ends the process by SIGABRT, though all work was done.
    librdkafka's threads, such as those of a client that an error left open, begin and end while OpenSSL cleans up what
    it keeps of each thread: "double free or corruption", or SIGSEGV.
    """
    if {"pyarrow", "confluent_kafka"} & sys.modules.keys():
        atexit._run_exitfuncs()  # noqa: SLF001 - what the interpreter does first at its end
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _complete(instruction: str) -> int | None:
    """Answer a completion that needs no Typer and return the exit code, None for any other run."""
    from kafka_quotas.cli.completion.values import quick_answer  # noqa: PLC0415 - few runs complete anything

    try:
        answer = quick_answer(instruction, os.environ)
        if answer is None:
            return None
        if isinstance(sys.stdout, io.TextIOWrapper):  # a letter that the terminal's encoding lacks is escaped
            sys.stdout.reconfigure(errors="backslashreplace")
        text, exit_code = answer
        sys.stdout.write(text)
        sys.stdout.flush()
    except Exception:  # noqa: BLE001 - a press of Tab shows no error, least of all a traceback
        return 1
    return exit_code
