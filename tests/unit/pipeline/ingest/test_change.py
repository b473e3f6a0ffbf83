"""Changes of a folder that meet others, are cut off, or take rows back: each is whole or was never there."""

import errno
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.pipeline.ingested_folder import broker_log, ingest, source
from tests.support.pipeline.logs import log_text, table_rows
from tests.support.processes.run_cli import run_cli
from tests.support.stores.stored_quotas import new_store

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.ingest import change as ingest_change
from kafka_quotas.pipeline.ingest import local_engine
from kafka_quotas.pipeline.ingest.change import Change, ingest_id
from kafka_quotas.pipeline.ingest.plan import ReadFile
from kafka_quotas.pipeline.tables.event_files import write_events
from kafka_quotas.pipeline.tables.lake import ConflictError, Lake
from kafka_quotas.pipeline.tables.schemas import CLIENTS, EVENTS, QUARANTINE
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot


def change(ingest: int, digest: str) -> Change:
    head = {"head_bytes": 0, "head_sha256": digest, "size": 0, "read_to": 0}
    file = ReadFile(path=f"/{digest}", form="request-log", cluster="", broker_id=None, **head)
    return Change(ingest=ingest, operation="ingest", at_ms=1, files=[file])


def test_of_two_changes_at_once_the_second_looks_again_at_what_was_read(tmp_path: Path) -> None:
    lake = Lake(url=str(tmp_path / "data"))
    lake.create()
    empty = FolderSnapshot.of(lake)
    change(1, "one").commit(empty)
    with pytest.raises(ConflictError):
        change(2, "two").commit(empty)
    second = change(2, "two").commit_unless_read(empty)
    assert second is not None
    assert (second.number, second.ingests) == (2, [1, 2])
    assert change(3, "one").commit_unless_read(empty) is None  # the first read that file
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


@pytest.mark.parametrize("is_renumbered", [False, True])
def test_a_folder_of_an_earlier_version_is_refused(tmp_path: Path, is_renumbered: bool) -> None:
    data = tmp_path / "data"
    broker_log(tmp_path, log_text(5))
    if is_renumbered:
        lake = Lake(url=str(data))
        lake.create()
        own = change(1, "one")
        replace(own, files=[replace(each, parser=1) for each in own.files]).commit(FolderSnapshot.of(lake))
    else:
        ingest(data, *source(tmp_path))
        clients = DeltaTable(data / "clients").to_pyarrow_table().drop_columns(["request_events"])
        shutil.rmtree(data / "clients")
        write_deltalake(data / "clients", clients)
    told = ingest(data, "--replace", source(tmp_path)[1], code=2)["stderr"]
    assert f"error: {data} was written by an earlier version" in told
    code, _, told = run_cli("pipeline", "usage", str(data), "--store", new_store(tmp_path, {}))
    assert (code, "hint: ingest the logs again, into another folder" in told) == (2, True)


def test_files_to_replace_that_an_optimize_took_are_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, calls = tmp_path / "data", []
    broker_log(tmp_path, log_text(5))
    ingest(data, *source(tmp_path))
    remove = ingest_change.remove_rows

    def overtaken(*arguments: Any, **named: Any) -> None:
        calls.append(None)
        if len(calls) == 1:
            raise ConflictError("an OPTIMIZE")
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


def test_what_a_killed_ingest_left_is_never_seen(tmp_path: Path) -> None:
    data = tmp_path / "data"
    log = broker_log(tmp_path, log_text(5))
    ingest(data, *source(tmp_path))
    events = FolderSnapshot.of(Lake(url=str(data))).read(EVENTS)
    killed_ingest(data, events, began_ms=0)
    assert len(table_rows(data, EVENTS)) == 5
    log.write_text(log_text(8))
    assert ingest(data, *source(tmp_path))["events"] == 3
    assert len(table_rows(data, EVENTS)) == 8
    assert Lake(url=str(data)).table(EVENTS).count() == 13


def test_tables_that_delta_lake_compacts_and_vacuums_are_read_as_before(tmp_path: Path) -> None:
    data = tmp_path / "data"
    log = broker_log(tmp_path, log_text(5))
    for count in (10, 15, 20):
        ingest(data, *source(tmp_path))
        log.write_text(log_text(count))
    before = table_rows(data, EVENTS)
    for name in ("events", "clients", "ingests"):
        table = DeltaTable(data / name)
        table.optimize.compact()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        assert len(list((data / name).rglob("*.parquet"))) == 1
    assert table_rows(data, EVENTS) == before
    lake = Lake(url=str(data))
    killed_ingest(data, FolderSnapshot.of(lake).read(EVENTS), began_ms=1)
    assert table_rows(data, EVENTS) == before
    with pytest.raises(KafkaQuotasError) as caught:
        FolderSnapshot.of(lake, 1).read(EVENTS)
    assert caught.value.hint == "did a VACUUM delete the files of this change?"
    assert ingest(data, *source(tmp_path))["events"] == 5
    code, out, told = run_cli("pipeline", "compact", str(data))
    assert (code, out) == (2, "")
    assert "hint: the tables are Delta: OPTIMIZE and VACUUM" in told


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
    code, _, told = run_cli("pipeline", "ingest", "--as-of", "1", "--out", str(data))
    assert (code, "no such option: --as-of" in told) == (2, True)


def test_rows_that_did_not_arrive_are_an_error_and_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker_log(tmp_path, log_text(5))
    monkeypatch.setattr(Lake, "commit_files", lambda *arguments, **named: 0)
    told = ingest(tmp_path / "data", *source(tmp_path), code=1)["stderr"]
    assert "5 rows of events were read, but 0 are in" in told
    assert FolderSnapshot.of(Lake(url=str(tmp_path / "data"))).number == 0
