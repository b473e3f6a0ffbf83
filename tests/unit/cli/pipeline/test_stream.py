"""What `pipeline stream` shows."""

from kafka_quotas.cli.pipeline.stream import used_share


def test_buckets_over_a_quota_of_zero_come_first_and_those_without_a_quota_last() -> None:
    buckets = [(50.0, None), (10.0, 100.0), (1.0, 0.0), (90.0, 100.0), (0.0, 0.0)]
    ranked = sorted(buckets, key=lambda each: used_share(*each), reverse=True)
    assert ranked == [(1.0, 0.0), (90.0, 100.0), (10.0, 100.0), (0.0, 0.0), (50.0, None)]
