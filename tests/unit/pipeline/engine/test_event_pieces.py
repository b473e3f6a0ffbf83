"""Pieces of files for tasks on Spark, without Spark: the slices and results of the local engine."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.pipeline.events import BASE_MS, events_folder, open_table, proposal, random_events, run_here

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.pipeline.engine import event_pieces as pieces
from kafka_quotas.pipeline.engine.job import Job
from kafka_quotas.pipeline.replay.job import replay_job, replay_tables
from kafka_quotas.pipeline.replay.task import ReplayPlan
from kafka_quotas.pipeline.tables.client_ranges import EventTable, TimeSpread, stored_columns
from kafka_quotas.pipeline.tables.schemas import CHARGE_COLUMNS, CLIENTS, EVENTS, TableSchema

PLAN = ReplayPlan(proposals=(proposal("users", (Entity.of(user=None), {"producer_byte_rate": 20_000.0})),))


def contents(events: EventTable, table: TableSchema) -> Iterator[pa.Buffer]:
    """The bytes of the files of a table, as Spark's own source hands them over."""
    for path in events.snapshot.files(table)["path"].to_pylist():
        yield pa.py_buffer((Path(events.snapshot.lake.place(table)) / path).read_bytes())


def slices(events: EventTable, job: Job, *, way: str) -> tuple[list[list[pa.Table]], list[pieces.Piece]]:
    """The slices of each part, and the pieces in the order in which Spark brings them: by part and window, else any."""
    ranges = events.ranges(shift=job.shift, workers=1)
    files = events.snapshot.files(EVENTS)
    movable = {"whole files": range(files.num_rows), "some large": range(0, files.num_rows, 2)}.get(way, ())
    parts = pieces.Parts.of(ranges, events.time_spread(), files, movable=movable, chosen=events.chosen)
    if way == "cut files":
        parts = replace(parts, files={})
    needed = events.snapshot.needed(EVENTS)
    columns, ingests = stored_columns(job.columns), events.snapshot.ingests
    found = [piece for each in contents(events, CLIENTS) for piece in pieces.name_pieces(each, parts, ingests=ingests)]
    stored = list(contents(events, EVENTS))
    whole, cut = parts.places(len(stored))
    found += [pieces.Piece(part, 0, stored[place]) for part, place in whole]
    for place in cut:
        found += pieces.event_pieces(stored[place], parts, columns=columns, ingests=needed)
    for place in set(range(len(stored))) - {*movable} if parts.files else ():
        rows = pq.read_table(pa.BufferReader(stored[place]), columns=[*columns, "ingest"])
        found += pieces.row_pieces(rows, parts, columns=columns, ingests=needed)
    random.Random(1).shuffle(found)
    found.sort(key=lambda piece: (piece.part, piece.window))
    own = pieces.slices_of_parts(found, parts, columns=columns, ingests=needed)
    return [list(each) for _, each in own], found


@pytest.mark.parametrize("way", ["whole files", "some large", "cut files", "rows"])
def test_tasks_over_pieces_find_what_the_local_engine_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    folder = events_folder(tmp_path / "data", random_events(2_000, seed=5), ingests=3)
    monkeypatch.setattr("kafka_quotas.pipeline.tables.client_ranges._FEWEST_EVENTS", 300)  # several parts
    job = replay_job(PLAN)
    expected = replay_tables(run_here(job, folder), PLAN)
    for most in (1 << 20, 100):  # a part in one window, and in several
        monkeypatch.setattr(pieces, "SLICE_EVENTS", most)
        parts, found = slices(open_table(folder), job, way=way)
        assert len(parts) > 2
        assert (max(piece.window for piece in found) > 2) == (most == 100)
        kinds = {piece.content[:4].to_pybytes() == b"PAR1" for piece in found if piece.window >= 0}
        assert way != "some large" or most == 100 or kinds == {True, False}
        tables = replay_tables([job.task(own) for own in parts], PLAN)
        assert tables.entities.to_pylist() == expected.entities.to_pylist()
        assert tables.whatif.to_pylist() == expected.whatif.to_pylist()
    assert sum(expected.whatif["throttled_n"].to_pylist()) > 100


@pytest.mark.parametrize("way", ["whole files", "some large", "cut files", "rows"])
def test_only_files_and_events_of_chosen_clients_come_to_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    everything = open_table(events_folder(tmp_path / "data", random_events(2_000, seed=5), ingests=3))
    monkeypatch.setattr("kafka_quotas.pipeline.tables.client_ranges._FEWEST_EVENTS", 300)  # several parts
    job = replay_job(PLAN)
    clients = np.unique(everything.snapshot.read(CLIENTS)["client"].to_numpy())
    chosen = clients[::5]
    parts, _ = slices(everything.of(chosen), job, way=way)
    found = pa.concat_tables([each for own in parts for each in own])
    here = pa.concat_tables(
        [
            each
            for own in everything.of(chosen).ranges(shift=job.shift, workers=1)
            for each in everything.of(chosen).slices(own, columns=job.columns)
        ]
    )
    assert sorted(found["client"].to_pylist()) == sorted(here["client"].to_pylist())
    assert set(here["client"].to_pylist()) == set(chosen.tolist())
    assert here.num_rows == everything.of(chosen).count < everything.count
    if way == "whole files":
        files = everything.snapshot.files(EVENTS)
        lowest = pieces.Parts.of(
            everything.ranges(shift=0, workers=1),
            everything.time_spread(),
            files,
            movable=range(files.num_rows),
            chosen=clients[:0] - 1,
        )
        assert not any(lowest.files.values())


@pytest.mark.parametrize("way", ["whole files", "cut files"])
def test_rows_of_an_ingest_that_was_killed_are_in_no_piece(tmp_path: Path, way: str) -> None:
    folder = events_folder(tmp_path / "data", random_events(300), ingests=2)
    events = open_table(folder)
    first = EventTable(events.snapshot.until(1))  # the second ingest's files are there, but its change is not
    job = replay_job(PLAN)
    parts_of_first, _ = slices(first, job, way=way)
    assert sum(each.num_rows for own in parts_of_first for each in own) == first.count == 150
    assert first.snapshot.needed(EVENTS) is None
    events_of_first = list(contents(events, EVENTS))
    files = events.snapshot.files(EVENTS)
    parts = replace(
        pieces.Parts.of(events.ranges(shift=0, workers=1), events.time_spread(), files, movable=()), files={}
    )
    columns = stored_columns(CHARGE_COLUMNS)
    kept = [
        piece for each in events_of_first for piece in pieces.event_pieces(each, parts, columns=columns, ingests=[1])
    ]
    assert sum(pieces.unpacked(piece.content).num_rows for piece in kept) == 150


def test_windows_have_about_equal_numbers_of_events_whatever_a_stray_year_says() -> None:
    begins = np.array([BASE_MS, BASE_MS + 3_600_000, 2_051_222_400_000])
    spread = TimeSpread(begins_ms=begins, ends_ms=begins + 3_599_999, events=np.array([9_000, 3_000, 1]))
    bounds = spread.bounds_ms(4)
    assert (bounds % 1000 == 0).all()
    assert ((bounds - BASE_MS) // 60_000).tolist() == [20, 40, 60]
