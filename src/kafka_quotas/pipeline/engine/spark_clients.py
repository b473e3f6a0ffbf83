"""Tables of very many clients: executors say whose events a job needs and divide them; only ranges come to the driver.

Invariant: clients that may share a bucket are in one partition, and partitions follow each other by client, whichever
bounds Spark samples for them.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions

from kafka_quotas.pipeline.engine.event_pieces import NAMES_WINDOW, Parts, by_part, packed, unpacked
from kafka_quotas.pipeline.engine.job import Job
from kafka_quotas.pipeline.engine.spark_tasks import (
    CONTENT,
    FOUND,
    FRAME_COLUMNS,
    PART,
    PIECE_COLUMNS,
    content_row,
    found_rows,
    in_tasks,
    rows_of,
)
from kafka_quotas.pipeline.tables.client_ranges import (
    NAMES,
    ClientRange,
    EventTable,
    events_of_range,
    merged_clients,
    ranges_of,
)
from kafka_quotas.pipeline.tables.clients import STORED, merged_figures
from kafka_quotas.pipeline.tables.schemas import CLIENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNTED_FROM: Final = 1 << 30
"""Number of the first part of clients without events, above those of all ranges."""
_CLIENTS_IN_PART: Final = 1 << 16
"""About how many rows of `clients` a worker judges at a time."""
_NEEDED: Final = "needed"
_RANGE_COLUMNS: Final = "first long, last long, events long"


class SparkClients:
    """The clients of a table of events, as a job needs them."""

    def __init__(self, session: "SparkSession", events: EventTable, job: Job) -> None:
        rows = events.snapshot.rows_on_spark(session, CLIENTS).select("events", "first_ms", "last_ms", *STORED)
        group = functions.shiftright("client", job.shift)
        placed = rows.repartitionByRange(events.snapshot.rows_stored(CLIENTS) // _CLIENTS_IN_PART + 1, group)
        self._judged = in_tasks(placed, partial(_judged, job=job), FRAME_COLUMNS)
        self._needed = self._judged.where(functions.col(FOUND) == _NEEDED).select(CONTENT)
        self._job = job
        self._events = events.count

    def ranges(self, *, workers: int) -> list[ClientRange]:
        """Divide the clients that the job needs into ranges of about as many events, by number."""
        shift, target = self._job.shift, events_of_range(self._events, workers=workers)

        def divide(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for (content,) in rows_of(batches):
                own = unpacked(content, columns=["client", "events"])
                found = ranges_of(own["client"].to_numpy(), own["events"].to_numpy(), shift=shift, target=target)
                figures = [(each.first, each.last, each.events) for each in found]
                columns = [pa.array(column, pa.int64()) for column in zip(*figures, strict=True)]
                yield pa.record_batch(columns, ["first", "last", "events"])

        rows = in_tasks(self._needed, divide, _RANGE_COLUMNS).toArrow().sort_by("first").to_pylist()
        return [ClientRange(**row) for row in rows]

    def names(self, parts: Parts) -> "DataFrame":
        """Return the names of the needed clients in pieces."""

        def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for (content,) in rows_of(batches):
                for part, own in by_part(unpacked(content, columns=["client", *NAMES]), parts):
                    yield content_row({PART: part, "window": NAMES_WINDOW}, packed(own))

        return in_tasks(self._needed, cut, PIECE_COLUMNS)

    def counted(self) -> "DataFrame | None":
        """Return the tables of clients whose figures suffice, None where the job needs all events."""
        return None if self._job.suffices is None else self._judged.where(functions.col(FOUND) != _NEEDED)


def _judged(batches: Iterable[pa.RecordBatch], *, job: Job) -> Iterator[pa.RecordBatch]:
    """Yield the clients whose events a job needs in one row, and the tables of the others."""
    given, context = list(batches), TaskContext.get()
    if not given or context is None:
        return
    rows = pa.Table.from_batches(given)
    clients = merged_clients(rows)
    part = COUNTED_FROM + context.partitionId()
    if job.suffices is not None and job.counted is not None:
        figures = merged_figures(rows.select(STORED))
        is_enough = job.suffices(figures)
        clients = clients.filter(pa.array(~is_enough))
        if np.any(is_enough):
            yield from found_rows(part, job.counted(figures.filter(pa.array(is_enough))))
    if clients.num_rows:
        needed = clients.select(["client", *NAMES, "events_sum"]).rename_columns(["client", *NAMES, "events"])
        yield content_row({PART: part, FOUND: _NEEDED}, packed(needed))
