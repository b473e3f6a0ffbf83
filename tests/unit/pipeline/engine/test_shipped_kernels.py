"""Kernels in the archive that Spark ships: compiled once for all sessions of a machine, whatever the name."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np

from kafka_quotas.pipeline.engine.spark_session import write_package_archive
from kafka_quotas.pipeline.kernels.order import _is_ordered_within_rows as is_ordered

_SCRIPT = """
import json, sys
import numpy as np
from kafka_quotas.pipeline.kernels.order import _is_ordered_within_rows as kernel
found = bool(kernel(np.zeros(3, np.int32), np.array([1, 3, 2]), np.zeros(2, np.int64)))
hits, misses = (sum(each.values()) for each in (kernel.stats.cache_hits, kernel.stats.cache_misses))
print(json.dumps([sys.modules["kafka_quotas"].__file__, found, hits, misses]))
"""


def run_archive(archive: Path, folder: Path) -> tuple[bool, int, int]:
    """Run a kernel of an archive, and return its result and how often its machine code was found, and was not."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env={**os.environ, "PYTHONPATH": str(archive), "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    name, found, hits, misses = json.loads(done.stdout)
    assert name.startswith(str(archive))
    return found, hits, misses


def moved(archive: Path, folder: Path, session: str) -> Path:
    place = folder / session / archive.name
    place.parent.mkdir()
    place.write_bytes(archive.read_bytes())
    return place


def test_a_second_session_finds_the_machine_code_of_the_first(tmp_path: Path) -> None:
    archive = write_package_archive(tmp_path)
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("kafka_quotas/of_another_version.py", "")
    first, second = (run_archive(moved(archive, tmp_path, session), tmp_path) for session in ("first", "second"))
    assert (first, second) == ((False, 0, 1), (False, 1, 0))


def test_an_executor_that_has_the_package_finds_the_machine_code_beside_it(tmp_path: Path) -> None:
    assert not is_ordered(np.zeros(3, np.int32), np.array([1, 3, 2]), np.zeros(2, np.int64))  # compiled by now
    assert run_archive(write_package_archive(tmp_path), tmp_path) == (False, 1, 0)
    assert not (tmp_path / "cache" / "kafka-quotas").exists()
