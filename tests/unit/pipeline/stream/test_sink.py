"""What a viewer of a stream sees."""

import pyarrow as pa

from kafka_quotas.pipeline.stream.sink import NEAREST, nearest

LIMITED = [(50.0, None), (10.0, 100.0), (1.0, 0.0), (90.0, 100.0), (0.0, 0.0)]


def shown(buckets: list[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    rates, quotas = zip(*buckets, strict=True)
    rows = nearest(pa.table({"rate": rates, "quota": pa.array(quotas, pa.float64())}))
    return list(zip(rows["rate"].to_pylist(), rows["quota"].to_pylist(), strict=True))


def test_buckets_over_a_quota_of_zero_come_first_and_those_without_a_quota_last() -> None:
    assert shown(LIMITED) == [(1.0, 0.0), (90.0, 100.0), (10.0, 100.0), (0.0, 0.0), (50.0, None)]


def test_only_the_nearest_are_shown() -> None:
    assert shown([*LIMITED, *[(0.0, 1.0)] * 100])[:3] == [(1.0, 0.0), (90.0, 100.0), (10.0, 100.0)]
    assert len(shown([*LIMITED, *[(0.0, 1.0)] * 100])) == NEAREST
