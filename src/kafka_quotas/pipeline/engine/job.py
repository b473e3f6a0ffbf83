"""A job over recorded events: the files of its tasks, and threads that run them on this machine.

Invariants: all events of clients that may share a bucket are in one task. Threads suffice, since the kernels and Arrow
release the interpreter lock. The largest tasks begin first, which keeps one giant client from delaying the end.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_quotas.pipeline.engine.progress import JobProgress, Watch
from kafka_quotas.pipeline.tables.layout import DataFolder

if TYPE_CHECKING:  # commands load this before anybody knows whether Arrow is there
    import pyarrow as pa

Tables = Mapping[str, "pa.Table"]
"""Tables by name."""
BUCKETED_BY = frozenset({"cluster", "broker_id", "user", "client_id"})
"""Columns whose values determine the bucket of files of an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as one function over slices of events, for this machine and for Spark's workers."""

    name: str
    partition_columns: tuple[str, ...]
    """Columns of events whose equal values keep clients that may share a bucket in one task."""
    columns: tuple[str, ...]
    """Columns of events that a task reads."""
    task: Callable[[Iterable["pa.Table"]], Tables]
    """Returns the tables of one task, given its events in slices by time."""
    schemas: Mapping[str, "pa.Schema"]
    """Schemas of these tables, by name."""

    @property
    def is_by_bucket(self) -> bool:
        """Whether the events of each bucket of files are a task of their own."""
        return set(self.partition_columns) == BUCKETED_BY


def task_files(data: DataFolder, job: Job) -> list[tuple[Path, ...]]:
    """Return the files of each task: one bucket of files, or all files where buckets may share a quota."""
    buckets = [each.files for each in data.events_buckets()]
    if job.is_by_bucket:
        return buckets
    together = tuple(file for files in buckets for file in files)
    return [together] if together else []


def run_tasks(job: Job, tasks: Sequence[tuple[Path, ...]], *, watch: Watch) -> list[Tables]:
    """Run each task in a thread, the largest first, and return the results in the order of the tasks."""
    from kafka_quotas.pipeline.tables.event_slices import event_slices  # noqa: PLC0415 - loads Arrow

    workers = max(min(os.cpu_count() or 1, len(tasks)), 1)
    sizes = [sum(file.stat().st_size for file in files) for files in tasks]
    found: dict[int, Tables] = {}
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="pipeline") as pool:
        largest_first = sorted(range(len(tasks)), key=lambda number: -sizes[number])
        running = {
            pool.submit(lambda files: job.task(event_slices(files, columns=job.columns)), tasks[number]): number
            for number in largest_first
        }
        try:
            for future in as_completed(running):
                found[running[future]] = future.result()
                watch(JobProgress(stage=job.name, done=len(found), total=len(tasks)))
        except BaseException:
            for future in running:
                future.cancel()
            raise
    return [found[number] for number in range(len(tasks))]
