"""Ingests that meet others, are cut off, or replace rows: each is whole or was never there, for every Delta reader."""

import errno
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.pipeline.events import BASE_MS, commit_events, event_files, events_table, random_events
from tests.support.pipeline.ingested_folder import broker_log, ingest, source
from tests.support.pipeline.logs import log_text, table_rows
from tests.support.processes.run_cli import run_cli
from tests.support.stores.stored_quotas import new_store

from kafka_quotas.pipeline.ingest import commits, ingested_tables
from kafka_quotas.pipeline.ingest.commits import IngestRecord, commit, derive, records_of
from kafka_quotas.pipeline.ingest.plan import KnownFiles, ReadFile
from kafka_quotas.pipeline.ingest.sources import HEAD_BYTES
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.packed_events import PackedEvents, pack
from kafka_quotas.pipeline.tables.schemas import EVENTS, PACKED_EVENTS, QUARANTINE
from kafka_quotas.pipeline.tables.staged_files import write_staged


def record(digest: str) -> IngestRecord:
    head = {"head_bytes": 0, "head_sha256": digest, "size": 0, "read_to": 0}
    file = ReadFile(path=f"/{digest}", form="prometheus", cluster="", broker_id=None, **head)
    return IngestRecord(at_ms=BASE_MS, files=(file,))


def counted(data: Path) -> int:
    """How many events any reader of Delta tables finds."""
    return sum(DeltaTable(data / "events").to_pyarrow_table(columns=["events"])["events"].to_pylist())


def reads(digest: str) -> Callable[[KnownFiles], bool]:
    """Check whether others have read the file of a record."""
    return lambda later: later.find(record(digest).files[0], b"") is not None


def with_a_bad_line(lake: Lake, name: str) -> IngestRecord:
    row = {"raw": name, "reason": "rubbish", "src_file": f"/{name}", "line_no": 1}
    rows = pa.Table.from_pylist([row], QUARANTINE.arrow_schema())
    return replace(record(name), staged={QUARANTINE.name: write_staged(lake, QUARANTINE, rows)})


def test_of_two_ingests_at_once_the_second_looks_again_at_what_was_read(tmp_path: Path) -> None:
    lake = Lake(url=str(tmp_path / "data"))
    lake.create()
    assert commit(lake, record("one"), [], [], reads("one")) == 1
    assert commit(lake, record("two"), [], [], reads("two")) == 2
    lost = with_a_bad_line(lake, "one")
    events = write_staged(lake, PACKED_EVENTS, pa.Table.from_batches([pack(events_table(random_events(5)))]))
    before = len(list((tmp_path / "data").rglob("*.parquet")))
    assert commit(lake, lost, events, [], reads("one")) is None  # the first read that file
    assert [(each.number, each.files[0].path) for each in records_of(lake)] == [(1, "/one"), (2, "/two")]
    assert len(list((tmp_path / "data").rglob("*.parquet"))) == before - len(events) - 1, "what it wrote is gone"


