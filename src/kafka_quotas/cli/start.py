"""The start of the installed program.

It answers a shell's completion before it imports anything large.
"""

import io
import os
import sys

from kafka_quotas.cli.completion import COMPLETE_VARIABLE


def main() -> int:
    """Run the program and return the exit code, see `kafka_quotas.cli.main.main`."""
    instruction = os.environ.get(COMPLETE_VARIABLE)
    code = None if instruction is None else _complete(instruction)
    if code is not None:
        return code
    from kafka_quotas.cli.main import main as run  # noqa: PLC0415 - Typer takes most of the time to a prompt

    return run()


def _complete(instruction: str) -> int | None:
    """Answer a completion that needs no Typer and return the exit code, None for any other run."""
    from kafka_quotas.cli.completion.quick import quick_answer  # noqa: PLC0415 - few runs complete anything

    try:
        answer = quick_answer(instruction, os.environ)
        if answer is None:
            return None
        if isinstance(sys.stdout, io.TextIOWrapper):  # a letter that the terminal's encoding lacks is escaped
            sys.stdout.reconfigure(errors="backslashreplace")
        sys.stdout.write(answer.text)
        sys.stdout.flush()
    except Exception:  # noqa: BLE001 - a press of Tab shows no error, least of all a traceback
        return 1
    return answer.exit_code
