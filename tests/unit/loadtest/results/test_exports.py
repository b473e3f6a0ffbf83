"""What a run leaves for other programs: samples.parquet and JUnit."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow.parquet as pq
from tests.support.load.recordings import MS, recorded, run_of
from tests.support.load.results import greedy, result

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.loadtest.judgement import Aspect, Judgement, State
from kafka_quotas.loadtest.plan.workload import ClientKind, Workload
from kafka_quotas.loadtest.results.exports import COLUMNS, QUOTA_TYPES, junit_xml, write_samples
from kafka_quotas.pipeline.tables.schemas import EVENTS

DOCS = Path(__file__).parents[4] / "docs" / "reference" / "load-test.md"


def _rows(*clients: Any, path: Path, elapsed_s: float = 2.0) -> list[dict[str, Any]]:
    write_samples(run_of(*clients, elapsed_s=elapsed_s), path)
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def test_each_second_and_each_response_is_a_row(tmp_path: Path) -> None:
    client = recorded("app", user="alice", quota=1000)
    client.recorder.response(100 * MS, charged=700, throttle_ms=0, broker=3)
    client.recorder.acknowledged(100 * MS, records=2, size=600)
    client.recorder.response(1500 * MS, charged=900, throttle_ms=250, broker=4)

    first, second, *events = _rows(client, path=tmp_path / "samples.parquet")

    assert (first["kind"], first["ts_ms"], first["bytes"], first["records"]) == ("second", 1_700_000_000_000, 700, 2)
    assert (second["bytes"], second["requests"], second["throttle_ms"], second["throttled"]) == (900, 1, 250, 1)
    assert [(each["kind"], each["ts_ms"], each["bytes"], each["broker_id"]) for each in events] == [
        ("event", 1_700_000_000_100, 700, 3),
        ("event", 1_700_000_001_500, 900, 4),
    ]
    assert {each["user"] for each in events} == {"alice"}
    assert {(each["source"], each["limit"], each["quota_type"]) for each in events} == {("responses", 1000, "produce")}


def test_acknowledgements_stand_for_events_where_responses_are_not_seen(tmp_path: Path) -> None:
    client = recorded(None, kind=ClientKind.RAW, wire=(110, 100))
    client.recorder.acknowledged(500 * MS, records=1, size=1000)

    events = [each for each in _rows(client, path=tmp_path / "s.parquet") if each["kind"] == "event"]

    assert [(each["bytes"], each["source"], each["broker_id"]) for each in events] == [(1100, "acknowledgements", -1)]
    assert (events[0]["user"], events[0]["client_id"], events[0]["limit"]) == ("ANONYMOUS", "", None)


def test_mutations_are_counted_in_partitions(tmp_path: Path) -> None:
    client = recorded(workload=Workload.MUTATE, quota=5)
    client.recorder.response(10 * MS, charged=80, throttle_ms=0)

    event = _rows(client, path=tmp_path / "s.parquet")[-1]

    assert (event["mutations"], event["bytes"], event["quota_type"]) == (80, 0, "controller_mutation")


def test_columns_of_events_are_those_of_the_pipeline() -> None:
    known = {column.name: column.type for column in EVENTS.columns}
    shared = {column.name: column.type for column in COLUMNS if column.name in known}

    assert {"ts_ms", "cluster", "broker_id", "user", "client_id", "quota_type", "bytes", "mutations"} <= set(shared)
    assert {name: known[name] for name in shared} == shared
    assert set(QUOTA_TYPES.values()) - {"connection"} <= {each.value for each in QuotaType}


def test_every_column_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")

    assert [column.name for column in COLUMNS if not re.search(rf"^\|[^|]*`{column.name}`", text, re.MULTILINE)] == []


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