def test_what_an_overtaken_ingest_has_for_other_tables_is_added_in_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second began before the first committed, and comes before it to the other tables."""
    lake = Lake(url=str(tmp_path / "data"))
    lake.create()
    first, second = (with_a_bad_line(lake, name) for name in ("one", "two"))
    with monkeypatch.context() as halfway:
        halfway.setattr(commits, "derive", lambda *_: None)
        commit(lake, first, [], [], reads("one"))
    commit(lake, second, [], [], reads("two"))
    derive(lake, records_of(lake))
    assert sorted(row["raw"] for row in table_rows(tmp_path / "data", QUARANTINE)) == ["one", "two"]


def test_many_ingests_of_different_files_at_once_are_all_there(tmp_path: Path) -> None:
    lake = Lake(url=str(tmp_path / "data"))
    lake.create()
    names = list(map(str, range(12)))
    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(lambda name: commit(lake, record(name), [], [], reads(name)), names))
    assert None not in versions
    assert [each.number for each in records_of(lake)] == list(range(1, 13))


def test_ingests_of_one_log_at_once_count_every_line_once(tmp_path: Path) -> None:
    broker_log(tmp_path, log_text(60) + "rubbish\n")
    argv = ["pipeline", "ingest", "--out", str(tmp_path / "data"), "--timezone", "UTC", *source(tmp_path)]
    command = [sys.executable, "-m", "kafka_quotas", *argv]
    running = [subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    assert (counted(tmp_path / "data"), len(table_rows(tmp_path / "data", EVENTS))) == (60, 60)
    assert len(table_rows(tmp_path / "data", QUARANTINE)) == 1


def test_an_ingest_that_is_overtaken_reads_only_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker_log(tmp_path, log_text(60))
    data, inner = tmp_path / "data", []
    run = ingested_tables.ingest_locally

    def overtaken(*arguments: Any, **named: Any) -> Any:
        if not inner:
            inner.append(None)
            inner.append(ingest(data, *source(tmp_path)))  # another one, whole, while this one parses
        return run(*arguments, **named)

    monkeypatch.setattr(ingested_tables, "ingest_locally", overtaken)
    result = ingest(data, *source(tmp_path))
    assert (inner[1]["events"], result["events"], result["unchanged"]) == (60, 0, 1)
    assert counted(data) == 60


@pytest.mark.parametrize("is_longer_first", [False, True])
def test_two_ingests_at_once_of_a_log_that_grows_between_them_count_every_line_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_longer_first: bool
) -> None:
    """Of so short a log each of them knows another beginning."""
    text, data, inner = log_text(2), tmp_path / "data", []
    assert len(log_text(1)) < len(text) - 100 < HEAD_BYTES
    log = broker_log(tmp_path, log_text(1))
    run = commits.commit

    def overtaken(*arguments: Any) -> Any:
        if not inner:
            log.write_text(text[:-100] if is_longer_first else log_text(1))
            inner.append(None)
            inner.append(ingest(data, *source(tmp_path))["events"])
        return run(*arguments)

    log.write_text(log_text(1) if is_longer_first else text[:-100])
    monkeypatch.setattr(commits, "commit", overtaken)
    ingest(data, *source(tmp_path))
    log.write_text(text)
    ingest(data, *source(tmp_path))
    assert inner[1] == 1
    assert counted(data) == 2
    assert len({row["src_offset"] for row in table_rows(data, EVENTS)}) == 2


class KilledError(BaseException):
    """The end of an ingest between two of its steps."""


_STEPS: dict[str, tuple[object, str]] = {
    "before the commit": (commits, "commit"),
    "after the rows were written": (commits, "record_rows"),
    "after the commit": (commits, "derive"),
    "after one of the other tables": (commits, "without_files"),
}


@pytest.mark.parametrize("step", _STEPS)
def test_an_ingest_killed_at_any_step_is_whole_or_was_never_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    data = tmp_path / "data"
    log = broker_log(tmp_path, log_text(5) + "rubbish\n")
    ingest(data, *source(tmp_path))
    log.write_text(log_text(5) + "rubbish\n" + log_text(3, first=5) + "more rubbish\n")
    module, name = _STEPS[step]
    run: Callable[..., Any] = getattr(module, name)
    calls: list[None] = []

    def killed(*arguments: Any, **named: Any) -> Any:
        calls.append(None)
        # each ingest first does what an earlier one has left, and looks for removed rows of `events` first
        if len(calls) > {"derive": 1, "without_files": 1}.get(name, 0):
            raise KilledError
        return run(*arguments, **named)

    monkeypatch.setattr(module, name, killed)
    with pytest.raises(KilledError):
        ingest(data, *source(tmp_path))
    monkeypatch.undo()
    assert counted(data) in (5, 8)
    ingest(data, *source(tmp_path))
    assert (counted(data), len(table_rows(data, EVENTS)), len(table_rows(data, QUARANTINE))) == (8, 8, 2)
    ingest(data, *source(tmp_path))
    assert (counted(data), len(table_rows(data, QUARANTINE))) == (8, 2)


def test_a_folder_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker_log(tmp_path, log_text(5))
    write_deltalake(data / "events", events_table(random_events(5)))
    told = ingest(data, *source(tmp_path), code=2)["stderr"]
    assert f"error: {data} was written by an earlier version" in told
    code, _, told = run_cli("pipeline", "usage", str(data), "--store", new_store(tmp_path, {}))
    assert (code, "hint: ingest the logs again, into another folder" in told) == (2, True)


def test_files_to_replace_that_an_optimize_took_are_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, calls = tmp_path / "data", []
    log = broker_log(tmp_path, log_text(5))
    ingest(data, *source(tmp_path))
    log.write_text(log_text(8))
    ingest(data, *source(tmp_path))
    find = commits.without_files

    def overtaken(lake: Lake, table: Any, *arguments: Any) -> Any:
        found = find(lake, table, *arguments)
        if table is PACKED_EVENTS and not calls:
            calls.append(None)
            DeltaTable(data / "events").optimize.compact()
        return found

    monkeypatch.setattr(commits, "without_files", overtaken)
    assert ingest(data, "--replace", source(tmp_path)[1], zone="Europe/Berlin")["events"] == 8
    assert (len(calls), counted(data), len(table_rows(data, EVENTS))) == (1, 8, 8)


def test_no_room_left_is_one_line_and_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    log = broker_log(tmp_path, log_text(5))
    ingest(data, *source(tmp_path))
    with log.open("a") as file:
        file.write(log_text(5, first=5))

    def full(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    told = ingest(data, *source(tmp_path), code=1)["stderr"]
    assert told.splitlines()[-2:] == [
        f"error: no room left while writing {data}/events",
        "hint: nothing was changed; make room there",
    ]
    assert len(table_rows(data, EVENTS)) == 5
    monkeypatch.undo()
    assert ingest(data, *source(tmp_path))["events"] == 5


def test_what_a_killed_ingest_left_is_never_seen_and_vacuumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    log = broker_log(tmp_path, log_text(5))
    ingest(data, *source(tmp_path))
    log.write_text(log_text(8))

    def killed(*_: Any, **__: Any) -> None:
        raise KilledError

    monkeypatch.setattr(commits, "record_rows", killed)
    with pytest.raises(KilledError):
        ingest(data, *source(tmp_path))
    monkeypatch.undo()
    files = set((data / "events").rglob("*.parquet"))
    assert (counted(data), len(files)) == (5, 3)
    DeltaTable(data / "events").vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert len(set((data / "events").rglob("*.parquet"))) == 2
    assert ingest(data, *source(tmp_path))["events"] == 3
    assert counted(data) == 8


def test_tables_that_delta_lake_compacts_and_vacuums_are_read_as_before(tmp_path: Path) -> None:
    data = tmp_path / "data"
    log = broker_log(tmp_path, log_text(5))
    for count in (10, 15, 20):
        ingest(data, *source(tmp_path))
        log.write_text(log_text(count))
    before = table_rows(data, EVENTS)
    table = DeltaTable(data / "events")
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert len(list((data / "events").rglob("*.parquet"))) == 2
    assert table_rows(data, EVENTS) == before
    assert ingest(data, *source(tmp_path))["events"] == 5
    code, _, told = run_cli("pipeline", "usage", str(data), "--as-of", "1", "--store", new_store(tmp_path, {}))
    assert (code, "hint: did a VACUUM delete the files of this version?" in told) == (1, True)
    code, out, told = run_cli("pipeline", "compact", str(data))
    assert (code, out) == (2, "")
    assert "hint: the tables are Delta: OPTIMIZE and VACUUM" in told


def test_rows_of_many_small_ingests_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "_MANY_FILES", 4)
    data = tmp_path / "data"
    for count in range(1, 5):
        log = broker_log(tmp_path, log_text(5 * count))
        ingest(data, *source(tmp_path))
    assert counted(data) == 20
    assert len(DeltaTable(data / "events").file_uris()) == 2
    packed = PackedEvents(Lake(url=str(data)))
    assert packed.table(["events"])["events"].to_pylist() == [20]
    assert [row["src_offset"] for row in sorted(table_rows(data, EVENTS), key=itemgetter("ts_ms"))] == sorted(
        row["src_offset"] for row in table_rows(data, EVENTS)
    )
    log.write_text(log_text(22))
    assert ingest(data, *source(tmp_path))["events"] == 2


def test_a_client_s_hour_that_two_ingests_have_read_is_one_row(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for count in (5, 15):
        broker_log(tmp_path, log_text(count))
        version = ingest(data, *source(tmp_path))["change"]
    assert sorted(PackedEvents(Lake(url=str(data)), version).table(["events"])["events"].to_pylist()) == [5, 10]
    assert PackedEvents(Lake(url=str(data))).table(["events"])["events"].to_pylist() == [15]
    broker_log(tmp_path, log_text(4).replace("2026-", "2025-"), broker_id=2)
    ingest(data, *source(tmp_path))
    assert sorted(PackedEvents(Lake(url=str(data))).table(["events"])["events"].to_pylist()) == [4, 15]


def test_a_merge_takes_the_smallest_files_of_a_day_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "_MANY_FILES", 4)
    lake = Lake(url=str(tmp_path / "data"))
    for number, count in enumerate((900, 10, 1_000, 20)):
        commit_events(lake, random_events(count), file=str(number))
    sizes = sorted(path.stat().st_size for path in (tmp_path / "data" / "events").glob("dt=2*/*.parquet"))
    monkeypatch.setattr(commits, "_MERGED_BYTES", sum(sizes[:3]))
    commits.merge_small_files(lake)
    found = event_files(PackedEvents(lake))
    assert (len(found), counted(tmp_path / "data")) == (2, 1_930)
    assert max(sizes) in {Path(path).stat().st_size for path in found}


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
    assert {row["ts_ms"] for row in table_rows(data, EVENTS, 1) if row["broker_id"] == 1} == before
    code, _, told = run_cli("pipeline", "usage", str(data), "--as-of", "9", "--store", new_store(tmp_path, {}))
    assert (code, "has no version 9: there are 0 to 2" in told) == (2, True)
    code, _, told = run_cli("pipeline", "ingest", "--as-of", "1", "--out", str(data))
    assert (code, "no such option: --as-of" in told) == (2, True)
