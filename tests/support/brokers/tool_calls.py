"""One of Kafka's command-line tools, called again and again in one process of Java.

Each start of it takes 1.6 CPU seconds, and a call most of the time a tenth. Tests that are about its process, its
environment or its signals start one of their own by `Kafka.run_tool`.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.brokers.java_process import QUICK_START, java_command

_PROGRAM = Path(__file__).parents[1] / "java" / "ToolCalls.java"


class ToolCalls:
    """The calls of a tool, which is a main class of a folder of jars."""

    def __init__(self, jars: Path, main_class: str) -> None:
        command = java_command(jars, str(_PROGRAM), [main_class], options=["-Xmx256m", *QUICK_START])
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
        )

    def call(self, arguments: Sequence[str]) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of one call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(list(arguments)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"Java ended with {self._process.poll()}"
        code, out, err = json.loads(answer)
        return code, out, err

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)
