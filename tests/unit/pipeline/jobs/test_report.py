"""The usage of clients over their brokers, in a report."""

import math
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.support.pipeline.events import events_table, proposal

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.sql import DuckTables
from kafka_quotas.pipeline.jobs.report import (
    BUSIEST_SHOWN,
    LARGEST_SHOWN,
    NEAREST_SHOWN,
    client_traffic,
    limited_traffic,
)
from kafka_quotas.pipeline.jobs.usage.job import UsagePlan, UsageTables, usage_task

FETCHES = "fetch"


def used(rows: list[dict[str, Any]], quotas: Proposal) -> UsageTables:
    tables = DuckTables()
    return UsageTables.of(
        tables, tables.add("usage", usage_task([events_table(rows)], UsagePlan(quotas=quotas, seconds=1)))
    )


def test_a_client_is_nearest_to_its_limit_where_that_is_0() -> None:
    in_force = proposal("in force", (Entity.of(user="alice"), {"producer_byte_rate": 1000.0}))
    found = used([{"broker_id": broker_id, "bytes": 100 * broker_id} for broker_id in (1, 2)], in_force)
    rows = found.tables.query(f"SELECT * FROM {found.buckets} ORDER BY broker_id")
    rows = rows.set_column(rows.column_names.index("quota"), "quota", pa.array([0.0, 1000.0]))
    tables = replace(found, buckets=found.tables.add("changed", rows))
    found = limited_traffic(tables, cluster="default", seconds=1)
    assert (found.count, found.limited, found.near) == (1, 1, 1)
    (nearest,) = found.nearest
    assert (nearest.quota, nearest.used, nearest.average) == (0.0, math.inf, 300.0)
    assert found.nearest_of[QuotaType.PRODUCE] == found.nearest


def test_of_many_clients_a_few_are_named_and_all_are_counted() -> None:
    rows = [
        {"user": f"user-{client}", "quota_type": kind, "bytes": client, "throttle_ms": int(client < 7)}
        for client in range(1, 100)
        for kind in ("produce", FETCHES)
    ]
    in_force = proposal("in force", (Entity.of(user=None, client_id=None), {"producer_byte_rate": 9.0}))
    clients = client_traffic(used(rows, in_force), cluster="default", seconds=2)
    assert (clients.clients, clients.throttled, clients.longest_share) == (99, 6, 1.0)
    assert clients.amounts[QuotaType.PRODUCE] == clients.amounts[QuotaType.FETCH] == 99 * 50
    assert [each.average for each in clients.largest[QuotaType.FETCH]] == [
        n / 2 for n in range(99, 99 - LARGEST_SHOWN, -1)
    ]
    assert clients.busiest == tuple((f"user-{n}", "app") for n in range(99, 99 - BUSIEST_SHOWN, -1))
    limited = limited_traffic(used(rows, in_force), cluster="default", seconds=2)
    assert (limited.count, limited.limited) == (99, 99)
    assert [each.user for each in limited.nearest] == [f"user-{n}" for n in range(99, 99 - NEAREST_SHOWN, -1)]
    assert client_traffic(used(rows, in_force), cluster="other", seconds=2).clients == 0


@pytest.mark.parametrize(
    ("entity", "unexplained"),
    [
        (Entity.of(user="alice", client_id="app"), ["bob app", "bob other", "carol other"]),
        (Entity.of(user="bob"), ["alice app", "carol other"]),
        (Entity.of(user="dave"), ["alice app", "bob app", "bob other", "carol other"]),
        (Entity.of(client_id="other"), ["alice app", "bob app"]),
        (Entity.of(user=None), []),
    ],
)
def test_a_throttle_time_is_explained_by_a_limit_that_its_requests_may_fall_under(
    entity: Entity, unexplained: list[str]
) -> None:
    names = [("alice", "app"), ("bob", "app"), ("bob", "other"), ("carol", "other")]
    rows = [
        {"user": user, "client_id": client_id, "quota_type": kind, "bytes": 9, "throttle_ms": 5 * (kind == FETCHES)}
        for user, client_id in names
        for kind in ("produce", FETCHES)
    ]
    in_force = proposal("in force", (entity, {"producer_byte_rate": 1000.0}))
    found = limited_traffic(used(rows, in_force), cluster="default", seconds=1)
    left = [f"{each.user} {each.client_id}" for each in found.nearest if each.quota is None]
    assert (sorted(left), found.count - found.limited) == (unexplained, len(unexplained))
