"""Tasks over the files of events on this machine: which files each reads, and threads to run them.

Invariants: all events of whoever may share a bucket are in one task. The kernels and Arrow let go of the interpreter,
so that threads do; the largest tasks begin first, so that one giant client does not hold up the end.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from kafka_quotas.pipeline.engine.progress import JobProgress, Watch
from kafka_quotas.pipeline.tables.event_slices import COLUMNS, event_slices
from kafka_quotas.pipeline.tables.layout import DataFolder

_Found = TypeVar("_Found")
BUCKETED_BY = frozenset({"cluster", "broker_id", "user", "client_id"})
"""With these equal, events lie in one bucket of files."""


def task_files(data: DataFolder, told_apart_by: Sequence[str]) -> list[tuple[Path, ...]]:
    """The files of each task: a bucket of files, or all of them where clients of several buckets may share a quota."""
    buckets = [each.files for each in data.events_buckets()]
    if set(told_apart_by) == BUCKETED_BY:
        return buckets
    together = tuple(file for files in buckets for file in files)
    return [together] if together else []


def run_tasks(
    tasks: Sequence[tuple[Path, ...]],
    work: Callable[[Iterator[pa.Table]], _Found],
    *,
    stage: str,
    watch: Watch,
    columns: Sequence[str] = COLUMNS,
) -> list[_Found]:
    """What came of each task, in their order; `columns` of the events are read."""
    workers = max(min(os.cpu_count() or 1, len(tasks)), 1)
    sizes = [sum(file.stat().st_size for file in files) for files in tasks]
    found: dict[int, _Found] = {}
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="pipeline") as pool:
        largest_first = sorted(range(len(tasks)), key=lambda number: -sizes[number])
        running = {pool.submit(_run_task, tasks[number], work, columns): number for number in largest_first}
        try:
            for future in as_completed(running):
                found[running[future]] = future.result()
                watch(JobProgress(stage=stage, done=len(found), total=len(tasks)))
        except BaseException:
            for future in running:
                future.cancel()
            raise
    return [found[number] for number in range(len(tasks))]


def _run_task(files: Sequence[Path], work: Callable[[Iterator[pa.Table]], _Found], columns: Sequence[str]) -> _Found:
    return work(event_slices(files, columns=columns))
