"""Compares two runs of a load test that were kept."""

from pathlib import Path

from kafka_quotas.loadtest.comparison import Comparison, Limits, compare
from kafka_quotas.loadtest.run_reading import read_run


def compare_runs(first: Path, second: Path, limits: Limits) -> Comparison:
    """How the second run stands to the first; each is a folder, or a run.json.

    Raises `UsageError` where there is no run, `KafkaQuotasError` for a file that is none.
    """
    return compare(read_run(first), read_run(second), limits)
