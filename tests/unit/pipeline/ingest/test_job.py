"""Ingests into a folder, as a user runs them: once is enough, nothing is lost, and nothing half done is seen."""

import gzip
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.support.pipeline.events import event_files
from tests.support.pipeline.ingested_folder import broker_log, ingest, source, tree
from tests.support.pipeline.logs import SAMPLE_LINES, log_text, request_line, sample_entries, table_rows
from tests.support.processes.run_cli import run_cli

from kafka_quotas.pipeline.ingest import ingested_tables, plan
from kafka_quotas.pipeline.tables.lake import INDEXED, Lake
from kafka_quotas.pipeline.tables.packed_events import PackedEvents
from kafka_quotas.pipeline.tables.schemas import EVENTS, PACKED_EVENTS, QUARANTINE
from kafka_quotas.pipeline.tables.staged_files import write_staged


def test_real_logs_of_two_brokers_by_the_pattern_of_the_examples(tmp_path: Path) -> None:
    result = ingest(tmp_path / "data", "--source", "examples/request-log/{broker_id}/*.log.gz", "--cluster", "prod")
    assert (result["lines"], result["events"], result["quarantined"]) == (2 * SAMPLE_LINES, 2 * SAMPLE_LINES, 0)
    rows = table_rows(tmp_path / "data", EVENTS)
    for broker_id in (1, 2):
        throttled = [row["throttle_ms"] for row in rows if row["broker_id"] == broker_id]
        assert sorted(throttled) == sorted(entry["throttleTimeMs"] for entry in sample_entries(broker_id))
    assert {row["cluster"] for row in rows} == {"prod"}
    assert {datetime.fromtimestamp(row["ts_ms"] / 1000, UTC).date() for row in rows} == {date(2026, 11, 21)}


