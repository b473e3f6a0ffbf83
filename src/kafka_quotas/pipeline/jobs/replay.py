"""The job `replay`: what proposed quotas would have done to each quota bucket.

Contract: a task knows neither engine nor files. All events of clients that may share a bucket are in one task. A slice
begins at or after the end of the one before. One `SpanCollector` follows the limiters of one proposal and model through
a whole task, batch by batch; its rows are the limiters'.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.buckets.charges import (
    BucketRows,
    Charges,
    ClientNumbers,
    bucket_columns,
    charges_of,
    columns_read,
)
from kafka_quotas.pipeline.buckets.proposal import BucketName, Proposal, ProposedQuotas, partition_columns
from kafka_quotas.pipeline.engine.events import Events
from kafka_quotas.pipeline.engine.job import Job
from kafka_quotas.pipeline.engine.sql import ResultRun, SqlTables, write_result
from kafka_quotas.pipeline.jobs.group_replay import GroupReplay
from kafka_quotas.pipeline.kernels import loop
from kafka_quotas.pipeline.kernels.admission import FETCH, RECORD, STRICT
from kafka_quotas.pipeline.kernels.limiters import LimiterRule, Limiters
from kafka_quotas.pipeline.kernels.throttle_spans import SpanCollector
from kafka_quotas.pipeline.tables.packed_events import shared_shift
from kafka_quotas.pipeline.tables.results import REPLAYED, SPAN, list_column
from kafka_quotas.pipeline.tables.schemas import KEY, THROTTLE_SPANS, WHATIF

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]

_PERCENTILES: Final = (0.5, 0.95, 0.99)
_COUNTS: Final = (loop.EVENTS, loop.THROTTLED, loop.REFUSALS, loop.THROTTLE_MS, loop.LONGEST_MS)
_ALGORITHMS: Final = {True: "token-bucket", False: "rate"}


class Model(StrEnum):
    """How throttled clients behave.

    OPEN: requests arrive when they were recorded, throttled or not. CLOSED: the clients of a bucket are one client that
    waits out each delay before its next request, and repeats refused requests.
    """

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """The proposals (of different names) to replay, the models to replay them by, and the windows."""

    proposals: tuple[Proposal, ...]
    models: tuple[Model, ...] = (Model.OPEN, Model.CLOSED)
    window: QuotaWindow = DEFAULT_WINDOW
    """Window of the brokers' rates."""
    controller_window: QuotaWindow = DEFAULT_WINDOW
    """Window of the controller's mutation quota."""
    throttle_spans: bool = False
    """Whether to record when each proposal throttled each bucket, which costs a pass for each."""

    def rule(self, quota_type: QuotaType, model: Model) -> LimiterRule:
        """Return the rule of a quota type: refused fetches are taken back, mutations are refused strictly."""
        tokens = quota_type is QuotaType.CONTROLLER_MUTATION
        operation = STRICT if tokens else FETCH if quota_type is QuotaType.FETCH else RECORD
        return LimiterRule(
            operation=operation,
            tokens=tokens,
            bounded=quota_type is QuotaType.REQUEST,
            closed=model is Model.CLOSED,
            window=self.controller_window if tokens else self.window,
        )

    def quotas(self, quota_type: QuotaType) -> list[ProposedQuotas]:
        """Return the proposals for a quota type, in their order, none if no proposal has a quota of the type."""
        found = [ProposedQuotas(each, quota_type) for each in self.proposals]
        return found if any(each.limits for each in found) else []


def replay_job(plan: ReplayPlan) -> Job:
    """Return the job that replays a plan."""
    return Job(
        name="replay",
        shift=shared_shift(() if any(each.groups for each in plan.proposals) else partition_columns(plan.proposals)),
        columns=columns_read(filter(plan.quotas, QuotaType)),
        task=partial(replay_task, plan=plan),
        schema=REPLAYED,
    )


