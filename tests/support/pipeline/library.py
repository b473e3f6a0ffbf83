"""The library's functions on a real Spark session: loose rows and logs in, the rows of the engines out."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.pipeline.events import events_table, open_packed, proposal, random_events, run_locally
from tests.support.pipeline.logs import SAMPLES

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.pipeline import (
    Group,
    GroupMember,
    GroupRates,
    Proposal,
    pack_events,
    read_request_logs,
    recommend,
    replay,
    usage,
    usage_profile,
)
from kafka_quotas.pipeline.engine.events import recorded_events
from kafka_quotas.pipeline.engine.sql import DuckTables, result_columns
from kafka_quotas.pipeline.jobs.replay import ReplayPlan, replay_job
from kafka_quotas.pipeline.jobs.usage.job import UsagePlan, UsageTables, usage_job
from kafka_quotas.pipeline.tables.arrow import arrow_frame
from kafka_quotas.pipeline.tables.schemas import USAGE, USAGE_PROFILE, WHATIF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMITS = {Entity.of(user=None, client_id=None): {"producer_byte_rate": 9_000.0}}
GROUPS = Proposal(
    name="groups",
    entries=[*LIMITS.items()],
    groups=(
        Group(name="team", producer_byte_rate=16_000.0, consumer_byte_rate=9_000.0),
        Group(
            name="team/app",
            members=(GroupMember(user="user-1"), GroupMember(client_id_prefix="client-2")),
            guaranteed=GroupRates(producer_byte_rate=6_000.0),
        ),
        Group(name="team/rest", members=(GroupMember(user_pattern="user-*"),)),
    ),
)


def require_library(session: "SparkSession", data: Path, rows: int) -> None:
    """Replay a team's own parsed logs behind three lines, and read a broker's own.

    `data` has what `random_events` makes of some `rows` with the seed 11.
    """
    loose = events_table(random_events(rows, seed=11)).drop_columns(["client", "ip", "connection", "api_key"])
    events = pack_events(arrow_frame(session, loose))
    pairs = proposal("pairs", *LIMITS.items())
    tables = DuckTables()
    recorded = recorded_events(tables, tables.add("events", open_packed(data).dataset()))
    used = run_locally(usage_job(UsagePlan(quotas=pairs, seconds=recorded.seconds)), data)
    replayed, grouped = (
        run_locally(replay_job(ReplayPlan(proposals=each)), data) for each in ((pairs,), (pairs, GROUPS))
    )
    assert "team" in grouped["client_id"].to_pylist()
    own = UsageTables.of(tables, tables.add("used", used))
    context = session.sparkContext
    context.setJobGroup("library", "calls of the library")
    results = (
        (usage(events, LIMITS), own.windows, USAGE, "window_start_ms"),
        (usage_profile(events, LIMITS), own.buckets, USAGE_PROFILE, None),
        (replay(events, {"pairs": LIMITS}), tables.add("replayed", replayed), WHATIF, None),
        (replay(events, (pairs, GROUPS)), tables.add("grouped", grouped), WHATIF, None),
    )
    logs = str(next(iter(SAMPLES.values())).parent.parent / "{broker_id}" / "*")
    read = read_request_logs(session, logs, timeZone="UTC")
    assert context.statusTracker().getJobIdsForGroup("library") == [], "something ran before a result was used"
    for found, name, table, day_of in results:
        columns = result_columns(tables.dialect, table, day_of=day_of)
        expected = tables.query(f"SELECT {', '.join(columns.values())} FROM {name}")
        types = [(each, table.arrow_schema().field(each).type) for each in columns]
        arrived = found.toArrow()
        assert [(field.name, field.type) for field in arrived.schema] == types
        assert arrived.num_rows > 0
        require_equal_rows(arrived, expected.cast(pa.schema(types)), name)
    assert context.statusTracker().getJobIdsForGroup("library")
    (default, *_) = recommend(read.cache()).toArrow().to_pylist()  # it reads its events more than once
    assert default["kind"] == "default"


def require_equal_rows(one: pa.Table, other: pa.Table, where: str) -> None:
    """Compare the rows of two tables in any order."""
    exact = [field.name for field in one.schema if not pa.types.is_floating(field.type)]
    mine, theirs = (
        sorted(each.to_pylist(), key=lambda row: repr([row[name] for name in exact])) for each in (one, other)
    )
    require_equal(mine, theirs, where)


def require_equal(one: Any, other: Any, where: str) -> None:
    """Compare two values, floats to 1e-9."""
    if isinstance(one, float) and isinstance(other, float):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-12), where
    elif dataclasses.is_dataclass(one) and type(one) is type(other):
        for each in dataclasses.fields(one):
            require_equal(getattr(one, each.name), getattr(other, each.name), f"{where}.{each.name}")
    elif isinstance(one, Mapping) and isinstance(other, Mapping):
        assert one.keys() == other.keys(), where
        for name in one:
            require_equal(one[name], other[name], f"{where}.{name}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for place, pair in enumerate(zip(one, other, strict=True)):
            require_equal(*pair, f"{where}[{place}]")
    else:
        assert one == other, where
