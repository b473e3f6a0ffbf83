"""What the command knows of a batch, from the summaries of its parts, and what a viewer sees."""

import json
from typing import Any

import duckdb
import pyarrow as pa

from kafka_quotas.pipeline.stream.batch import USED_SHARE, Batch

LIMITED = [(50.0, None), (10.0, 100.0), (1.0, 0.0), (90.0, 100.0), (0.0, 0.0)]
FIGURES = {"events": 3, "late": 1, "unreadable": 0, "buckets": 2}


def test_a_batch_adds_up_its_parts_and_has_the_latest_clock_of_each_broker() -> None:
    about: dict[str, Any] = {"batch_id": 5, "stream": "s", "window": [11, 1], "now_ms": 1000, "parts": 2}
    summaries = [
        json.dumps(about | FIGURES | {"clocks": [["c", 1, 700], ["c", 2, 100]]}),
        json.dumps(about | FIGURES | {"clocks": [["c", 1, 600], ["d", 1, 50]]}),
    ]
    assert Batch.of(summaries) == Batch(
        clocks={("c", 1): 700, ("c", 2): 100, ("d", 1): 50},
        **{name: 2 * figure for name, figure in FIGURES.items()},
        **about | {"window": (11, 1)},
    )
    assert Batch.of([]) is None


def test_buckets_over_a_quota_of_zero_come_first_and_those_without_a_quota_last() -> None:
    rates, quotas = zip(*LIMITED, strict=True)
    connection = duckdb.connect()
    connection.register("live", pa.table({"rate": rates, "quota": pa.array(quotas, pa.float64())}))
    found = connection.execute(f"SELECT rate, quota FROM live ORDER BY {USED_SHARE} DESC").fetchall()
    assert found == [(1.0, 0.0), (90.0, 100.0), (10.0, 100.0), (0.0, 0.0), (50.0, None)]
