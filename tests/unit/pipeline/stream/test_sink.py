"""What a viewer of a stream sees."""

import duckdb
import pyarrow as pa

from kafka_quotas.pipeline.stream.sink import USED_SHARE

LIMITED = [(50.0, None), (10.0, 100.0), (1.0, 0.0), (90.0, 100.0), (0.0, 0.0)]


def test_buckets_over_a_quota_of_zero_come_first_and_those_without_a_quota_last() -> None:
    rates, quotas = zip(*LIMITED, strict=True)
    connection = duckdb.connect()
    connection.register("live", pa.table({"rate": rates, "quota": pa.array(quotas, pa.float64())}))
    found = connection.execute(f"SELECT rate, quota FROM live ORDER BY {USED_SHARE} DESC").fetchall()
    assert found == [(1.0, 0.0), (90.0, 100.0), (10.0, 100.0), (0.0, 0.0), (50.0, None)]
