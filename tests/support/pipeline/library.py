"""The library's functions on a real Spark session: loose rows and logs in, the rows of the engines out."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.testing import assertDataFrameEqual
from tests.support.pipeline.events import events_table, proposal, random_events, run_here
from tests.support.pipeline.logs import SAMPLES

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.pipeline import pack_events, read_request_logs, recommend, replay, usage, usage_profile
from kafka_quotas.pipeline.engine.sql import DuckTables, result_columns
from kafka_quotas.pipeline.jobs.replay.task import ReplayPlan, replay_job
from kafka_quotas.pipeline.tables.arrow import arrow_frame
from kafka_quotas.pipeline.tables.schemas import WHATIF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMITS = {Entity.of(user=None, client_id=None): {"producer_byte_rate": 9_000.0}}


def require_library(session: "SparkSession", data: Path, rows: int) -> None:
    """Replay a team's own parsed logs behind three lines, and read a broker's own.

    `data` has what `random_events` makes of some `rows` with the seed 11.
    """
    loose = events_table(random_events(rows, seed=11)).drop_columns(["client", "ip", "connection", "api_key"])
    events = pack_events(arrow_frame(session, loose))
    found = replay(events, {"pairs": LIMITS})
    expected = run_here(replay_job(ReplayPlan(proposals=(proposal("pairs", *LIMITS.items()),))), data)
    tables = DuckTables()
    columns = ", ".join(result_columns(tables, WHATIF).values())
    whatif = tables.query(f"SELECT {columns} FROM {tables.add('expected', expected)}")
    times = pa.timestamp("us", tz="UTC")
    whatif = whatif.set_column(whatif.column_names.index("first_at"), "first_at", whatif["first_at"].cast(times))
    assertDataFrameEqual(found, arrow_frame(session, whatif), ignoreNullable=True)
    windows = usage(events, LIMITS).toArrow()
    assert set(windows["window_s"].to_pylist()) == {60, 3600}
    assert set(usage_profile(events).toArrow()["client_id"].to_pylist()) > {"client-1", None}
    logs = str(next(iter(SAMPLES.values())).parent.parent / "{broker_id}" / "*")
    (default, *_) = recommend(read_request_logs(session, logs, timeZone="UTC")).toArrow().to_pylist()
    assert default["kind"] == "default"
