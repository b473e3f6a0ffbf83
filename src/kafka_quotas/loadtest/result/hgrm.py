"""Histograms as text files: percentile distributions as HdrHistogram writes them, in milliseconds.

HdrHistogram's plotter and wrk2's read such files. Each has one distribution of one client.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kafka_quotas.loadtest.record.histogram import Histogram, LatencySummary
from kafka_quotas.loadtest.result.result import ClientResult, LatencyPoint, LoadResult

SUFFIX = ".hgrm"
_US_PER_MS = 1000.0
_LINES_PER_HALF = 5
_BUCKETS, _SUB_BUCKETS = 22, 2048  # of a histogram from 1 us to 1 h with three digits
_NAME_LENGTH = 60
_NEAR = 1.05  # times as long is not worth a mark
_LONGEST = 0.999  # of latencies have to be known for the longest, as some requests are always on their way


def hgrm_files(result: LoadResult) -> Iterator[tuple[str, str]]:
    """Yield names and texts of a run's files, one for every distribution that was measured."""
    taken: set[str] = set()
    for entity in result.entities:
        base = _file_name(entity, taken)
        for name, durations in _distributions(entity):
            if durations.counts:
                yield f"{base}.{name}{SUFFIX}", hgrm_text(durations)


def response_distribution(entity: ClientResult) -> Sequence[LatencyPoint]:
    """Return the percentiles of a client's response times, ascending, none where they are not known."""
    if entity.recorder is not None:
        return list(_distribution(entity.recorder.response_times))
    return entity.distribution


def with_distributions(result: LoadResult, folder: Path) -> LoadResult:
    """Return a result that was read with the distributions in the folder's files, if there are any."""
    taken: set[str] = set()
    names = [folder / f"{_file_name(entity, taken)}.response{SUFFIX}" for entity in result.entities]
    return replace(
        result,
        entities=tuple(
            replace(entity, distribution=tuple(_read_points(path, entity.response)))
            for entity, path in zip(result.entities, names, strict=True)
        ),
    )


def _read_points(path: Path, response: LatencySummary) -> Iterator[LatencyPoint]:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for value, share, *_ in (line.split() for line in lines[2:] if line and not line.startswith("#")):
        level = float(share)
        yield LatencyPoint(
            value_us=round(float(value) * _US_PER_MS), share=level, is_bound=response.is_bound(min(level, _LONGEST))
        )


def _distribution(durations: Histogram) -> Iterator[LatencyPoint]:
    """Yield the percentiles, of which one is a lower bound where endless waits would make it much longer."""
    total = sum(count for _, count in durations.cells())
    counted, known = _Cumulated(durations.cells()), _Cumulated(durations.known_cells())
    for level in _levels(total):
        value, longest = (each.value_at(max(level * total, 1)) for each in (counted, known))
        yield LatencyPoint(value_us=round(value), share=level, is_bound=longest > value * _NEAR)


def _levels(total: int) -> Sequence[float]:
    """Return the shares of a file's lines and the same from the other end, as fine as `total` allows."""
    levels, level = [0.0], 0.0
    while (1 - level) * total >= 1:
        levels.append(level)
        level += _step(level)
    return sorted({*levels, *(1 - each for each in levels)}) if total else []


class _Cumulated:
    """A walk over the cells of a histogram, in which no count may be smaller than the one before."""

    def __init__(self, cells: Sequence[tuple[int, int]]) -> None:
        self._cells = iter(cells)
        self._below: float = 0
        self._value: float = 0.0

    def value_at(self, count: float) -> float:
        """Return the highest value of the cell with the duration of that number, infinity beyond the last."""
        while self._below < count:
            self._value, held = next(self._cells, (math.inf, math.inf))
            self._below += held
        return self._value


def hgrm_text(durations: Histogram) -> str:
    """Return one distribution as text, in milliseconds.

    **Source:** HdrHistogram 2.1, `outputPercentileDistribution`: five lines per half of the way to 100 %.
    """
    cells = durations.cells()
    total = sum(count for _, count in cells)
    lines = [f"{'Value':>12} {'Percentile':>14} {'TotalCount':>10} {'1/(1-Percentile)':>14}", ""]
    below, level = 0, 0.0
    for highest, count in cells:
        below += count
        while level <= below / total and level < 1:
            lines.append(f"{highest / _US_PER_MS:12.3f} {level:2.12f} {below:10d} {1 / (1 - level):14.2f}")
            level += _step(level)
            if below == total:
                break
    lines.append(f"{cells[-1][0] / _US_PER_MS:12.3f} {1:2.12f} {total:10d}")
    mean, deviation = (figure / _US_PER_MS for figure in durations.spread_us())
    lines.append(f"#[Mean    = {mean:12.3f}, StdDeviation   = {deviation:12.3f}]")
    lines.append(f"#[Max     = {cells[-1][0] / _US_PER_MS:12.3f}, Total count    = {total:12d}]")
    lines.append(f"#[Buckets = {_BUCKETS:12d}, SubBuckets     = {_SUB_BUCKETS:12d}]")
    return "\n".join(lines) + "\n"


def _step(level: float) -> float:
    """Return the distance of the next line from the one at this share."""
    halvings = math.floor(math.log2(1 / (1 - level))) + 1
    return math.ldexp(1 / _LINES_PER_HALF, -halvings)


def _distributions(entity: ClientResult) -> Iterator[tuple[str, Histogram]]:
    recorder = entity.recorder
    if recorder is not None:
        yield "service", recorder.service_times
        yield "schedule-delay", recorder.schedule_delays
        yield "response", recorder.response_times
        yield "throttle", recorder.throttle_times


def _file_name(entity: ClientResult, taken: set[str]) -> str:
    """Return a client's name in characters that every file system takes, numbered where it is taken."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", f"{entity.name.label}.{entity.workload.value}").strip("._")[:_NAME_LENGTH]
    name, number = plain, 1
    while name.lower() in taken:
        number += 1
        name = f"{plain}-{number}"
    taken.add(name.lower())
    return name
