"""Replays of groups of clients, against a daemon's limiters and against the replay without groups."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from tests.support.pipeline.events import BASE_MS, events_table, proposal, random_events

from kafka_quotas.core.groups.group import Group, GroupMember, GroupRates, GroupTree
from kafka_quotas.core.metrics.throttle_time import RETRY_BACKOFF_MS
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.resolution.quota_resolver import Bucket
from kafka_quotas.enforcement.config.client_policy import PolicyFile
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.jobs.replay import Model, ReplayPlan, replay_task

USERS = proposal(
    "users",
    (Entity.of(user=None), {"producer_byte_rate": 20_000.0, "consumer_byte_rate": 5_000.0, "request_percentage": 0.2}),
    (Entity.of(user="user-1"), {"producer_byte_rate": 3_000.0}),
    (Entity.of(user="user-2", client_id="client-7"), {"controller_mutation_rate": 1.0}),
)
GROUPS = (
    Group(
        name="team",
        producer_byte_rate=16_000.0,
        consumer_byte_rate=9_000.0,
        request_percentage=0.4,
        controller_mutation_rate=2.0,
    ),
    Group(
        name="team/app",
        members=(GroupMember(user="user-1"), GroupMember(user="user-2")),
        producer_byte_rate=9_000.0,
        guaranteed=GroupRates(producer_byte_rate=6_000.0, consumer_byte_rate=5_000.0, controller_mutation_rate=1.0),
    ),
    Group(
        name="team/app/client",
        members=(GroupMember(client_id_prefix="client-1"),),
        guaranteed=GroupRates(producer_byte_rate=5_000.0, request_percentage=0.3),
        controller_mutation_rate=1.5,
    ),
    Group(name="team/rest", members=(GroupMember(user="user-0"), GroupMember(user="user-3"))),
    Group(name="other", members=(GroupMember(user="user-4"),), producer_byte_rate=8_000.0),
)
AMOUNTS = {
    QuotaType.PRODUCE: ("bytes", 1.0),
    QuotaType.FETCH: ("bytes", 1.0),
    QuotaType.REQUEST: ("thread_ms", 0.1),
    QuotaType.CONTROLLER_MUTATION: ("mutations", 1.0),
}


def replayed(rows: list[dict], *proposals: Proposal, slices: int = 1, spans: bool = False) -> list[dict]:
    """The rows of a replay in N slices of whole seconds."""
    events = events_table(rows).sort_by("ts_ms")
    seconds = (events["ts_ms"].to_numpy() - BASE_MS) // 1000
    borders = [int((seconds < 120 * part // slices).sum()) for part in range(slices)] + [events.num_rows]
    parts = [events.slice(begin, end - begin) for begin, end in pairwise(borders)]
    found = replay_task(parts, ReplayPlan(proposals=proposals, throttle_spans=spans)).to_pylist()
    return sorted(found, key=repr)


def is_of_group(row: dict) -> bool:
    return row["user"].startswith(":")


def charged(rows: list[dict], quota_type: QuotaType, broker: int) -> list[tuple[int, float, str, str]]:
    """The charges of a type at a broker in the order in which they are replayed."""
    column, factor = AMOUNTS[quota_type]
    return sorted(
        (row["ts_ms"], (row[column] or 0) * factor, row["user"], row["client_id"])
        for row in rows
        if row["broker_id"] == broker
        and not row["is_exempt"]
        and (row["thread_ms"] is not None if quota_type is QuotaType.REQUEST else row["quota_type"] == quota_type.value)
    )


def daemon_decisions(
    events: list[tuple[int, float, str, str]], quota_type: QuotaType, model: Model
) -> tuple[dict[Bucket, Counter[str]], dict[str, Counter[str]]]:
    """What a daemon's limiters do to each client's bucket, and what each group's limit requires, event by event."""
    registry = QuotaRegistry(QuotaWindow(samples=11, window_s=1))
    registry.replace(PolicyFile(groups=GroupTree(GROUPS)))
    key = quota_type.key.name
    registry.alter({entity: {quota_type: quotas[key]} for entity, quotas in USERS.entries if key in quotas})
    broker, limits = registry.broker(1), registry.limits[quota_type]
    clients = {each[2:]: broker.client(*each[2:]).limiters[quota_type] for each in events}
    lanes: dict[Bucket, list[tuple[int, float, str, str]]] = {}
    for each in events:
        lanes.setdefault(limits.bucket(*each[2:]) if limits.enabled else each[2:], []).append(each)
    if model is Model.OPEN:  # everybody comes when recorded, as if alone
        waiting = [(event[0], event, event[1], bucket) for bucket, own in lanes.items() for event in own]
        lanes = {bucket: [] for bucket in lanes}
    else:
        waiting = [(own[0][0], own[0], own[0][1], bucket) for bucket, own in lanes.items()]
        lanes = {bucket: own[1:] for bucket, own in lanes.items()}
    of_clients: dict[Bucket, Counter[str]] = {bucket: Counter() for bucket in lanes}
    of_groups: dict[str, Counter[str]] = {group.name: Counter() for group in GROUPS}
    while waiting:
        waiting.sort()
        now_ms, event, rest, bucket = waiting.pop(0)
        limiter = clients[event[2:]]
        most = limiter.max_value(now_ms) if quota_type is QuotaType.FETCH else None
        value = min(rest, most or rest)
        if quota_type is QuotaType.CONTROLLER_MUTATION:
            refusal = limiter.mutation_quota(strict=True).record(value, now_ms)
            refused, throttle_ms = refusal is not None, 0 if refusal is None else refusal.throttle_ms
        else:
            throttle_ms = limiter.record(value, now_ms)
            refused = throttle_ms > 0 and quota_type is QuotaType.FETCH
        if refused and quota_type is QuotaType.FETCH:
            limiter.unrecord(value, now_ms)
        own = of_clients[bucket]
        own.update(throttle_ms=throttle_ms, refused_n=refused)
        if (throttle_ms or refused) and limiter.bucket is not None and limiter.bucket[0] == ":group":
            of_groups[limiter.bucket[1]].update(throttle_ms=throttle_ms, refused_n=refused)
        wait_ms = max(throttle_ms, RETRY_BACKOFF_MS) if refused and quota_type is not QuotaType.FETCH else throttle_ms
        if (not refused and value < rest) or (refused and model is Model.CLOSED):
            waiting.append((now_ms + wait_ms, event, rest if refused else rest - value, bucket))
            continue
        own.update(n=1, delay_ms=now_ms - event[0])
        if lanes[bucket]:
            following = lanes[bucket].pop(0)
            waiting.append((max(following[0], now_ms + wait_ms), following, following[1], bucket))
    return of_clients, of_groups


