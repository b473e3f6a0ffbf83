"""Histograms as text files: the percentile distribution of HdrHistogram's own tools, values in milliseconds.

Such files are read by HdrHistogram's plotter and by wrk2's; each holds one distribution of one client.
"""

import io
import re
from collections.abc import Iterator

from kafka_quotas.loadtest.durations import Durations
from kafka_quotas.loadtest.result import EntityResult, LoadResult

SUFFIX = ".hgrm"
_US_PER_MS = 1000.0
_NAME_LENGTH = 60


def hgrm_files(result: LoadResult) -> Iterator[tuple[str, str]]:
    """Names and texts of the files of a run, one for every distribution that holds something.

    A run that was read from a file has none: its histograms are not in there.
    """
    taken: set[str] = set()
    for entity in result.entities:
        base = _file_name(entity, taken)
        for name, durations in _distributions(entity):
            if durations.counts:
                yield f"{base}.{name}{SUFFIX}", hgrm_text(durations)


def hgrm_text(durations: Durations) -> str:
    """One distribution as text, in milliseconds."""
    target = io.BytesIO()
    durations.histogram().output_percentile_distribution(target, _US_PER_MS)
    return target.getvalue().decode("ascii")


def _distributions(entity: EntityResult) -> Iterator[tuple[str, Durations]]:
    recorder = entity.recorder
    if recorder is not None:
        yield "service", recorder.service_times
        yield "schedule-delay", recorder.schedule_delays
        yield "response", recorder.response_times
        yield "throttle", recorder.throttle_times


def _file_name(entity: EntityResult, taken: set[str]) -> str:
    """What a client's files are called: its name in letters that every file system takes, and a number if need be."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", f"{entity.name.label}.{entity.workload.value}").strip("._")[:_NAME_LENGTH]
    name, number = plain, 1
    while name.lower() in taken:
        number += 1
        name = f"{plain}-{number}"
    taken.add(name.lower())
    return name
