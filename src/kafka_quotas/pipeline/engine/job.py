"""A job over recorded events, and threads that run its tasks on this machine.

Invariants: all events of clients that may share a bucket are in one task. Threads suffice, since the kernels and Arrow
release the interpreter lock. The largest tasks begin first, which keeps one giant client from delaying the end.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from kafka_quotas.pipeline.engine.progress import JobProgress, Watch
from kafka_quotas.pipeline.tables.clients import shared_shift

if TYPE_CHECKING:  # commands load this before anybody knows whether Arrow is there
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from kafka_quotas.pipeline.tables.client_ranges import EventTable

_CLIENTS_IN_TASK: Final = 1 << 13
"""About how many clients a task counts of which it reads no events."""
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
    bulky: str | None = None
    """The one of them that is far larger than the others, None for none."""
    suffices: Callable[["pa.Table"], "NDArray[np.bool_]"] | None = None
    """Checks of each client whether its figures (`client_figures`) say all, None where a job needs all events.

    They say so of all clients of a bucket, or of none.
    """
    counted: Callable[["pa.Table"], Tables] | None = None
    """Returns the tables of clients whose figures suffice, given these."""

    @property
    def shift(self) -> int:
        """The bits of a client's number in which clients that share a bucket may differ."""
        return shared_shift(self.partition_columns)


def without_events(job: Job, events: "EventTable") -> "tuple[EventTable, list[pa.Table]]":
    """Return the events that a job needs, and the figures of the other clients, for a task each.

    Raises:
        KafkaQuotasError: The table of clients can't be read.
    """
    if job.suffices is None or not events.count:
        return events, []
    import numpy as np  # noqa: PLC0415 - as above
    import pyarrow as pa  # noqa: PLC0415

    from kafka_quotas.pipeline.tables.clients import client_figures  # noqa: PLC0415 - loads Arrow

    figures = client_figures(events.snapshot)
    suffice = job.suffices(figures)
    if not suffice.any():
        return events, []
    left = figures.filter(pa.array(suffice))
    groups = left["client"].to_numpy() >> job.shift
    at_most = np.arange(_CLIENTS_IN_TASK, groups.size, _CLIENTS_IN_TASK)
    bounds = np.unique([0, *np.searchsorted(groups, groups[at_most]), groups.size])
    tasks = [left.slice(begin, end - begin) for begin, end in pairwise(bounds.tolist())]
    return events.of(figures["client"].to_numpy()[~suffice]), tasks


def run_tasks(job: Job, events: "EventTable", *, watch: Watch) -> list[Tables]:
    """Run a task for each range of clients in threads and return the results by client."""
    workers = os.cpu_count() or 1
    events, left = without_events(job, events)
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
    counted = [job.counted(each) for each in left] if job.counted is not None else []
    return [*(found[number] for number in range(len(ranges))), *counted]
