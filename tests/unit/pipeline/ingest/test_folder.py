"""Ingests into a folder, as a user runs them: once is enough, nothing is lost, and nothing half done is seen."""

import errno
import gzip
import json
from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.pipeline.logs import SAMPLE_LINES, log_text, request_line, sample_entries, table_rows
from tests.support.processes.run_cli import run_cli
from tests.support.stores.stored_quotas import new_store

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.ingest import change as ingest_change
from kafka_quotas.pipeline.ingest import local_engine, plan
from kafka_quotas.pipeline.ingest.change import NO_FILE, Change, ingest_id
from kafka_quotas.pipeline.tables.event_files import write_events
from kafka_quotas.pipeline.tables.lake import ConflictError, Lake
from kafka_quotas.pipeline.tables.schemas import CLIENTS, EVENTS, QUARANTINE
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot


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
    assert {row["dt"] for row in rows} == {date(2026, 11, 21)}


def test_files_of_events_are_sorted_by_client_and_time_and_clients_are_counted(tmp_path: Path) -> None:
    ingest(tmp_path / "data", "--source", "examples/request-log/{broker_id}/*.log.gz")
    snapshot = FolderSnapshot.of(Lake(url=str(tmp_path / "data")))
    (file,) = snapshot.delta(EVENTS).file_uris()
    parquet = pq.ParquetFile(file)
    assert parquet.schema_arrow.names[parquet.metadata.row_group(0).sorting_columns[0].column_index] == "client"
    rows = parquet.read().to_pylist()
    order = [(row["client"], row["ts_ms"], row["src_file"], row["src_offset"]) for row in rows]
    assert order == sorted(order)
    clients = snapshot.read(CLIENTS).to_pylist()
    assert len(clients) > 5
    for each in clients:
        own = [row for row in rows if row["client"] == each["client"]]
        assert {(row["user"], row["client_id"], row["broker_id"]) for row in own} == {
            (each["user"], each["client_id"], each["broker_id"])
        }
        assert (each["events"], each["first_ms"], each["last_ms"]) == (len(own), own[0]["ts_ms"], own[-1]["ts_ms"])
        by_second = Counter()
        for row in own:
            by_second[row["ts_ms"] // 1000] += row["bytes"]
        assert each["peak_bytes"] == max(by_second.values())


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
    code, out, err = run_cli("pipeline", "ingest", str(log), "--out", str(tmp_path / "data"), "--form", "prometheus")
    assert (code, "quarantined" in out) == (1, True)
    assert err.splitlines()[-2] == "error: nothing was read: 2 lines went into the table quarantine"


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


def change(snapshot: FolderSnapshot, ingest: int, digest: str) -> Change:
    file = replace(NO_FILE, path=f"/{digest}", form="request-log", head_sha256=digest)
    return Change(ingest=ingest, operation="ingest", at_ms=1, files=[file])


def test_of_two_changes_at_once_the_second_looks_again_at_what_was_read(tmp_path: Path) -> None:
    lake = Lake(url=str(tmp_path / "data"))
    lake.create()
    empty = FolderSnapshot.of(lake)
    change(empty, 1, "one").commit(empty)
    with pytest.raises(ConflictError):
        change(empty, 2, "two").commit(empty)
    second = change(empty, 2, "two").commit_unless_read(empty)
    assert second is not None
    assert (second.number, second.ingests) == (2, [1, 2])
    assert change(empty, 3, "one").commit_unless_read(empty) is None  # the first read that file
    assert FolderSnapshot.of(lake).number == 2


def test_two_ingests_at_once_count_every_line_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker_log(tmp_path, log_text(60))
    data, inner = tmp_path / "data", []
    run = local_engine.ingest_locally

    def overtaken(*arguments: Any, **named: Any) -> Any:
        if not inner:
            inner.append(None)
            inner.append(ingest(data, *source(tmp_path)))  # another one, whole, while this one parses
        return run(*arguments, **named)

    monkeypatch.setattr(local_engine, "ingest_locally", overtaken)
    result = ingest(data, *source(tmp_path))
    assert (inner[1]["events"], result["events"], result["unchanged"]) == (60, 0, 1)
    assert len(table_rows(data, EVENTS)) == 60


def test_files_to_replace_that_a_compaction_took_are_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, calls = tmp_path / "data", []
    broker_log(tmp_path, log_text(5))
    ingest(data, *source(tmp_path))
    remove = ingest_change.remove_rows

    def overtaken(*arguments: Any, **named: Any) -> None:
        calls.append(None)
        if len(calls) == 1:
            raise ConflictError("a compaction")
        remove(*arguments, **named)

    monkeypatch.setattr(ingest_change, "remove_rows", overtaken)
    assert ingest(data, "--replace", source(tmp_path)[1], zone="Europe/Berlin")["events"] == 5
    assert (len(calls), len(table_rows(data, EVENTS))) == (2, 5)


def test_no_room_left_is_one_line_and_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    log = broker_log(tmp_path, log_text(5))
    ingest(data, *source(tmp_path))
    with log.open("a") as file:
        file.write(log_text(5, first=5))

    def full(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    told = ingest(data, *source(tmp_path), code=1)["stderr"]
    assert told.splitlines()[-2:] == [
        f"error: no room left while writing {data}/events",
        "hint: nothing was changed; make room there",
    ]
    assert len(table_rows(data, EVENTS)) == 5
    monkeypatch.undo()
    assert ingest(data, *source(tmp_path))["events"] == 5


def killed_ingest(data: Path, events: pa.Table, *, began_ms: int) -> None:
    """Rows in the tables of an ingest that ended before it became a change."""
    lake = Lake(url=str(data))
    numbers = pa.array([ingest_id(began_ms, 1)] * events.num_rows, pa.int64())
    place = events.schema.get_field_index("ingest")
    lake.commit_files(
        EVENTS, write_events(lake, events.set_column(place, EVENTS.arrow_schema().field("ingest"), numbers))
    )


def test_what_a_killed_ingest_left_is_never_seen_and_is_cleared_away(tmp_path: Path) -> None:
    data = tmp_path / "data"
    log = broker_log(tmp_path, log_text(5))
    ingest(data, *source(tmp_path))
    events = FolderSnapshot.of(Lake(url=str(data))).read(EVENTS)
    killed_ingest(data, events, began_ms=0)
    lake = Lake(url=str(data))
    assert len(table_rows(data, EVENTS)) == 5
    log.write_text(log_text(8))
    assert ingest(data, *source(tmp_path))["events"] == 3
    assert len(table_rows(data, EVENTS)) == 8
    assert lake.table(EVENTS).count() == 13
    code, told, _ = run_cli("pipeline", "compact", str(data), "--retention-hours", "0")
    assert (code, "old ones were deleted" in told) == (0, True)
    with pytest.raises(KafkaQuotasError) as caught:
        FolderSnapshot.of(lake, 1).read(EVENTS)
    assert "--retention-hours of a compaction" in str(caught.value.hint)
    assert lake.table(EVENTS).count() == 8
    assert len(table_rows(data, EVENTS)) == 8


def test_compact_merges_days_and_keeps_what_an_ingest_is_writing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    log = broker_log(tmp_path, log_text(5))
    for count in (10, 15, 20):
        ingest(data, *source(tmp_path))
        log.write_text(log_text(count))
    before = table_rows(data, EVENTS)
    events = FolderSnapshot.of(Lake(url=str(data))).read(EVENTS)
    killed_ingest(data, events, began_ms=2**42)  # in the future: still under way
    assert len(Lake(url=str(data)).table(EVENTS).file_uris()) == 4
    assert run_cli("pipeline", "compact", str(data))[0] == 0
    assert len(Lake(url=str(data)).table(EVENTS).file_uris()) == 2
    assert table_rows(data, EVENTS) == before
    _, told, _ = run_cli("pipeline", "history", str(data), "--output", "json")
    changes = json.loads(told)["changes"]
    assert [(each["number"], each["operation"], each["events"]) for each in changes] == [
        (4, "compact", 0),
        (3, "ingest", 5),
        (2, "ingest", 5),
        (1, "ingest", 5),
    ]


def test_a_wrong_time_zone_is_noted_and_corrected_by_reading_anew(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker_log(tmp_path, log_text(5) + "rubbish\n")
    other = broker_log(tmp_path, log_text(3), broker_id=2)
    ingest(data, *source(tmp_path), zone="UTC")
    argv = ("pipeline", "ingest", "--out", str(data), "--timezone", "Europe/Berlin", "--engine", "local")
    _, _, told = run_cli(*argv, *source(tmp_path))
    assert "2 files" in told
    assert "--replace PATTERN reads them anew" in told
    before = {row["ts_ms"] for row in table_rows(data, EVENTS) if row["broker_id"] == 1}
    code, _, told = run_cli(
        *argv,
        "--replace",
        f"{tmp_path}/logs/{{broker_id}}/kafka*",
        "--source",
        str(other.with_name("kafka*")),
        "--broker-id",
        "2",
    )
    assert code == 0, told
    rows = table_rows(data, EVENTS)
    assert len(rows) == 8
    assert {row["ts_ms"] for row in rows if row["broker_id"] == 1} == {at_ms - 3_600_000 for at_ms in before}
    assert len(table_rows(data, QUARANTINE)) == 1
    lake = Lake(url=str(data))
    assert sum(FolderSnapshot.of(lake).read(CLIENTS)["events"].to_pylist()) == 8
    assert {
        row["ts_ms"] for row in FolderSnapshot.of(lake, 1).read(EVENTS).to_pylist() if row["broker_id"] == 1
    } == before
    code, _, told = run_cli("pipeline", "usage", str(data), "--as-of", "9", "--store", new_store(tmp_path, {}))
    assert (code, "has no change 9: there are 1 to 2" in told) == (2, True)


def test_a_folder_of_the_earlier_form_is_converted_and_what_it_read_is_known(tmp_path: Path) -> None:
    log, old, data = broker_log(tmp_path, log_text(6)), tmp_path / "old", tmp_path / "data"
    ingest(tmp_path / "now", *source(tmp_path))
    now = FolderSnapshot.of(Lake(url=str(tmp_path / "now")))
    events = now.read(EVENTS)
    for number, rows in enumerate((events.slice(0, 4), events.slice(4)), start=1):
        folder = old / f"ingest=00000{number}"
        place = folder / "events" / "dt=2026-11-21" / "bucket=3"
        place.mkdir(parents=True)
        pq.write_table(rows.drop_columns(["dt", "client", "ingest"]), place / "part-0.parquet")
        (row,) = now.changes.to_pylist()
        names = ("path", "form", "cluster", "broker_id", "head_bytes", "head_sha256", "size", "read_to")
        (folder / "_manifest.json").write_text(
            json.dumps({"version": 1, "files": [{name: row[name] for name in names}]})
        )
    (old / "_layout.json").write_text('{"version": 1, "buckets": 16}')
    for expected in (6, 0):  # again, it has nothing left to do
        code, told, _ = run_cli("pipeline", "convert", str(old), "--out", str(data))
        assert (code, told.split()[0]) == (0, str(expected))
    assert table_rows(data, EVENTS) == table_rows(tmp_path / "now", EVENTS)
    log.write_text(log_text(7))
    assert ingest(data, *source(tmp_path))["events"] == 1
    code, _, told = run_cli("pipeline", "convert", str(tmp_path), "--out", str(tmp_path / "none"))
    assert (code, "is no data folder of the earlier form" in told) == (2, True)


def test_rows_that_did_not_arrive_are_an_error_and_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker_log(tmp_path, log_text(5))
    monkeypatch.setattr(Lake, "commit_files", lambda *arguments, **named: 0)
    told = ingest(tmp_path / "data", *source(tmp_path), code=1)["stderr"]
    assert "5 rows of events were read, but 0 are in" in told
    assert FolderSnapshot.of(Lake(url=str(tmp_path / "data"))).number == 0


def test_the_engine_is_told_and_rows_do_not_depend_on_how_paths_were_named(tmp_path: Path) -> None:
    log = broker_log(tmp_path, log_text(5))
    code, _, err = run_cli(
        "pipeline", "ingest", str(log), "--broker-id", "1", "--timezone", "UTC", "--out", str(tmp_path / "d")
    )
    assert code == 0
    assert "note: engine local: about" in err
    assert {row["src_file"] for row in table_rows(tmp_path / "d", EVENTS)} == {str(log)}
