"""The times when a replay held buckets back, against the decisions of `core` and against the other tables."""

from itertools import pairwise
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.support.pipeline.events import BASE_MS, events_folder, events_table, proposal, random_events
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.simulation import Algorithm, Event, EventOperation, new_limiter, replay
from kafka_quotas.pipeline.jobs.replay import Model, ReplayPlan, replay_task
from kafka_quotas.pipeline.tables.schemas import NAMES

ALL = {
    "producer_byte_rate": 9_000.0,
    "consumer_byte_rate": 7_000.0,
    "request_percentage": 0.1,
    "controller_mutation_rate": 1.0,
}
PAIRS = proposal("pairs", (Entity.of(user=None, client_id=None), ALL))
LOOSE = proposal("loose", (Entity.of(user=None, client_id=None), {"producer_byte_rate": 60_000.0}))


def spans_of(rows: list[dict], *, slices: int, spans: bool = True) -> list[dict]:
    """The rows of a replay in N slices."""
    plan = ReplayPlan(proposals=(PAIRS, LOOSE), throttle_spans=spans)
    events = events_table(rows).sort_by("ts_ms")
    length = -(-events.num_rows // slices)
    return replay_task([events.slice(begin, length) for begin in range(0, events.num_rows, length)], plan).to_pylist()


def test_spans_are_where_the_decisions_of_core_throttle() -> None:
    rows = [row for row in random_events(1_500, seed=4) if row["quota_type"] == "produce" and not row["is_exempt"]]
    seen = 0
    for bucket in spans_of(rows, slices=7):
        own = [row for row in rows if all(row[name] == bucket[name] for name in ("broker_id", "user", "client_id"))]
        for model in Model:
            asked = ("pairs", "produce", model)
            if tuple(bucket[name] for name in ("scenario", "quota_type", "model")) != asked or not bucket["client_id"]:
                continue
            limiter = new_limiter(Algorithm.RATE, bound=9_000.0, samples=11, window_ms=1000)
            events = [Event(t_ms=row["ts_ms"], amount=float(row["bytes"])) for row in own]
            events.sort(key=lambda event: (event.t_ms, event.amount))
            found: list[list[int]] = []
            for each in replay(events, limiter, usual=EventOperation.RECORD, closed_loop=model is Model.CLOSED):
                delay_ms = each.outcome.throttle_ms
                if delay_ms > 0 and found and each.t_ms <= found[-1][1]:
                    _, end_ms, events_so_far, longest_ms = found[-1]
                    found[-1][1:] = max(end_ms, each.t_ms + delay_ms), events_so_far + 1, max(longest_ms, delay_ms)
                elif delay_ms > 0:
                    found.append([each.t_ms, each.t_ms + delay_ms, 1, delay_ms])
            recorded = [
                [span[name] for name in ("start_ms", "end_ms", "events", "delay_ms")] for span in bucket["spans"]
            ]
            assert recorded == found
            seen += len(recorded)
    assert seen > 10


@pytest.mark.parametrize("slices", [1, 5])
def test_spans_agree_with_the_table_of_what_ifs_for_all_quota_types(slices: int) -> None:
    rows = random_events(2_500, seed=8)
    found, without = spans_of(rows, slices=slices), spans_of(rows, slices=1, spans=False)
    by_key = {tuple(row[name] for name in (*NAMES, "scenario", "model")): row for row in found}
    assert len(by_key) == len(found) == len(without)
    for row in without:
        other = by_key[tuple(row[name] for name in (*NAMES, "scenario", "model"))]
        assert row == other | {"spans": None}
        own = other["spans"]
        assert sum(each["events"] for each in own) == row["throttled_n"]
        assert (own[0]["start_ms"] if own else None) == row["first_ms"]
        assert all(before["end_ms"] < after["start_ms"] for before, after in pairwise(own))
        assert max((each["delay_ms"] for each in own), default=0) >= row["max_ms"]
    assert {row["quota_type"] for row in found if row["spans"]} == {
        *("produce", "fetch", "request", "controller_mutation")
    }


def test_spans_are_written_where_they_are_asked_for(tmp_path: Path) -> None:
    rows = [{"ts_ms": BASE_MS + step * 100, "bytes": 300_000} for step in range(20)]
    data = events_folder(tmp_path / "data", rows)
    quotas = tmp_path / "tight.yaml"
    quotas.write_text("entries:\n  - {entity: {user: alice}, quotas: {producer_byte_rate: 100k}}\n")
    command = ["pipeline", "replay", str(data), "--quotas", str(quotas), "--model", "open", "--spans"]
    code, _, err = run_cli(*command)
    assert (code, "say where: --out DIR" in err) == (2, True)
    code, _, err = run_cli(*command, "--out", str(tmp_path / "out"))
    assert (code, "tables whatif and throttle_spans are in" in err) == (0, True)
    (span,) = DeltaTable(tmp_path / "out" / "throttle_spans").to_pyarrow_table().to_pylist()
    assert (span["scenario"], span["quota_type"], span["quotas"]) == (str(quotas), "produce", str(quotas))
    assert span["start_at"].timestamp() * 1000 == BASE_MS + 300
    assert (span["dt"], span["client_id"]) == (span["start_at"].date(), None)
