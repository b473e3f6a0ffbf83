"""A process of `command_series`: commands of the pipeline, as a user with Spark and without a store's variables."""

import json
import os
import subprocess
import sys
from typing import Final

from tests.support.pipeline.logs import ROOT

TIMEOUT_S: Final = 1200
"""How long a series of commands may take."""


def environment() -> dict[str, str]:
    """The variables of a user who has none of a store's, and of Spark's those by which a test's Java starts quickly."""
    kept, none = {"SPARK_SUBMIT_OPTS"}, ("PYSPARK", "SPARK", "AWS_")
    return {key: value for key, value in os.environ.items() if key in kept or not key.startswith(none)}


def started(series: list[tuple[str, ...]]) -> "subprocess.Popen[str]":
    """The process of commands that run one after the other."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.processes.command_series", *(json.dumps(each) for each in series)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def told_by(process: "subprocess.Popen[str]") -> str:
    """What a process says on standard error, which must end well."""
    try:
        _, told = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 0, told
    return told
