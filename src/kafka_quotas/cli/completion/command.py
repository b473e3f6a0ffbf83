"""`kafka-quotas completion`: the scripts that shells complete by, and the link for scripts that call kafka-configs."""

import os
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.completion import COMPLETE_VARIABLE
from kafka_quotas.cli.output.render import write
from kafka_quotas.commands.kafka_configs.run import install_drop_in
from kafka_quotas.core.errors import UsageError

_PROGRAM = "kafka-quotas"


class Shell(StrEnum):
    """The shells that complete the command."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    *,
    shell: Annotated[Shell | None, typer.Argument(help="Print the completion script of this shell.")] = None,
    install_kafka_configs: Annotated[
        Path | None,
        typer.Option(
            "--install-kafka-configs",
            metavar="DIR",
            help="Make a link named kafka-configs in DIR, so that scripts which call Kafka's own program get this one. "
            "Only done on request.",
        ),
    ] = None,
) -> None:
    """Print a completion script, or install the program as kafka-configs.

    A shell completes once it has read the script: eval "$(kafka-quotas completion bash)".
    """
    if (shell is None) is (install_kafka_configs is None):
        raise UsageError("name a shell or --install-kafka-configs, one of the two")
    if install_kafka_configs is not None:
        _install(install_kafka_configs)
    if shell is not None:
        write(completion_script(shell), sys.stdout)


def _install(folder: Path) -> None:
    program = _installed_program().absolute()
    link, hidden_by = install_drop_in(folder, program, search_path=os.environ.get("PATH", os.defpath))
    write(f"{link} -> {program}", sys.stdout)
    if hidden_by is not None:
        write(f"note: the shell finds {hidden_by} first; put {link.parent} before it on PATH", sys.stderr)


def _installed_program() -> Path:
    """Return the path of the installed program.

    It is the program that was started, or the one beside the running Python.
    """
    for candidate in (Path(sys.argv[0]), Path(sys.executable).parent / _PROGRAM):
        if candidate.name == _PROGRAM and candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    raise UsageError("the installed program kafka-quotas was not found", hint="install it with pip first")


def completion_script(shell: str) -> str:
    """Return Typer's own script for a shell, from the program itself, for the shell to evaluate."""
    environment = os.environ | {COMPLETE_VARIABLE: f"source_{shell}"}
    done = subprocess.run(
        [sys.executable, "-m", "kafka_quotas"], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip("\n") + "\n"
