"""Tasks over the files of events on this machine: the files of each, and threads to run them.

Invariants: all events of clients that may share a bucket are in one task. Threads suffice, since the kernels and Arrow
release the interpreter lock. The largest tasks begin first, which keeps one giant client from delaying the end.
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
"""Columns whose values determine the bucket of files of an event."""


def task_files(data: DataFolder, told_apart_by: Sequence[str]) -> list[tuple[Path, ...]]:
    """Return the files of each task.

    A task is one bucket of files, or all files where clients of several buckets may share a quota.
    """
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
    """Run the work of each task in threads, the largest tasks first.

    `columns` are the columns of events to read.

    Returns:
        The results in the order of the tasks.
    """
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
