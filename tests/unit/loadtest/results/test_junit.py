"""JUnit XML of a run: a test case for each judgement, in the outcomes that CI knows."""

from dataclasses import replace
from xml.etree import ElementTree as ET

from tests.support.load.results import greedy, result

from kafka_quotas.loadtest.judgement import Aspect, Judgement, State
from kafka_quotas.loadtest.results.exports import junit_xml

JUDGEMENTS = (
    Judgement(aspect=Aspect.RATE, state=State.MET, evidence="1 < 2 & more", entity="app"),
    Judgement(aspect=Aspect.DELIVERY, state=State.NOT_MET, evidence="2 lost \x00\ud800", entity='"a"/b'),
    Judgement(aspect=Aspect.THROTTLE, state=State.UNCHECKED, evidence="too coarse", entity="app"),
    Judgement(aspect=Aspect.RUN, state=State.VOID, evidence="ended after 3 s"),
    Judgement(aspect=Aspect.EXPECTATION, state=State.NOT_MET, evidence="quota > 1: app 0"),
)


def test_every_judgement_is_a_test_case() -> None:
    suites = ET.fromstring(junit_xml(replace(result(greedy()), judgements=JUDGEMENTS, warnings=("busy",))))

    suite = suites[0]
    for element in (suites, suite):
        counts = [element.attrib[name] for name in ("tests", "failures", "errors", "skipped")]
        assert counts == ["5", "2", "1", "1"]
    assert suite.attrib["name"] == "load-test a run"
    assert suite.attrib["timestamp"] == "2023-11-14T22:13:20.000"
    cases = [(case.attrib["name"], case[0].tag) for case in suite.iter("testcase")]
    assert cases == [
        ("app: rate", "system-out"),
        ('"a"/b: delivery', "failure"),
        ("app: throttle time", "skipped"),
        ("run: run", "error"),
        ("quota > 1: expectation", "failure"),
    ]
    assert [case[0].text or case[0].attrib["message"] for case in suite.iter("testcase")] == [
        "1 < 2 & more",
        "2 lost \ufffd\ufffd",
        "too coarse",
        "ended after 3 s",
        "quota > 1: app 0",
    ]
    assert suite.findtext("system-err") == "busy"
