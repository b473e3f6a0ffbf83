"""Clients below every limit: their rows come from counts, and equal those of a replay of their events."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.pipeline.events import (
    BASE_MS,
    added,
    events_folder,
    events_table,
    open_table,
    proposal,
    random_events,
    run_here,
)

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.job import Job, without_events
from kafka_quotas.pipeline.ingest.ingested_tables import clients_of
from kafka_quotas.pipeline.replay.job import are_unreached, replay_job, replay_tables
from kafka_quotas.pipeline.replay.task import ReplayPlan
from kafka_quotas.pipeline.tables.clients import client_figures
from kafka_quotas.pipeline.tables.event_files import sorted_by_client, write_events
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.schemas import CLIENTS, EVENTS
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot

PAIR, USER, CLIENT = Entity.of(user=None, client_id=None), Entity.of(user=None), Entity.of(client_id=None)
LIMITS = {
    "produce": (proposal("a", (PAIR, {"producer_byte_rate": 12_000.0})),),
    "three types": (
        proposal("a", (PAIR, {"producer_byte_rate": 15e3, "consumer_byte_rate": 12e3, "request_percentage": 3.0})),
    ),
    "a sweep": tuple(proposal(str(step), (PAIR, {"producer_byte_rate": 6e3 * step})) for step in (1, 2, 4)),
    "of users": (
        proposal("a", (USER, {"request_percentage": 90.0}), (Entity.of(user="user-0"), {"request_percentage": 0.2})),
    ),
    "mixed": (
        proposal("a", (CLIENT, {"producer_byte_rate": 15e3, "controller_mutation_rate": 3.0})),
        proposal("b", (PAIR, {"consumer_byte_rate": 30e3}), (Entity.of(user="user-1"), {"consumer_byte_rate": 9e4})),
    ),
}


def both_ways(job: Job, plan: ReplayPlan, folder: Path) -> tuple[pa.Table, int]:
    """The outcomes, which must be those of all events, and the number of events that were not read."""
    read: list[int] = []

    def task(slices: Any) -> Any:
        own = list(slices)
        read.extend(each.num_rows for each in own)
        return job.task(own)

    found = replay_tables(run_here(replace(job, task=task), folder), plan)
    whole = replay_tables(run_here(replace(job, suffices=None), folder), plan)
    assert found.entities.equals(whole.entities)
    assert found.whatif.equals(whole.whatif)
    return found.whatif, open_table(folder).count - sum(read)


@pytest.mark.parametrize("name", LIMITS)
def test_counts_give_the_rows_that_the_events_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("kafka_quotas.pipeline.engine.job._CLIENTS_IN_TASK", 10)  # several tasks of counts
    folder = events_folder(tmp_path / "data", random_events(1_500, seed=6, clients=60), ingests=2)
    plan = ReplayPlan(proposals=LIMITS[name])
    whatif, unread = both_ways(replay_job(plan), plan, folder)
    assert unread > 10
    assert sum(whatif["throttled_n"].to_pylist()) > 10


@pytest.mark.parametrize(
    "plan",
    [
        ReplayPlan(proposals=LIMITS["produce"], window=QuotaWindow(samples=1)),
        ReplayPlan(
            proposals=(
                Proposal(
                    name="changing",
                    entries=((PAIR, {"producer_byte_rate": 1e9}),),
                    later=((BASE_MS + 60_000, proposal("changing", (PAIR, {"producer_byte_rate": 1e3}))),),
                ),
            )
        ),
    ],
)
def test_every_client_is_replayed_where_no_bound_holds(tmp_path: Path, plan: ReplayPlan) -> None:
    folder = events_folder(tmp_path / "data", random_events(300, seed=6))
    charged = [figures["produce_events"] > 0 for figures in client_figures(open_table(folder).snapshot).to_pylist()]
    assert not (are_unreached(client_figures(open_table(folder).snapshot), plan) & np.array(charged)).any()
    both_ways(replay_job(plan), plan, folder)


def test_a_second_that_two_ingests_share_counts_as_a_whole(tmp_path: Path) -> None:
    rows = [{"ts_ms": BASE_MS + step, "bytes": 6_000} for step in (0, 700, 5_000, 5_900, 90_000)]
    folder = events_folder(tmp_path / "data", rows, ingests=2)  # by turns
    (found,) = client_figures(open_table(folder).snapshot).to_pylist()
    assert found["produce_peak"] == 12_000
    assert (found["produce_events"], found["produce_amount"]) == (5, 30_000)
    assert (found["produce_first_ms"], found["produce_last_ms"]) == (BASE_MS, BASE_MS + 90_000)
    apart = [{**row, "ts_ms": BASE_MS + 3_600_000 * place} for place, row in enumerate(rows)]
    lake = Lake(url=str(folder))
    snapshot = FolderSnapshot.of(lake)
    for place, row in enumerate(apart, start=3):
        snapshot = add(lake, snapshot, [{**row, "user": "bob"}], place)
    assert client_figures(snapshot).to_pylist()[-1]["produce_peak"] in (6_000, 12_000)
    assert sorted(each["produce_peak"] for each in client_figures(snapshot).to_pylist()) == [6_000, 12_000]


def add(lake: Lake, before: FolderSnapshot, rows: list[dict[str, Any]], ingest: int) -> FolderSnapshot:
    """An ingest of rows."""
    events = sorted_by_client(events_table(rows, ingest=ingest))
    lake.commit_files(EVENTS, write_events(lake, events))
    lake.append(CLIENTS, clients_of(events))
    return added(before, ingest=ingest, events=len(rows))


def test_tasks_of_counts_keep_clients_together_that_may_share_a_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_quotas.pipeline.engine.job._CLIENTS_IN_TASK", 3)
    events = open_table(events_folder(tmp_path / "data", random_events(500, clients=60)))
    job = replay_job(ReplayPlan(proposals=(proposal("a", (USER, {"producer_byte_rate": 1e9})),)))
    rest, left = without_events(job, events)
    assert (rest.count, sum(each.num_rows for each in left)) == (0, len(client_figures(events.snapshot)))
    users = [{(row["broker_id"], row["user"]) for row in each.to_pylist()} for each in left]
    assert sum(map(len, users)) == len(set().union(*users)) > 3
