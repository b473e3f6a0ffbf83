"""Ingests into a folder, as a user runs them: once is enough, nothing is lost, and nothing half done is seen."""

import errno
import gzip
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.pipeline.logs import SAMPLE_LINES, log_text, request_line, sample_entries, table_rows
from tests.support.processes.run_cli import run_cli

from kafka_quotas.pipeline.ingest import local_engine, plan
from kafka_quotas.pipeline.ingest.staging import staging
from kafka_quotas.pipeline.tables.layout import DataFolder
from kafka_quotas.pipeline.tables.schemas import EVENTS, QUARANTINE


def ingest(out: Path, *arguments: str | Path, code: int = 0, zone: str | None = "UTC") -> dict[str, Any]:
    zoned = ("--timezone", zone) if zone else ()
    argv = ("pipeline", "ingest", "--out", out, "--engine", "local", *zoned, "--output", "json", *arguments)
    found, stdout, stderr = run_cli(*(str(each) for each in argv))
    assert found == code, stderr
    result: dict[str, Any] = json.loads(stdout) if stdout else {"stderr": stderr}
    return result


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def broker_log(folder: Path, text: str | bytes, *, broker_id: int = 1, name: str = "kafka-request.log") -> Path:
    path = folder / "logs" / str(broker_id) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def source(folder: Path) -> tuple[str, str]:
    return "--source", f"{folder}/logs/{{broker_id}}/*"


def test_real_logs_of_two_brokers_by_the_pattern_of_the_examples(tmp_path: Path) -> None:
    result = ingest(tmp_path / "data", "--source", "examples/request-log/{broker_id}/*.log.gz", "--cluster", "prod")
    assert (result["lines"], result["events"], result["quarantined"]) == (2 * SAMPLE_LINES, 2 * SAMPLE_LINES, 0)
    rows = table_rows(tmp_path / "data", EVENTS)
    for broker_id in (1, 2):
        throttled = [row["throttle_ms"] for row in rows if row["broker_id"] == broker_id]
        assert sorted(throttled) == sorted(entry["throttleTimeMs"] for entry in sample_entries(broker_id))
    assert {row["cluster"] for row in rows} == {"prod"}
    assert {row["dt"] for row in rows} == {"2026-11-21"}


def test_files_of_events_are_bucketed_by_client_and_broker_and_sorted_by_time(tmp_path: Path) -> None:
    ingest(tmp_path / "data", "--source", "examples/request-log/{broker_id}/*.log.gz")
    place: dict[tuple[Any, ...], int] = {}
    for bucket in DataFolder.open(tmp_path / "data").events_buckets():
        for file in bucket.files:
            parquet = local_engine.pq.ParquetFile(file)
            assert parquet.schema_arrow.names[parquet.metadata.row_group(0).sorting_columns[0].column_index] == "ts_ms"
            rows = parquet.read().to_pylist()
            order = [(row["ts_ms"], row["src_file"], row["src_offset"]) for row in rows]
            assert order == sorted(order)
            for row in rows:
                client = (row["user"], row["client_id"], row["broker_id"])
                assert place.setdefault(client, bucket.number) == bucket.number
    assert len(set(place.values())) > 5


def test_the_same_again_changes_nothing_and_new_lines_and_files_are_added(tmp_path: Path) -> None:
    data = tmp_path / "data"
    log = broker_log(tmp_path, log_text(5))
    assert ingest(data, *source(tmp_path))["events"] == 5
    before = tree(data)
    again = ingest(data, *source(tmp_path))
    assert (again["files"], again["unchanged"], again["events"], again["folder"]) == (0, 1, 0, None)
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
    assert (result["empty"], result["events"], result["folder"]) == (1, 0, None)
    (tmp_path / "nothing").mkdir()
    assert "no file" in ingest(tmp_path / "data", tmp_path / "nothing", code=2)["stderr"]


@pytest.mark.parametrize(
    ("arguments", "zone", "message"),
    [
        ((), "UTC", "does not tell which broker"),
        (("--broker-id", "1"), None, "no time zone"),
        (("--broker-id", "1"), "Mars/Olympus", "unknown time zone"),
        (("--broker-id", "1", "--buckets", "7"), "UTC", "16 buckets, not 7"),
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


def test_two_ingests_at_once_count_every_line_once(tmp_path: Path) -> None:
    broker_log(tmp_path, log_text(60))
    data, waits, results = tmp_path / "data", threading.Event(), []
    first_entered = threading.Event()

    def second() -> None:
        with staging(data, buckets=None, default_buckets=16, waiting=waits.set) as place:
            results.append(len(place.data.ingests()))

    with staging(data, buckets=None, default_buckets=16, waiting=first_entered.set):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(60)  # the second one found the first one at work
        assert not results
    thread.join(60)
    assert results == [0]
    assert not first_entered.is_set()
    assert ingest(data, *source(tmp_path))["events"] == 60


def test_no_room_left_is_one_line_and_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    log = broker_log(tmp_path, log_text(5))
    ingest(data, *source(tmp_path))
    before = tree(data)
    with log.open("a") as file:
        file.write(log_text(5, first=5))

    def full(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local_engine.pq, "write_table", full)
    told = ingest(data, *source(tmp_path), code=1)["stderr"]
    assert told.splitlines()[-2:] == [
        f"error: no room left for {data}: No space left on device",
        "hint: nothing was changed; make room, or name another folder with --out",
    ]
    assert tree(data) == before
    monkeypatch.undo()
    assert ingest(data, *source(tmp_path))["events"] == 5


def test_what_a_killed_ingest_left_is_never_seen_and_is_cleared_away(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker_log(tmp_path, log_text(5))
    ingest(data, *source(tmp_path))
    left = data / ".staging-4711"
    shutil.copytree(data / "ingest=000001", left / "ingest=000002")
    half = data / "ingest=000001" / "events" / "dt=2026-11-21" / ".part-9.parquet"
    half.write_bytes(b"PAR1 and no more")
    assert len(table_rows(data, EVENTS)) == 5
    ingest(data, *source(tmp_path))
    assert not left.exists()


def test_the_engine_is_told_and_rows_do_not_depend_on_how_paths_were_named(tmp_path: Path) -> None:
    log = broker_log(tmp_path, log_text(5))
    code, _, err = run_cli(
        "pipeline", "ingest", str(log), "--broker-id", "1", "--timezone", "UTC", "--out", str(tmp_path / "d")
    )
    assert code == 0
    assert "note: engine local: about" in err
    assert {row["src_file"] for row in table_rows(tmp_path / "d", EVENTS)} == {str(log)}
