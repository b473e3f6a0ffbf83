"""Reads a kept run of a load test again, for its report."""

from pathlib import Path

from kafka_quotas.loadtest.result import LoadResult
from kafka_quotas.loadtest.run_reading import read_run


def kept_run(place: Path) -> LoadResult:
    """The run of a folder, or of a run.json.

    Raises `UsageError` where there is no run, `KafkaQuotasError` for a file that is none.
    """
    return read_run(place)
