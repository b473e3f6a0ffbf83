"""Where the installed program starts. A shell that wants names is answered before anything large is imported."""

import os
import sys

COMPLETE_VARIABLE = "_KAFKA_QUOTAS_COMPLETE"
"""What a shell's script asks by; Typer chose the name."""


def main() -> int:
    """The exit code, see `kafka_quotas.cli.main.main`."""
    instruction = os.environ.get(COMPLETE_VARIABLE)
    if instruction is not None:
        from kafka_quotas.cli.quick_completion import quick_answer  # noqa: PLC0415 - few runs complete anything

        answer = quick_answer(instruction, os.environ)
        if answer is not None:
            sys.stdout.write(answer.text)
            return answer.exit_code
    from kafka_quotas.cli.main import main as run  # noqa: PLC0415 - Typer takes most of the time to a prompt

    return run()
