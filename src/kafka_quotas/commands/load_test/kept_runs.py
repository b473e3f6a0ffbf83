"""Compares two runs of a load test that were kept.

Reads a kept run of a load test again, for its report.
"""

from pathlib import Path

from kafka_quotas.loadtest.judge.comparison import Limits, RunComparison, compare
from kafka_quotas.loadtest.result.reading import read_run
from kafka_quotas.loadtest.result.result import LoadResult


def compare_runs(first: Path, second: Path, limits: Limits) -> RunComparison:
    """How the second run stands to the first; each is a folder, or a run.json.

    Raises `UsageError` where there is no run, `KafkaQuotasError` for a file that is none.
    """
    return compare(read_run(first), read_run(second), limits)


def kept_run(place: Path) -> LoadResult:
    """The run of a folder, or of a run.json.

    Raises `UsageError` where there is no run, `KafkaQuotasError` for a file that is none.
    """
    return read_run(place)
