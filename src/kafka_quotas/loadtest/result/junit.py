"""A run as JUnit XML, as continuous integration shows it: one test case for each judgement.

A judgement that is not met is a failure, a void one an error, and one that was not checked is skipped. The evidence is
in the message.
"""

import re
from typing import Final
from xml.etree import ElementTree as ET

from kafka_quotas.core.clock import format_instant
from kafka_quotas.loadtest.judgement import Judgement, State
from kafka_quotas.loadtest.result.result import LoadResult

_OUTCOMES: Final = {State.NOT_MET: "failure", State.VOID: "error", State.UNCHECKED: "skipped"}
_COUNTS: Final = {"failures": State.NOT_MET, "errors": State.VOID, "skipped": State.UNCHECKED}
_NO_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(result: LoadResult) -> str:
    """Return the document of one run."""
    states = [judgement.state for judgement in result.judgements]
    counts = {name: str(states.count(state)) for name, state in _COUNTS.items()}
    title = _clean(f"load-test {result.title}")
    suites = ET.Element("testsuites", {"name": "kafka-quotas load-test", "tests": str(len(states)), **counts})
    suite = ET.SubElement(
        suites,
        "testsuite",
        {
            "name": title,
            "tests": str(len(states)),
            **counts,
            "time": f"{result.elapsed_s:.3f}",
            "timestamp": format_instant(result.started_ms).removesuffix("Z"),
        },
    )
    for judgement in result.judgements:
        _case(suite, judgement, title)
    if result.warnings:
        ET.SubElement(suite, "system-err").text = _clean("\n".join(result.warnings))
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=False) + "\n"


def _case(suite: ET.Element, judgement: Judgement, title: str) -> None:
    evidence = _clean(judgement.evidence)
    subject = judgement.entity or ("run" if judgement.aspect.value != "expectation" else evidence.partition(": ")[0])
    case = ET.SubElement(
        suite, "testcase", {"classname": title, "name": f"{_clean(subject)}: {judgement.aspect.label}", "time": "0"}
    )
    outcome = _OUTCOMES.get(judgement.state)
    if outcome is None:
        ET.SubElement(case, "system-out").text = evidence
        return
    details = {"message": evidence} if outcome == "skipped" else {"message": evidence, "type": judgement.state.value}
    ET.SubElement(case, outcome, details)


def _clean(text: str) -> str:
    """Return a text without characters that XML 1.0 can't hold."""
    return _NO_XML.sub("\ufffd", text)
