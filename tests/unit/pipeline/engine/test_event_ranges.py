"""Events of an ingest in chunks and pieces, without Spark: merged, they are the events by client and time."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from tests.support.pipeline.events import events_table, random_events

from kafka_quotas.pipeline.engine import event_ranges
from kafka_quotas.pipeline.engine.event_pieces import packed, unpacked
from kafka_quotas.pipeline.engine.event_ranges import (
    CLIENT_COLUMNS,
    EventRanges,
    event_chunks,
    merged,
    sample_of,
    thinned,
)
from kafka_quotas.pipeline.ingest.ingested_tables import clients_of
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.event_files import sorted_by_client
from kafka_quotas.pipeline.tables.schemas import CLIENTS, EVENTS

TASKS = 40
DAYS = 3


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_ranges, "_SMALLEST_RANGE", 100)
    monkeypatch.setattr(event_ranges, "_SAMPLED", 16)


@pytest.fixture(scope="module")
def logs() -> list[pa.Table]:
    """The events of some tasks in the order of their files, one client with two fifths of them."""
    rows = random_events(4_000, seed=3, clients=60, seconds=DAYS * 86_400)
    return [events_table(rows[first::TASKS], ingest=7) for first in range(TASKS)]


def chunks(logs: Sequence[pa.Table]) -> tuple[list[pa.Buffer], pa.Table]:
    """What tasks pack, in the order of files, and all samples."""
    found = [(chunk, seed) for seed, log in enumerate(logs) for chunk in event_chunks(log.to_batches())]
    samples = pa.concat_tables([sample_of(chunk, seed=seed) for chunk, seed in found])
    assert pc.sum(samples["events"]).as_py() == pytest.approx(sum(log.num_rows for log in logs))
    return [packed(chunk) for chunk, _ in found], samples


def by_range(
    contents: Sequence[pa.Buffer], ranges: EventRanges, columns: Sequence[str] | None = None
) -> dict[tuple[int, int], pa.Table]:
    """The events of each range and day."""
    pieces: dict[tuple[int, int], list[tuple[pa.Buffer, int]]] = defaultdict(list)
    for content in contents:
        for part, day, piece in ranges.pieces(content, columns):
            pieces[part, day].append((piece, 0))
    return {key: pa.concat_tables(merged(own)) for key, own in sorted(pieces.items())}


def test_ranges_have_the_events_of_each_day_by_client_and_time_in_about_equal_numbers(logs: list[pa.Table]) -> None:
    contents, samples = chunks(logs)
    ranges = EventRanges.for_files(samples)
    found = by_range(contents, ranges)
    everything = sorted_by_client(pa.concat_tables(logs))
    for day in sorted({day for _, day in found}):
        own = pa.concat_tables([events for (_, each), events in found.items() if each == day])
        is_day = pc.equal(everything["dt"], pa.scalar(day, pa.int32()).cast(pa.date32()))
        assert own.to_pylist() == everything.filter(is_day).to_pylist()
        assert own.schema.names == EVENTS.arrow_schema().names
    sizes: dict[int, int] = defaultdict(int)
    for (part, _), events in found.items():
        sizes[part] += events.num_rows
    assert len(sizes) == ranges.count == 8
    assert max(sizes.values()) < 1.5 * 4_000 / 8


def test_clients_are_in_one_range_but_a_giant_one_which_is_cut_between_seconds(
    logs: list[pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_ranges, "_LARGEST_RANGE", 200)
    contents, samples = chunks(logs)
    found = by_range(contents, EventRanges.for_clients(samples), CLIENT_COLUMNS)
    assert len(found) > 4
    rows = pa.concat_tables([clients_of(events) for events in found.values()])
    known = clients_of(sorted_by_client(pa.concat_tables(logs)))
    giant = known["client"][int(np.argmax(known["events"].to_numpy()))]
    parts = rows.filter(pc.equal(rows["client"], giant))
    few = known.filter(pc.less(known["events"], 400))
    others = rows.filter(pc.is_in(rows["client"], value_set=few["client"]))
    assert others.sort_by("client").to_pylist() == few.to_pylist()
    (whole,) = known.filter(pc.equal(known["client"], giant)).to_pylist()
    assert parts.num_rows > 1
    assert pc.sum(parts["events"]).as_py() == whole["events"]
    assert pc.max(parts["peak_bytes"]).as_py() == whole["peak_bytes"]
    seconds = [(row["first_ms"] // 1000, row["last_ms"] // 1000) for row in parts.sort_by("first_ms").to_pylist()]
    assert all(last < first for (_, last), (first, _) in pairwise(seconds))
    assert rows.schema == CLIENTS.arrow_schema()


def test_thousands_of_small_logs_are_cut_as_evenly_as_large_ones() -> None:
    rows = random_events(4_000, seed=4, clients=400, seconds=3_600)
    contents, samples = chunks([events_table(rows[first::1_000]) for first in range(1_000)])
    sizes: dict[int, int] = defaultdict(int)
    for (part, _), events in by_range(contents, EventRanges.for_files(samples)).items():
        sizes[part] += events.num_rows
    assert max(sizes.values()) < 1.5 * 4_000 / 8


def test_few_samples_of_many_events_cut_them_as_evenly(logs: list[pa.Table]) -> None:
    contents, samples = chunks(logs)
    of_tasks = [
        [
            sample_of(chunk, seed=seed)
            for number in range(seed, TASKS, 4)
            for chunk in event_chunks(logs[number].to_batches())
        ]
        for seed in range(4)
    ]
    few = pa.concat_tables([thinned(own, 30, seed=seed) for seed, own in enumerate(of_tasks)])
    assert few.num_rows == 120 < 200 < samples.num_rows
    assert pc.sum(few["events"]).as_py() == pytest.approx(4_000)
    assert few.schema == samples.schema
    assert thinned(of_tasks[0], 1_000, seed=0) == pa.concat_tables(of_tasks[0])
    sizes: dict[int, int] = defaultdict(int)
    for (part, _), events in by_range(contents, EventRanges.for_files(few)).items():
        sizes[part] += events.num_rows
    assert len(sizes) == 8
    assert max(sizes.values()) < 1.5 * 4_000 / 8


def test_a_chunk_of_one_range_is_passed_on_as_it_is_and_a_piece_has_its_own_texts(logs: list[pa.Table]) -> None:
    (content, *_), samples = chunks([pa.concat_tables(logs)])
    none = EventRanges.for_files(samples.slice(0, 1))
    assert [piece for _, _, piece in none.pieces(content)] == [content]
    ranges = EventRanges.for_files(samples)
    texts = [len(unpacked(piece)["user"].chunk(0).dictionary) for _, _, piece in ranges.pieces(content)]
    rows = [unpacked(piece).num_rows for _, _, piece in ranges.pieces(content)]
    assert len(rows) > 1
    assert all(count <= row_count for count, row_count in zip(texts, rows, strict=True))


def test_places_count_from_the_beginning_of_the_file(logs: list[pa.Table]) -> None:
    (content, *_), _ = chunks(logs[:1])
    plain, shifted = (pa.concat_tables(merged([(content, before)])) for before in (0, 1 << 40))
    assert shifted["src_offset"].to_pylist() == [each + (1 << 40) for each in plain["src_offset"].to_pylist()]
