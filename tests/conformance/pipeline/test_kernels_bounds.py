"""The kernels' own tests once more with bounds checks compiled in: no kernel leaves its arrays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CORE = "tests/property/pipeline/test_kernels_core.py"
SUITES = ("tests/conformance/pipeline/test_kernels_lines.py", CORE)
_PROGRAM = """
import numpy as np
from kafka_quotas.pipeline.kernels import admission, limiters
clocks, sums = limiters.fresh_clocks(1), np.zeros(limiters.sums_width(1))
try:
    for second in range(20):
        admission.record_rate(clocks, sums, 0, 0, 1.0, 1000 * second, 10, 1000)
except IndexError:
    print("checked", flush=True)
import sys, pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""
"""A ring for one sample of which ten are asked, and then the tests that are named."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "suites",
    [
        pytest.param((f"{CORE}::test_each_throttle_is_the_one_of_core",), id="throttles"),
        pytest.param(SUITES, id="all", marks=pytest.mark.long),
    ],
)
def test_kernels_stay_within_their_arrays(tmp_path: Path, suites: tuple[str, ...]) -> None:
    # A cache of its own, for machine code is kept by what it was compiled from, not by whether it checks bounds.
    added = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")} | added
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *suites],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("checked\n")
