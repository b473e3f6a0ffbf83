"""A job over recorded events, and threads that run its tasks on this machine.

Invariants: all events of clients that may share a bucket are in one task. Threads suffice, since the kernels and Arrow
release the interpreter lock. The largest tasks begin first, which keeps one giant client from delaying the end.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.pipeline.engine.progress import JobProgress, Watch
from kafka_quotas.pipeline.tables.client_number import shared_shift

if TYPE_CHECKING:  # commands load this before anybody knows whether Arrow is there
    import pyarrow as pa

    from kafka_quotas.pipeline.tables.client_ranges import EventTable

Tables = Mapping[str, "pa.Table"]
"""Tables by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as one function over slices of events, for this machine and for Spark's workers."""

    name: str
    partition_columns: tuple[str, ...]
    """Columns of events whose equal values keep clients that may share a bucket in one task."""
    columns: tuple[str, ...]
    """Columns of events that a task reads."""
    task: Callable[[Iterable["pa.Table"]], Tables]
    """Returns the tables of one task, given its events in slices.

    Events of a client come by time, with whole seconds in a slice.
    """
    schemas: Mapping[str, "pa.Schema"]
    """Schemas of these tables, by name."""

    @property
    def shift(self) -> int:
        """The bits of a client's number in which clients that share a bucket may differ."""
        return shared_shift(self.partition_columns)


def run_tasks(job: Job, events: "EventTable", *, watch: Watch) -> list[Tables]:
    """Run a task for each range of clients in threads and return the results by client."""
    workers = os.cpu_count() or 1
    ranges = events.ranges(shift=job.shift, workers=workers)
    found: dict[int, Tables] = {}
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="pipeline") as pool:
        largest_first = sorted(range(len(ranges)), key=lambda number: -ranges[number].events)
        running = {
            pool.submit(lambda own: job.task(events.slices(own, columns=job.columns)), ranges[number]): number
            for number in largest_first
        }
        try:
            for future in as_completed(running):
                found[running[future]] = future.result()
                watch(JobProgress(stage=job.name, done=len(found), total=len(ranges)))
        except BaseException:
            for future in running:
                future.cancel()
            raise
    return [found[number] for number in range(len(ranges))]