@pytest.mark.parametrize("quota_type", list(AMOUNTS))
@pytest.mark.parametrize("model", list(Model))
def test_groups_hold_back_whom_the_limiters_of_a_daemon_hold_back(quota_type: QuotaType, model: Model) -> None:
    rows, figures = random_events(1_500, seed=7), ("throttle_ms", "refused_n")
    found = [row for row in replayed(rows, replace(USERS, groups=GROUPS)) if row["model"] == model]
    for broker in (1, 2):
        of_clients, of_groups = daemon_decisions(charged(rows, quota_type, broker), quota_type, model)
        own = [row for row in found if (row["broker_id"], row["quota_type"]) == (broker, quota_type.value)]
        assert {
            (row["user"], row["client_id"]): {name: row[name] for name in ("n", "delay_ms", *figures)}
            for row in own
            if not is_of_group(row)
        } == {name: {each: counts[each] for each in ("n", "delay_ms", *figures)} for name, counts in of_clients.items()}
        shown = {row["client_id"]: row for row in own if is_of_group(row)}
        assert shown["team"]["throttle_ms"] > 0
        assert {name: [row[each] for each in figures] for name, row in shown.items()} == {
            name: [of_groups[name][each] for each in figures] for name in shown
        }
        assert all(not of_groups[name] for name in of_groups.keys() - shown.keys())


@pytest.mark.parametrize("slices", [1, 5])
def test_groups_that_hold_back_nobody_change_nothing(slices: int) -> None:
    rows = random_events(2_500, seed=8)
    rates = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e9}
    everybody = Group(name="all", members=(GroupMember(user_pattern="*"),), controller_mutation_rate=1e9, **rates)
    found = replayed(rows, replace(USERS, groups=(everybody,)), slices=slices, spans=True)
    assert [row for row in found if not is_of_group(row)] == replayed(rows, USERS, spans=True)
    groups = [row for row in found if is_of_group(row)]
    assert {(row["client_id"], row["quota_type"]) for row in groups} == {("all", each.value) for each in AMOUNTS}
    assert not any(row["throttled_n"] or row["spans"] for row in groups)
    for each in groups:
        members = [
            row["n"]
            for row in found
            if not is_of_group(row) and all(row[name] == each[name] for name in ("broker_id", "quota_type", "model"))
        ]
        assert each["n"] == sum(members)


def test_slices_make_no_difference() -> None:
    rows, proposed = random_events(1_500, seed=3), replace(USERS, groups=GROUPS)
    whole = replayed(rows, proposed, spans=True)
    assert whole == replayed(rows, proposed, slices=6, spans=True)
    for row in whole:
        assert sum(span["events"] for span in row["spans"]) == row["throttled_n"]
        assert all(one["end_ms"] < other["start_ms"] for one, other in pairwise(row["spans"]))


def test_below_its_guaranteed_rate_a_group_is_not_held_back_by_its_siblings() -> None:
    groups = (
        Group(name="team", producer_byte_rate=10_000.0),
        Group(name="team/kept", members=(GroupMember(user="kept"),), guaranteed=GroupRates(producer_byte_rate=2_000.0)),
        Group(name="team/rest", members=(GroupMember(user="busy"), GroupMember(user="late"))),
    )
    rows = [{"ts_ms": BASE_MS, "user": "busy", "bytes": 50_000}]
    rows += [{"ts_ms": BASE_MS + 1000, "user": user, "bytes": 1_000} for user in ("kept", "late")]
    found = {
        (row["user"], row["client_id"]): row
        for row in replayed(rows, replace(proposal("groups"), groups=groups))
        if row["model"] == "open"
    }
    # 50 kB at 10 kB/s, of which one second's worth is free; a second later 1 kB more each.
    assert {name: (row["n"], row["throttle_ms"], row["quota"]) for name, row in found.items()} == {
        ("busy", "app"): (1, 4_000, None),
        ("kept", "app"): (1, 0, None),
        ("late", "app"): (1, 3_200, None),
        (":group", "team"): (3, 7_200, 10_000.0),
    }


def test_quotas_that_change_meanwhile_leave_groups_as_they_are() -> None:
    tighter = proposal("users", (Entity.of(user=None), {"producer_byte_rate": 1_000.0}))
    rows = [{"ts_ms": BASE_MS + step * 1000, "bytes": 5_000} for step in range(20)]
    group = Group(name="all", members=(GroupMember(user="alice"),), producer_byte_rate=1e9)
    changing = replace(proposal("users"), later=((BASE_MS + 10_000, tighter),))
    without, found = (replayed(rows, each) for each in (changing, replace(changing, groups=(group,))))
    assert any(row["throttled_n"] for row in without if row["model"] == "open")
    assert [row for row in found if not is_of_group(row) and row["model"] == "open"] == [
        row for row in without if row["model"] == "open"
    ]
