"""Open events in memory, and rows of clients of known rates."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kafka_quotas.pipeline.engine.events import Events, RecordedEvents
from kafka_quotas.pipeline.engine.sql import DuckTables
from kafka_quotas.pipeline.tables.packed_events import NAMES, client_number
from kafka_quotas.pipeline.tables.schemas import EVENTS, PACKED_EVENTS, TableSchema

SECONDS = 120
START_MS = 1_700_000_000_000
Row = dict[str, Any]


def memory_events(rows: Iterable[Row]) -> Events:
    """Open events in memory, over which each job is one task."""
    named = [{"client": client_number(**{name: row[name] for name in NAMES}), **row} for row in rows]
    schema = pa.schema([field for field in EVENTS.arrow_schema() if field.name not in ("dt", "ingest")])
    events = pa.Table.from_pylist(named, schema=schema).sort_by("ts_ms")
    times_ms = events["ts_ms"].to_pylist()
    tables = DuckTables()

    def table(asked: TableSchema) -> str:
        own = events.append_column("total_bytes", events["bytes"])
        return tables.add(asked.name, own if asked is PACKED_EVENTS else asked.arrow_schema().empty_table())

    recorded = RecordedEvents(
        count=len(times_ms),
        first_ms=min(times_ms, default=None),
        last_ms=max(times_ms, default=None),
        seconds=max(len({at_ms // 1000 for at_ms in times_ms}), 1),
    )
    return Events(
        tables=tables, recorded=recorded, run=lambda job: tables.add(job.name, job.task([events])), table=table
    )


def produced(
    user: str,
    bytes_per_second: float,
    *,
    broker_id: int = 1,
    cluster: str = "c",
    burst: int = 1,
    requests: int = 10,
    seconds: int = SECONDS,
    start_ms: int = START_MS,
) -> list[Row]:
    """Some requests in every second, `burst` times as large in every tenth second."""
    return [
        {
            "cluster": cluster,
            "broker_id": broker_id,
            "ts_ms": start_ms + second * 1000 + number * 1000 // requests,
            "user": user,
            "client_id": f"{user}-app",
            "ip": "",
            "quota_type": "produce",
            "bytes": int(bytes_per_second * (burst if second % 10 == 9 else 1) / requests),
            "thread_ms": None,
            "mutations": 0,
            "throttle_ms": 0,
            "api_key": 0,
            "is_exempt": False,
            "is_estimated": False,
            "is_thread_estimated": False,
            "connection": user,
            "src_file": "",
            "src_offset": 0,
        }
        for second in range(seconds)
        for number in range(requests)
    ]
