"""What a run gives to other programs after it: JUnit XML to CI."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.support.processes.run_cli import run_cli

RUN = ("load-test", "produce", "--embedded", "--rate", "200rec/s", "--warmup", "1s", "--quota-window-num", "1")


def test_ci_gets_what_the_run_did(tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    code, out, err = run_cli(*RUN, "--junit", str(report), "--duration", "6s", "--output", "json")

    assert (code, err) == (0, "PASS: 3 checks met\n")
    document = json.loads(out)
    cases = list(ET.parse(report).getroot().iter("testcase"))
    assert len(cases) == len(document["judgements"])