def test_packed_rows_are_sorted_by_client_and_say_what_their_events_sum_up_to(tmp_path: Path) -> None:
    ingest(tmp_path / "data", "--source", "examples/request-log/{broker_id}/*.log.gz")
    packed = PackedEvents(Lake(url=str(tmp_path / "data")))
    (file,) = event_files(packed)
    parquet = pq.ParquetFile(file)
    assert parquet.schema_arrow.names[parquet.metadata.row_group(0).sorting_columns[0].column_index] == "client"
    rows = parquet.read().to_pylist()
    order = [(row["client"], row["quota_type"], row["first_at"]) for row in rows]
    assert order == sorted(order)
    assert len({row["client"] for row in rows}) > 5
    for row in rows:
        times, sizes = row["ts_ms"], row["bytes"]
        assert times == sorted(times)
        assert (row["events"], row["total_bytes"]) == (len(times), sum(sizes))
        assert [row[name].timestamp() * 1000 for name in ("first_at", "last_at")] == [times[0], times[-1]]
        assert {at_ms // 3_600_000 * 3_600_000 for at_ms in times} == {row["hour"].timestamp() * 1000}
        assert row["total_throttle_ms"] == sum(row["throttle_ms"])
        assert row["throttled"] == sum(each > 0 for each in row["throttle_ms"])
        by_second = Counter()
        for at_ms, size in zip(times, sizes, strict=True):
            by_second[at_ms // 1000] += size
        assert row["peak_bytes"] == max(by_second.values())


def test_the_table_has_comments_and_bounds_by_which_readers_leave_files_out(tmp_path: Path) -> None:
    ingest(tmp_path / "data", "--source", "examples/request-log/{broker_id}/*.log.gz")
    table = DeltaTable(tmp_path / "data" / "events")
    files = pa.table(table.get_add_actions(flatten=True))
    assert {name for name in files.column_names if name.startswith("min.")} == {f"min.{name}" for name in INDEXED}
    comments = {field.name: field.metadata["comment"] for field in table.schema().fields}
    assert comments["peak_bytes"] == "most bytes in one second [bytes/s]"
    assert set(comments) == set(PACKED_EVENTS.column_names)


def test_the_same_again_changes_nothing_and_new_lines_and_files_are_added(tmp_path: Path) -> None:
    data = tmp_path / "data"
    log = broker_log(tmp_path, log_text(5))
    assert ingest(data, *source(tmp_path))["events"] == 5
    before = tree(data)
    again = ingest(data, *source(tmp_path))
    assert (again["files"], again["unchanged"], again["events"], again["change"]) == (0, 1, 0, None)
    assert tree(data) == before
    with log.open("a") as file:
        file.write(log_text(3, first=5))
    broker_log(tmp_path, log_text(5), broker_id=2)
    assert ingest(data, *source(tmp_path))["events"] == 3 + 5
    offsets = [row["src_offset"] for row in table_rows(data, EVENTS) if row["broker_id"] == 1]
    assert len(set(offsets)) == 8


def test_a_log_that_was_renamed_and_packed_by_rotation_is_known_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    log = broker_log(tmp_path, log_text(5))
    ingest(data, *source(tmp_path))
    (log.parent / "kafka-request.log.1.gz").write_bytes(gzip.compress((log_text(7)).encode()))
    log.write_text(log_text(4, first=100))
    result = ingest(data, *source(tmp_path))
    assert result["events"] == 2 + 4  # what was written before the rotation, and what came after it
    assert ingest(data, *source(tmp_path))["events"] == 0


def test_one_log_under_two_names_counts_once(tmp_path: Path) -> None:
    log = broker_log(tmp_path, log_text(5))
    (log.parent / "copy.gz").write_bytes(gzip.compress(log.read_bytes()))
    result = ingest(tmp_path / "data", *source(tmp_path))
    assert (result["events"], result["unchanged"]) == (5, 1)


def test_a_line_that_is_being_written_is_told_and_read_once_it_is_whole(tmp_path: Path) -> None:
    data = tmp_path / "data"
    text = log_text(3)
    log = broker_log(tmp_path, text[:-40])
    first = ingest(data, *source(tmp_path))
    assert (first["events"], first["quarantined"]) == (2, 1)
    assert "unfinished" in first["faults"][0]["reason"]
    assert ingest(data, *source(tmp_path))["quarantined"] == 0  # it has not grown
    log.write_text(text + log_text(1, first=3))
    assert ingest(data, *source(tmp_path))["events"] == 2


def test_a_file_of_another_kind_is_an_error_and_not_an_empty_result(tmp_path: Path) -> None:
    log = broker_log(tmp_path, "Notes on a cluster\n\nnothing that a broker writes\n", name="notes.md")
    code, out, err = run_cli("pipeline", "ingest", str(log), "--out", str(tmp_path / "data"), "--format", "prometheus")
    assert (code, "quarantined" in out) == (1, True)
    assert err.splitlines()[-2] == "error: nothing was read: 2 lines went into the table quarantine"


def test_a_text_with_one_line_like_a_sample_is_no_scrape(tmp_path: Path) -> None:
    text = tmp_path / "notes.md"
    text.write_text("# Notes\n" + "a line of prose\n" * 9 + "answer 42\n")
    code, out, err = run_cli("pipeline", "ingest", str(text), "--broker-id", "1", "--out", str(tmp_path / "data"))
    assert (code, err.splitlines()[-2]) == (1, "error: nothing was read: 9 lines went into the table quarantine"), out


def test_lines_that_cannot_be_read_are_kept_with_file_line_and_reason(tmp_path: Path) -> None:
    good = request_line()
    lines = [good, good[:300] + "\n", "\n", b"\xff\xfe\n", "java.lang.Exception: stack\n", good[:150] + good, good]
    content = b"".join(line if isinstance(line, bytes) else line.encode() for line in lines)
    log = broker_log(tmp_path, content)
    result = ingest(tmp_path / "data", *source(tmp_path))
    assert (result["lines"], result["events"], result["blank"], result["quarantined"]) == (7, 2, 1, 4)
    rows = table_rows(tmp_path / "data", QUARANTINE)
    assert sorted(row["line_no"] for row in rows) == [2, 4, 5, 6]
    assert {row["src_file"] for row in rows} == {str(log)}
    assert all(row["reason"] for row in rows)
    assert next(row["raw"] for row in rows if row["line_no"] == 4) == r"\xff\xfe"


def test_faults_are_counted_over_files_and_of_very_many_reasons_the_most_frequent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingested_tables, "_MOST_FAULTS", 25)
    lines = [("log", "broken JSON", number) for number in range(9, 2, -1)]
    lines += [("log", f"the request has a field of another kind: {number}", number) for number in range(10, 400)]
    lines += [("other", "broken JSON", 7)] * 2
    lake = Lake(url=str(tmp_path))
    lake.create()
    files = [
        file
        for part in (lines[:5], lines[5:])
        for file in write_staged(
            lake,
            QUARANTINE,
            pa.Table.from_pylist(
                [{"raw": "", "reason": reason, "src_file": file, "line_no": line_no} for file, reason, line_no in part],
                QUARANTINE.arrow_schema(),
            ),
        )
    ]
    faults = ingested_tables.faults_of(lake, files)
    assert [(each.src_file, each.lines, each.first_line_no) for each in faults[:2]] == [("log", 7, 3), ("other", 2, 7)]
    assert len(faults) == 25


def test_forwarded_requests_count_once(tmp_path: Path) -> None:
    broker_log(
        tmp_path,
        request_line(api_key=19, request={"topics": []}, response={"topics": []}) + request_line(forwarded=True),
    )
    result = ingest(tmp_path / "data", *source(tmp_path))
    assert (result["events"], result["forwarded"]) == (1, 1)


def test_a_large_file_in_pieces_gives_the_rows_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = log_text(20) + "rubbish\n" + log_text(20, first=20) + "more rubbish\n" + log_text(5, first=40)
    broker_log(tmp_path, text)
    ingest(tmp_path / "whole", *source(tmp_path))
    monkeypatch.setattr(plan, "PIECE_BYTES", 1777)
    ingest(tmp_path / "pieces", *source(tmp_path))
    for table in (EVENTS, QUARANTINE):
        assert table_rows(tmp_path / "pieces", table) == table_rows(tmp_path / "whole", table)
    assert [row["line_no"] for row in table_rows(tmp_path / "pieces", QUARANTINE)] in ([21, 42], [42, 21])


def test_a_damaged_packed_file_gives_what_can_be_unpacked_and_says_so(tmp_path: Path) -> None:
    packed = gzip.compress(log_text(200).encode())
    broker_log(tmp_path, packed[: len(packed) // 2], name="old.log.gz")
    result = ingest(tmp_path / "data", *source(tmp_path))
    assert 0 < result["events"] < 200
    assert any("damaged" in fault["reason"] for fault in result["faults"])


def test_an_empty_file_and_an_empty_folder(tmp_path: Path) -> None:
    broker_log(tmp_path, "")
    result = ingest(tmp_path / "data", *source(tmp_path))
    assert (result["empty"], result["events"], result["change"]) == (1, 0, None)
    (tmp_path / "nothing").mkdir()
    assert "no file" in ingest(tmp_path / "data", tmp_path / "nothing", code=2)["stderr"]


@pytest.mark.parametrize(
    ("arguments", "zone", "message"),
    [
        ((), "UTC", "does not tell which broker"),
        (("--broker-id", "1"), None, "no time zone"),
        (("--broker-id", "1"), "Mars/Olympus", "unknown time zone"),
    ],
)
def test_what_is_not_told_is_asked_for_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], zone: str | None, message: str
) -> None:
    other = broker_log(tmp_path, log_text(1), broker_id=9, name="other.log")
    ingest(tmp_path / "data", other, "--broker-id", "9")
    log = broker_log(tmp_path, log_text(2, first=50))
    before = tree(tmp_path / "data")
    told = ingest(tmp_path / "data", log, *arguments, code=2, zone=zone)["stderr"]
    assert message in told
    assert told.count("\n") <= 2
    assert tree(tmp_path / "data") == before


def test_the_engine_is_told_and_rows_do_not_depend_on_how_paths_were_named(tmp_path: Path) -> None:
    log = broker_log(tmp_path, log_text(5))
    code, _, err = run_cli(
        "pipeline", "ingest", str(log), "--broker-id", "1", "--timezone", "UTC", "--out", str(tmp_path / "d")
    )
    assert code == 0
    assert "note: using the local engine (about" in err
    assert {row["src_file"] for row in table_rows(tmp_path / "d", EVENTS)} == {str(log)}