def replay_task(slices: Iterable[pa.Table], plan: ReplayPlan) -> pa.Table:
    """Replay the events under every proposal, by every model, in the columns `REPLAYED`.

    A row is a proposal, a model, and a bucket with events. Its spans are null unless the plan asks for them.
    """
    clients = ClientNumbers()
    passes = {each: own for each in QuotaType if (own := list(_passes(plan, each)))}
    for events in slices:
        for charges in charges_of(events, clients.of(events), passes.__contains__):
            for each in passes[charges.quota_type]:
                each.run(charges, clients.clients)
    return pa.concat_tables(
        [REPLAYED.empty_table(), *(table for own in passes.values() for each in own for table in each.outcomes())]
    )


def _passes(plan: ReplayPlan, quota_type: QuotaType) -> Iterator["_Pass | _GroupPass"]:
    """Yield one pass for all proposals with equal sharing of buckets: a sweep is one pass.

    With throttle spans or groups every proposal has a pass of its own.
    """
    by_sharing: dict[Any, dict[int, ProposedQuotas]] = {}
    for number, each in enumerate(plan.quotas(quota_type)):
        if each.groups is not None:
            yield _GroupPass(plan, quota_type, number, each)
        elif each.limits:
            by_sharing.setdefault((each.sharing, number if plan.throttle_spans else None), {})[number] = each
    yield from (_Pass(plan, quota_type, quotas) for quotas in by_sharing.values())


class _Pass:
    """The limiters of one quota type under proposals with equal sharing."""

    def __init__(self, plan: ReplayPlan, quota_type: QuotaType, quotas: Mapping[int, ProposedQuotas]) -> None:
        self._quota_type = quota_type
        self._scenarios = [(number, plan.proposals[number].name) for number in quotas]
        self._buckets = BucketRows(list(quotas.values()))
        self._bounded = 0
        nothing = np.empty((0, len(quotas)))
        self._limiters = {model: Limiters(plan.rule(quota_type, model), nothing) for model in plan.models}
        collected = self._limiters if plan.throttle_spans else {}
        self._collectors = {model: SpanCollector(each) for model, each in collected.items()}

    def run(self, charges: Charges, clients: Sequence[BucketName]) -> None:
        for rows, placed in self._buckets.placed(charges, clients):
            if self._bounded != self._buckets.changes:  # new clients, or other quotas
                self._bounded = self._buckets.changes
                for limiters in self._limiters.values():
                    limiters.rebound(self._buckets.bounds())
            for each in self._collectors.values():
                each.run(rows, placed.times_ms, placed.amounts)
            if not self._collectors:
                first, *others = self._limiters.values()
                first.run(rows, placed.times_ms, placed.amounts, beside=others)

    def outcomes(self) -> Iterator[pa.Table]:
        used = np.flatnonzero(next(iter(self._limiters.values())).counts[:, 0, loop.EVENTS])
        names = bucket_columns([self._buckets.names[row] for row in used.tolist()], self._quota_type)
        for model, limiters in self._limiters.items():
            percentiles = np.array([limiters.percentiles_ms(share)[used] for share in _PERCENTILES])
            collector = self._collectors.get(model)
            spans = _span_column(None if collector is None else collector.spans(), used)
            for place, scenario in enumerate(self._scenarios):
                quotas = [self._buckets.matches[row][place] for row in used.tolist()]
                limits = [None if match is None else match.limit for match in quotas]
                amounts = limiters.amounts[used, place, loop.AMOUNT]
                figures = limiters.counts[used, place], amounts, percentiles[:, :, place]
                yield _table(scenario, limiters.rule, [*names, limits], figures, spans)


class _GroupPass:
    """The replays of one proposal with groups."""

    def __init__(self, plan: ReplayPlan, quota_type: QuotaType, number: int, quotas: ProposedQuotas) -> None:
        self._quota_type, self._has_spans = quota_type, plan.throttle_spans
        self._scenario = number, plan.proposals[number].name
        self._replays = [GroupReplay(quotas, quota_type, plan.rule(quota_type, model)) for model in plan.models]

    def run(self, charges: Charges, clients: Sequence[BucketName]) -> None:
        for each in self._replays:
            each.run(charges, clients)

    def outcomes(self) -> Iterator[pa.Table]:
        for replayed in self._replays:
            if buckets := replayed.buckets():
                names = bucket_columns([each.name for each in buckets], self._quota_type)
                figures = ((each.counts, each.amount, each.percentiles_ms(_PERCENTILES)) for each in buckets)
                counts, amounts, percentiles = map(np.array, zip(*figures, strict=True))
                spans = [(row, *span) for row, each in enumerate(buckets) for span in each.spans]
                found = np.array(spans, dtype=np.int64).reshape(-1, 1 + len(SPAN)) if self._has_spans else None
                column = _span_column(found, np.arange(len(buckets)))
                names_and_limits = [*names, [each.limit for each in buckets]]
                yield _table(self._scenario, replayed.rule, names_and_limits, (counts, amounts, percentiles.T), column)


