"""What a run leaves for other programs: samples.parquet and .hgrm files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests.support.load.recordings import MS, recorded, run_of
from tests.support.load.results import greedy, result

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.loadtest.plan.workload import ClientKind, Workload
from kafka_quotas.loadtest.result.hgrm import hgrm_files, response_distribution, with_distributions
from kafka_quotas.loadtest.result.result import LatencyPoint
from kafka_quotas.loadtest.result.samples_file import COLUMNS, QUOTA_TYPES, write_samples
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
    known = {column.name: column.type.arrow for column in EVENTS.columns}
    shared = {column.name: column.type for column in COLUMNS if column.name in known}

    assert {"ts_ms", "cluster", "broker_id", "user", "client_id", "quota_type", "bytes", "mutations"} <= set(shared)
    assert {name: known[name] for name in shared} == shared
    assert set(QUOTA_TYPES.values()) - {"connection"} <= {each.value for each in QuotaType}


def test_every_column_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")

    assert [column.name for column in COLUMNS if f"| `{column.name}` |" not in text] == []


def test_distributions_become_files_that_hdr_tools_read() -> None:
    client = recorded("a/b c")
    for milliseconds in (1, 2, 3, 400):
        client.recorder.latency(intended_ns=0, sent_ns=MS, acked_ns=(milliseconds + 1) * MS)

    files = dict(hgrm_files(run_of(client)))

    assert sorted(files) == [f"a_b_c.produce.{name}.hgrm" for name in ("response", "schedule-delay", "service")]
    header, *lines = [line for line in files["a_b_c.produce.service.hgrm"].splitlines() if line and line[0] != "#"]
    assert header.split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    value, percentile, count = lines[-1].split()[:3]
    assert abs(float(value) - 400) < 0.5
    assert (float(percentile), int(count)) == (1.0, 4)


def test_names_of_files_stay_apart_and_a_run_from_a_file_has_none() -> None:
    first, second = recorded("a b"), recorded("a:b")
    for client in (first, second):
        client.recorder.latency(intended_ns=0, sent_ns=0, acked_ns=MS)

    names = [name for name, _ in hgrm_files(run_of(first, second))]

    assert len(set(names)) == len(names) == 6
    assert list(hgrm_files(result(greedy()))) == []


def test_a_distribution_marks_what_waits_without_an_answer_leave_open() -> None:
    client = recorded("app")
    recorder = client.recorder
    for milliseconds in range(1, 81):
        recorder.latency(intended_ns=0, sent_ns=0, acked_ns=1000 * milliseconds * MS)
    recorder.response_times.add_bound(200_000)  # sent just before the end
    recorder.response_times.add_bound(90_000 * MS, 19)
    (entity,) = run_of(client).entities

    points = response_distribution(entity)

    assert [each.share for each in points] == sorted({each.share for each in points})
    assert (points[0].value_us, points[0].share, points[0].is_bound) == (200, 0.0, True)
    assert not any(each.is_bound for each in points if 0.3 <= each.share <= 0.75)
    assert all(each.is_bound for each in points if each.share > 0.85)
    assert (points[-1].share, points[-1].value_us // 1_000_000) == (1.0, 90)


def test_a_kept_run_has_its_distributions_again(tmp_path: Path) -> None:
    client = recorded("app")
    for milliseconds in (1, 2, 3, 400):
        client.recorder.latency(intended_ns=0, sent_ns=0, acked_ns=milliseconds * MS)
    run = run_of(client)
    for name, text in hgrm_files(run):
        (tmp_path / name).write_text(text, encoding="ascii")
    read = replace(run, entities=tuple(replace(each, recorder=None) for each in run.entities))

    (entity,) = with_distributions(read, tmp_path).entities

    assert response_distribution(read.entities[0]) == ()
    assert response_distribution(entity)[-1] == LatencyPoint(value_us=400_127, share=1.0, is_bound=False)
