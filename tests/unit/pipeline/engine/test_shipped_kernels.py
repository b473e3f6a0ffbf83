"""Kernels in the archive that Spark ships: compiled once for all sessions of a machine, whatever the archive's name."""

import json
import os
import subprocess
import sys
from pathlib import Path

from kafka_quotas.pipeline.engine.spark_session import write_package_archive

_SCRIPT = """
import json, sys
import numpy as np
from kafka_quotas.pipeline.kernels.order import _is_ordered_within_rows as kernel
found = bool(kernel(np.zeros(3, np.int32), np.array([1, 3, 2]), np.zeros(2, np.int64)))
hits, misses = (sum(each.values()) for each in (kernel.stats.cache_hits, kernel.stats.cache_misses))
print(json.dumps([sys.modules["kafka_quotas"].__file__, found, hits, misses]))
"""


def test_a_second_session_finds_the_machine_code_of_the_first(tmp_path: Path) -> None:
    archive = write_package_archive(tmp_path)
    found = []
    for session in ("first", "second"):
        place = tmp_path / session / archive.name
        place.parent.mkdir()
        place.write_bytes(archive.read_bytes())
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env={**os.environ, "PYTHONPATH": str(place), "XDG_CACHE_HOME": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        name, *figures = json.loads(done.stdout)
        assert name.startswith(str(place))
        found.append(figures)
    assert found == [[False, 0, 1], [False, 1, 0]]
