"""What a run gives to other programs after it: JUnit XML to CI."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.support.processes.run_cli import run_cli

SCENARIO = """
schema: kafka-quotas.scenario/1
name: ci
title: a run for CI
window: {samples: 1, seconds: 1}
duration: 6s
warmup: 1s
topics: [{name: written}]
entities: [{client-id: app, does: produce, topic: written, rate: 200rec/s}]
"""


def test_ci_gets_what_the_run_did(tmp_path: Path) -> None:
    file, report = tmp_path / "ci.yaml", tmp_path / "junit.xml"
    file.write_text(SCENARIO, encoding="utf-8")
    code, out, err = run_cli(
        *("load-test", "run", str(file), "--embedded", "--junit", str(report), "--output", "json"),
        *("--journal-dir", str(tmp_path / "journals")),
    )

    assert (code, err.splitlines()[-1]) == (0, "PASS: 3 checks met")
    document = json.loads(out)
    cases = list(ET.parse(report).getroot().iter("testcase"))
    assert len(cases) == len(document["judgements"])
