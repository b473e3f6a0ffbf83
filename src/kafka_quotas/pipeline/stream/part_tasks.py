"""The tasks of one batch on Spark: lines to charges, charges to the parts of the state, and the state moved on.

Executors parse, find buckets and keep the state. Each row of a batch has its number, a part, what was found and its
content:

    state        the part's buckets after the batch (`state.PartState`)
    live         its rows of the table `live`, as an Arrow stream
    unreadable   what was set aside, likewise
    summary      the figures of the part as JSON
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.event_pieces import packed, unpacked
from kafka_quotas.pipeline.engine.spark_tasks import content_row, in_tasks, rows_of
from kafka_quotas.pipeline.stream.bucket_charges import Partitioner, unpacked_charges
from kafka_quotas.pipeline.stream.lines import UNREADABLE, ReadEvents, without_future
from kafka_quotas.pipeline.stream.state import PartState
from kafka_quotas.pipeline.stream.type_state import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE_COLUMNS: Final = "batch int, part int, found string, content binary"
_PIECE_COLUMNS: Final = "part int, found string, content binary"
ReadColumns = Callable[[Iterable[pa.Array]], Iterator[ReadEvents]]
STATE, CHARGES, EVENTS, LIVE_ROWS, SET_ASIDE, SUMMARY = "state", "charges", "events", "live", "unreadable", "summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What the tasks of one batch need to know."""

    batch_id: int
    parts: int
    """Number of parts of the state."""
    quotas: Proposal
    """Quotas in force."""
    window: QuotaWindow = DEFAULT_WINDOW
    horizons_ms: Mapping[Broker, int]
    """Time by broker before which an event is late."""
    now_ms: int
    """Time at which the batch is reckoned, in ms since 1970."""


def moved_on(values: "DataFrame", before: "DataFrame", read: ReadColumns, plan: BatchPlan) -> "DataFrame":
    """Return the rows of a batch, to be written.

    Args:
        values: One column of lines or of the bytes of files.
        before: Rows of the state before the batch, with the columns part, found and content.
        read: Reads Arrow columns of values.
        plan: What the tasks need to know.
    """
    pieces = in_tasks(values, partial(_pieces, read=read, plan=plan), _PIECE_COLUMNS)
    placed = before.union(pieces).repartition(plan.parts, "part").sortWithinPartitions("part")
    return in_tasks(placed, partial(_moved_on, plan=plan), FILE_COLUMNS)


def unpacked_rows(contents: "DataFrame", columns: Any) -> "DataFrame":
    """Return the rows of tables in a column of Arrow streams."""

    def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (content,) in rows_of(batches):
            yield from unpacked(content).to_batches()

    return in_tasks(contents, unpack, columns)


def _pieces(batches: Iterable[pa.RecordBatch], *, read: ReadColumns, plan: BatchPlan) -> Iterator[pa.RecordBatch]:
    """Yield the charges of values by part, and to the first part what was counted."""
    events, set_aside = 0, [UNREADABLE.empty_table()]

    def tables() -> Iterator[pa.Table]:
        nonlocal events
        for each in read(batch.column(0) for batch in batches):
            found = without_future(each, plan.now_ms)
            events += found.charges.num_rows
            set_aside.append(found.unreadable)
            yield found.charges

    for part, content in Partitioner(plan.quotas, parts=plan.parts).pieces(tables()):
        yield content_row({"part": part, "found": CHARGES}, content)
    if events:
        yield content_row({"part": 0, "found": EVENTS}, pa.py_buffer(str(events).encode()))
    refused = pa.concat_tables(set_aside)
    if refused.num_rows:
        yield content_row({"part": 0, "found": SET_ASIDE}, packed(refused))


def _moved_on(batches: Iterable[pa.RecordBatch], *, plan: BatchPlan) -> Iterator[pa.RecordBatch]:
    rows = rows_of(batches)
    for part, own in groupby(rows, key=lambda row: row[0]):
        found: dict[str, list[pa.Buffer]] = {each: [] for each in (STATE, CHARGES, EVENTS, SET_ASIDE)}
        for _, kind, content in own:
            found[kind].append(content)
        for kind, content in _of_part(found, plan):
            yield content_row({"batch": plan.batch_id, "part": part, "found": kind}, content)


def _of_part(found: Mapping[str, list[pa.Buffer]], plan: BatchPlan) -> Iterator[tuple[str, pa.Buffer]]:
    state = PartState(plan.quotas, window=plan.window)
    for content in found[STATE]:
        if content.size:
            state.load(content.to_pybytes())
    live = state.take(map(unpacked_charges, found[CHARGES]), plan.horizons_ms, batch_id=plan.batch_id)
    yield STATE, pa.py_buffer(state.dump())
    if live.num_rows:
        yield LIVE_ROWS, packed(live)
    refused = [unpacked(each) for each in found[SET_ASIDE]]
    if refused:
        yield SET_ASIDE, packed(pa.concat_tables(refused))
    summary = {
        "events": sum(int(each.to_pybytes()) for each in found[EVENTS]),
        "late": sum(live["late_events"].to_pylist()),
        "unreadable": sum(each.num_rows for each in refused),
        "buckets": live.num_rows,
        "clocks": [[*broker, at_ms] for broker, at_ms in state.clocks_ms().items()],
    }
    yield SUMMARY, pa.py_buffer(json.dumps(summary).encode())
