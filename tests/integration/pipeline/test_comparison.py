"""Jobs on a Spark session of this machine against the local engine: equal rows, with little collected."""

import re
from pathlib import Path

import pytest
from tests.support.brokers.java_process import java
from tests.support.pipeline.command_process import started, told_by

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(java() is None, reason="Spark needs Java, and there is none here"),
    pytest.mark.timeout(2700),
]


def test_a_session_gives_the_tables_of_the_local_engine_and_collects_little(tmp_path: Path) -> None:
    told = told_by(started([("compare", str(tmp_path / "compared"))]))
    compared = re.search(r"(\d+) cells and (\d+) throttles are equal", told)
    assert compared is not None, told
    assert min(int(compared[1]), int(compared[2])) > 100