def _span_column(spans: Int64s | None, used: Int64s) -> pa.Array:
    """Return spans, each a row and its figures, as a list for each row, null without any."""
    if spans is None:
        return pa.nulls(used.size, REPLAYED.field("spans").type)
    rows, *figures = spans.T
    return list_column(np.searchsorted(used, rows), [pa.table(figures, schema=SPAN)], used.size)


def _table(
    scenario: tuple[int, str],
    rule: LimiterRule,
    buckets: Sequence[Any],
    figures: tuple[Int64s, Floats, Floats],
    spans: pa.Array,
) -> pa.Table:
    """Return what became of buckets, given by names and limits: counts, amounts and percentiles."""
    counts, amounts, percentiles_ms = figures
    # The amount per second from the first event to the end of the last delay, at least one sample of the window.
    span_ms = np.maximum(counts[:, loop.END_MS] - counts[:, loop.BEGIN_MS], rule.window.window_ms)
    longest_ms = counts[:, loop.LONGEST_MS]  # the middle of the last step may lie beyond
    model = Model.CLOSED if rule.closed else Model.OPEN
    columns = [
        np.full(len(counts), scenario[0], dtype=np.int32),
        *buckets,
        *([text] * len(counts) for text in (scenario[1], _ALGORITHMS[rule.tokens], model.value)),
        *(counts[:, column] for column in _COUNTS),
        pa.array(counts[:, loop.FIRST_MS], mask=counts[:, loop.THROTTLED] == 0),
        counts[:, loop.LATE_MS],
        *(np.minimum(each, longest_ms) for each in percentiles_ms),
        amounts / (span_ms / 1000.0),
        spans,
    ]
    fields = zip(columns, REPLAYED, strict=True)
    arrays = [each if isinstance(each, pa.Array) else pa.array(each, own.type) for each, own in fields]
    return pa.table(arrays, schema=REPLAYED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """What proposals would have done: rows by the schema `REPLAYED`."""

    tables: SqlTables
    rows: str
    """The name of the rows in `tables`."""

    def counts(self) -> tuple[int, int]:
        """Return the numbers of rows, and of those with a throttle time."""
        throttled = "coalesce(count_if(throttled_n > 0), 0) AS throttled"  # DuckDB's is null of no rows
        found = self.tables.query(f"SELECT count(*) AS n, {throttled} FROM {self.rows}")
        return int(found["n"][0].as_py()), int(found["throttled"][0].as_py())

    def ranked(self, limit: int | None) -> pa.Table:
        """Return the first rows by proposal and model, those throttled longest first."""
        columns = ", ".join(name for name in REPLAYED.names if name not in ("proposal", "spans"))
        return self.tables.query(
            f"""SELECT {columns} FROM {self.rows}
            ORDER BY proposal, model DESC, throttle_ms DESC, {KEY}
            {"" if limit is None else f"LIMIT {limit}"}""",
            is_long=limit is None,
        )

    def write(self, out: str, run: ResultRun, *, has_spans: bool) -> None:
        """Write the table `whatif`, and `throttle_spans` too, below a path or URL, in place of the same days."""
        write_result(self.tables, self.rows, out, WHATIF, run)
        if has_spans:
            spans = f"SELECT scenario, {KEY}, model, {self.tables.dialect.inlined.format('spans')} FROM {self.rows}"
            write_result(self.tables, self.tables.define("spans", spans), out, THROTTLE_SPANS, run, day_of="start_ms")


def replay(events: Events, plan: ReplayPlan) -> Outcomes:
    """Replay open events under every proposal of a plan, with the errors of `Events.run`."""
    return Outcomes(tables=events.tables, rows=events.run(replay_job(plan)))
