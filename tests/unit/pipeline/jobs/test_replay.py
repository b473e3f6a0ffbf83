"""Replays of recorded events on this machine, against `core` event by event."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.support.pipeline.events import (
    BASE_MS,
    events_folder,
    events_table,
    proposal,
    random_events,
    run_locally,
)

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.core.quotas.simulation import Algorithm, Event, EventOperation, new_limiter, replay
from kafka_quotas.pipeline.buckets.proposal import DefaultScope, parse_sweep
from kafka_quotas.pipeline.jobs.replay import Model, ReplayPlan, replay_job, replay_task

PAIRS = proposal("pairs", (Entity.of(user=None, client_id=None), {"producer_byte_rate": 9_000.0}))
USERS = proposal(
    "users",
    (Entity.of(user=None), {"producer_byte_rate": 20_000.0, "request_percentage": 0.2}),
    (Entity.of(user="user-1"), {"producer_byte_rate": 3_000.0, "consumer_byte_rate": 4_000.0}),
    (Entity.of(client_id=None), {"controller_mutation_rate": 1.0}),
)


def replayed(folder: Path, *proposals, models=tuple(Model)) -> pa.Table:
    return run_locally(replay_job(ReplayPlan(proposals=proposals, models=models)), folder)


@pytest.mark.parametrize("slices", [1, 7])
def test_quotas_that_change_meanwhile_throttle_as_at_a_broker_that_got_the_changes(slices: int) -> None:
    rows = [row for row in random_events(2_500, seed=5) if row["quota_type"] == "produce" and not row["is_exempt"]]
    own, pairs = Entity.of(user="user-1"), Entity.of(user=None, client_id=None)
    key, of_users = "producer_byte_rate", Entity.of(user=None)
    states: list[dict[Entity, float]] = [
        {},
        {of_users: 20_000.0, own: 3_000.0},
        {of_users: 5_000.0, own: 9_000.0, pairs: 4_000.0},
        {of_users: 5_000.0},
    ]
    times_ms = [BASE_MS, BASE_MS + 25_000, BASE_MS + 60_000, BASE_MS + 90_000]
    first, *later = (proposal("any", *((entity, {key: limit}) for entity, limit in each.items())) for each in states)
    changing = replace(first, later=tuple(zip(times_ms[1:], later, strict=True)))
    events = events_table(rows).sort_by("ts_ms")
    starts = np.searchsorted(
        events["ts_ms"].to_numpy() // 1000, np.linspace(0, 120, slices + 1)[:-1] // 1 + BASE_MS // 1000
    )
    parts = [events.slice(begin, end - begin) for begin, end in pairwise([*starts.tolist(), events.num_rows])]
    plan = ReplayPlan(proposals=(changing,), models=(Model.OPEN,))

    tables = replay_task(parts, plan)

    for broker in (1, 2):
        manager, expected, stored, left = (
            ClientQuotaManager(QuotaType.PRODUCE),
            0,
            {},
            list(zip(times_ms, states, strict=True)),
        )
        for row in sorted(rows, key=lambda row: (row["ts_ms"], row["bytes"])):
            while left and row["ts_ms"] >= left[0][0]:
                _, state = left.pop(0)
                for entity in {*stored, *state}:
                    if stored.get(entity) != state.get(entity):
                        manager.limits.update(entity, state.get(entity))
                stored = state
            if row["broker_id"] == broker:
                client = row["user"], row["client_id"]
                expected += manager.record_and_throttle_ms(*client, float(row["bytes"]), row["ts_ms"])
        assert expected > 100_000
        assert sum(row["throttle_ms"] for row in rows_of(tables, broker_id=broker, quota_type="produce")) == expected


def rows_of(found: pa.Table, **wanted) -> list[dict]:
    return [row for row in found.to_pylist() if all(row[name] == value for name, value in wanted.items())]


def test_every_produce_throttle_is_the_one_of_a_broker_with_these_quotas(tmp_path: Path) -> None:
    rows = random_events(2_500)
    tables = replayed(events_folder(tmp_path / "data", rows, ingests=3), USERS, models=(Model.OPEN,))
    for broker in (1, 2):
        manager = ClientQuotaManager(QuotaType.PRODUCE)
        for entity, quotas in USERS.entries:
            if "producer_byte_rate" in quotas:
                manager.limits.update(entity, quotas["producer_byte_rate"])
        throttles: dict[str, list[int]] = {}
        charged = [
            row
            for row in rows
            if row["broker_id"] == broker and row["quota_type"] == "produce" and not row["is_exempt"]
        ]
        for row in sorted(charged, key=lambda row: (row["ts_ms"], row["bytes"])):
            client = row["user"], row["client_id"]
            throttle_ms = manager.record_and_throttle_ms(*client, float(row["bytes"]), row["ts_ms"])
            throttles.setdefault(row["user"], []).append(throttle_ms)
        found = rows_of(tables, broker_id=broker, quota_type="produce")
        assert {row["user"]: row["throttle_ms"] for row in found} == {
            user: sum(of_user) for user, of_user in throttles.items()
        }
        assert {row["user"]: row["throttled_n"] for row in found} == {
            user: sum(each > 0 for each in of_user) for user, of_user in throttles.items()
        }
        assert sum(row["throttled_n"] for row in found) > 0


def test_a_closed_loop_is_the_one_client_of_core(tmp_path: Path) -> None:
    rows = [row for row in random_events(2_000, seed=4) if row["quota_type"] == "produce" and not row["is_exempt"]]
    tables = replayed(events_folder(tmp_path / "data", rows), PAIRS)
    by_client: dict[tuple, list[dict]] = {}
    for row in rows:
        by_client.setdefault((row["broker_id"], row["user"], row["client_id"]), []).append(row)
    for (broker, user, client_id), events in by_client.items():
        (found,) = rows_of(tables, broker_id=broker, user=user, client_id=client_id, model="closed")
        limit = 9_000.0 if client_id else 2.0**63  # no default reaches an empty client-id
        limiter = new_limiter(Algorithm.RATE, bound=limit, samples=11, window_ms=1000)
        ordered = sorted(events, key=lambda row: (row["ts_ms"], row["bytes"]))
        decisions = list(
            replay(
                (Event(t_ms=row["ts_ms"], amount=float(row["bytes"])) for row in ordered),
                limiter,
                usual=EventOperation.RECORD,
                closed_loop=True,
            )
        )
        throttled = [each for each in decisions if each.outcome.throttle_ms > 0]
        assert found["n"] == len(events)
        assert found["throttle_ms"] == sum(each.outcome.throttle_ms for each in throttled)
        assert found["max_ms"] == max((each.outcome.throttle_ms for each in throttled), default=0)
        assert found["first_ms"] == min((each.t_ms for each in throttled), default=None)
        assert found["delay_ms"] == sum(each.t_ms - each.due_ms for each in decisions)
        assert found["quota"] == (9_000.0 if client_id else None)


def test_a_slow_fetch_is_taken_back_and_a_mutation_refused(tmp_path: Path) -> None:
    rows = [
        {"ts_ms": BASE_MS + step * 100, "quota_type": "fetch", "bytes": 30_000, "user": "user-1"} for step in range(20)
    ] + [{"ts_ms": BASE_MS + step, "quota_type": "controller_mutation", "mutations": 9} for step in range(4)]
    tables = replayed(events_folder(tmp_path / "data", rows), USERS)
    opened, closed = (rows_of(tables, quota_type="fetch", model=model)[0] for model in ("open", "closed"))
    assert opened["refused_n"] == opened["throttled_n"] == 19
    assert opened["achieved_rate"] < 30_000
    assert closed["refused_n"] >= 19
    assert 1_000 < closed["achieved_rate"] <= 4_000  # whole fetches of 30 kB leave some of each window unused
    mutation = rows_of(tables, quota_type="controller_mutation", model="open")[0]
    assert (mutation["algorithm"], mutation["refused_n"], mutation["first_ms"]) == ("token-bucket", 2, BASE_MS + 2)


def test_a_sweep_in_one_pass_gives_what_its_steps_give_alone(tmp_path: Path) -> None:
    folder = events_folder(tmp_path / "data", random_events(1_500, seed=9))
    steps = parse_sweep("producer_byte_rate=1kB..100kB", DefaultScope.PAIR, steps=5)
    together = replayed(folder, *steps).to_pylist()
    alone = [{**row, "proposal": n} for n, step in enumerate(steps) for row in replayed(folder, step).to_pylist()]
    assert sorted(together, key=repr) == sorted(alone, key=repr)
    assert [step.name for step in steps] == [
        f"producer_byte_rate={value}" for value in (1000, 3162, 10000, 31623, 100000)
    ]


def test_a_sweep_keeps_what_a_base_has_besides(tmp_path: Path) -> None:
    (step, *_) = parse_sweep("producer_byte_rate=1kB,2kB", DefaultScope.USER, USERS)
    assert dict(step.entries)[Entity.of(user=None)] == {"producer_byte_rate": 1000.0, "request_percentage": 0.2}
    assert dict(step.entries)[Entity.of(user="user-1")]["producer_byte_rate"] == 3_000.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("producer_byte_rate", "names no quota key"),
        ("produce_byte_rate=1..2", "names no quota key"),
        ("connection_creation_rate=1..2", "names no quota key"),
        ("producer_byte_rate=2MB..1MB", "is empty"),
        ("producer_byte_rate=0..1MB", "above 0"),
        ("producer_byte_rate=x..1MB", "not a size"),
    ],
)
def test_a_sweep_that_means_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_sweep(text, DefaultScope.PAIR)


def test_fractions_sweep_too() -> None:
    steps = parse_sweep("request_percentage=0.5..50", DefaultScope.PAIR, steps=3)
    assert [value for step in steps for _, own in step.entries for value in own.values()] == [0.5, 5.0, 50.0]


def test_no_events_and_no_quotas_give_empty_tables(tmp_path: Path) -> None:
    assert replayed(events_folder(tmp_path / "none", []), PAIRS).num_rows == 0
    assert replayed(events_folder(tmp_path / "some", random_events(20)), proposal("nothing")).num_rows == 0


def test_a_half_written_file_is_named(tmp_path: Path) -> None:
    folder = events_folder(tmp_path / "data", random_events(200))
    file = next((folder / "events").rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-60])
    with pytest.raises(KafkaQuotasError, match=r"reading .*events failed: .*parquet"):
        replayed(folder, PAIRS)
