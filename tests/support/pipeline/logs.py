"""Lines of request logs as brokers write them, and the rows that became of files."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka_quotas.pipeline.tables.lake import Lake, lake_url
from kafka_quotas.pipeline.tables.packed_events import PackedEvents, unpack
from kafka_quotas.pipeline.tables.schemas import EVENTS, TableSchema

ROOT = Path(__file__).parents[3]
SAMPLES = {
    1: ROOT / "examples/request-log/1/kafka-request.log.gz",
    2: ROOT / "examples/request-log/2/kafka-request.log.gz",
}
"""What brokers wrote: Kafka 4.3.1 and Kafka 3.9.2, by the broker id that the examples give them."""
SAMPLE_LINES = 1100


def sample_lines(broker_id: int) -> list[bytes]:
    """The lines of a sample, without their ends."""
    return gzip.decompress(SAMPLES[broker_id].read_bytes()).splitlines()


def sample_entries(broker_id: int) -> list[dict[str, Any]]:
    """The same as plain JSON: an account that is independent of the parser's."""
    return [json.loads(line[line.index(b"{") : line.rindex(b"}") + 1]) for line in sample_lines(broker_id)]


def request_line(
    *,
    api_key: int = 3,
    version: int = 12,
    request: Mapping[str, Any] | None = None,
    response: Mapping[str, Any] | None = None,
    client_id: str | None = "app",
    principal: str = "User:alice",
    forwarded: bool = False,
    stamp: str = "[2026-11-21 12:00:00,500]",
    throttle_ms: int = 0,
    number: int = 0,
) -> str:
    """A line of the request log, with its end."""
    entry = {
        "isForwarded": forwarded,
        "requestHeader": {
            "requestApiKey": api_key,
            "requestApiVersion": version,
            "correlationId": number,
            "clientId": client_id,
            "requestApiKeyName": "ANY",
        },
        "request": request or {},
        "response": response or {"throttleTimeMs": throttle_ms},
        "connection": "10.0.0.1:9092-10.0.0.7:54658-5-11",
        "totalTimeMs": 0.8,
        "requestQueueTimeMs": 0.1,
        "localTimeMs": 0.25,
        "remoteTimeMs": 0.1,
        "throttleTimeMs": throttle_ms,
        "responseQueueTimeMs": 100,
        "sendTimeMs": 0.4,
        "securityProtocol": "SASL_PLAINTEXT",
        "principal": principal,
        "listener": "SASL_PLAINTEXT",
    }
    text = json.dumps(entry, separators=(",", ":"))
    return f"{stamp} DEBUG Completed request:{text} (kafka.request.logger)\n"


def log_text(count: int, *, first: int = 0) -> str:
    """So many lines, a second apart, each different."""
    return "".join(
        request_line(number=number, stamp=f"[2026-11-21 12:{number // 60:02}:{number % 60:02},500]")
        for number in range(first, first + count)
    )


def table_rows(folder: str | Path, table: TableSchema, version: int | None = None) -> list[dict[str, Any]]:
    """The rows of a table, events loose, in an order of their own."""
    lake = Lake(url=lake_url(str(folder)))
    if table is EVENTS:
        found = unpack(PackedEvents(lake, version).table(EVENTS.column_names), EVENTS.column_names)
    else:
        found = lake.table(table, version).to_pyarrow_table()
    return sorted(found.to_pylist(), key=repr)
