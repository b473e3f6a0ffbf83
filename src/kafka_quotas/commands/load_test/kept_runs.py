"""Kept runs of a load test: reading one for its report, and comparing two."""

from pathlib import Path

from kafka_quotas.loadtest.judge.comparison import Limits, RunComparison, compare
from kafka_quotas.loadtest.result.reading import read_run
from kafka_quotas.loadtest.result.result import LoadResult


def compare_runs(first: Path, second: Path, limits: Limits) -> RunComparison:
    """Compare the second run with the first, each given as a folder or a run.json.

    Raises:
        UsageError: There is no run.
        KafkaQuotasError: A file is no run.
    """
    return compare(read_run(first), read_run(second), limits)


def kept_run(place: Path) -> LoadResult:
    """Read the run of a folder, or of a run.json.

    Raises:
        UsageError: There is no run.
        KafkaQuotasError: The file is no run.
    """
    return read_run(place)
