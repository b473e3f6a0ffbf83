"""Usage and replay give the same rows on a real Spark session as on this machine alone."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.java_process import java

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(java() is None, reason="Spark needs Java, and there is none here"),
    pytest.mark.timeout(1200),
]
ROOT = Path(__file__).parents[2]


def test_spark_gives_the_rows_of_the_local_engine(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.spark_comparison", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = re.search(r"(\d+) cells and (\d+) throttles are equal", done.stdout)
    assert told is not None
    assert int(told[1]) > 1_000
    assert int(told[2]) > 1_000
