"""Kafka's command-line tools, called again and again in one process of Java.

Each start of one takes 1.6 CPU seconds, and a call most of the time a tenth. Tools that go on, that read their input or
whose threads stay are started anew by `run_tool`.
"""

import atexit
import json
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.support.brokers.java_process import QUICK_START, java_command

CALLED_AGAIN = ("kafka.admin.ConfigCommand", "org.apache.kafka.tools.MetadataQuorumCommand")
"""Main classes of tools that ask, tell and end."""
_PROGRAM = Path(__file__).parents[1] / "java" / "ToolCalls.java"
_RUNNING: dict[Path, "subprocess.Popen[str]"] = {}
_LOCK = threading.Lock()


def call_tool(jars: Path, main_class: str, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What a tool answered, as `run_tool` returns it, by the process of this folder of jars."""
    with _LOCK:
        process = _RUNNING.get(jars) or _started(jars)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([main_class, *arguments]) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    assert answer, f"Java ended with {process.poll()}"
    code, out, err = json.loads(answer)
    return subprocess.CompletedProcess([main_class, *arguments], code, out, err)


def _started(jars: Path) -> "subprocess.Popen[str]":
    command = java_command(jars, str(_PROGRAM), [], options=["-Xmx256m", *QUICK_START])
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
    )
    atexit.register(process.communicate)
    _RUNNING[jars] = process
    return process
