"""One task of a replay: a stream of slices through the limiters of every proposal, and the results.

Contract: a task knows neither engine nor files. All events of clients that may share a bucket are in one task. A slice
begins at or after the end of the one before.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.charges import (
    ChargedClient,
    Charges,
    ClientNumbers,
    amount_of,
    charges_of,
    columns_read,
    whole_amounts,
)
from kafka_quotas.pipeline.buckets.entities import bucket_table, columns_table, numbered, task_schema
from kafka_quotas.pipeline.buckets.proposal import BucketName, BucketRows, Proposal, ProposedQuotas, partition_columns
from kafka_quotas.pipeline.engine.job import Tables
from kafka_quotas.pipeline.kernels import loop
from kafka_quotas.pipeline.kernels.admission import FETCH, RECORD, STRICT
from kafka_quotas.pipeline.kernels.limiters import LimiterRule, Limiters
from kafka_quotas.pipeline.replay.throttle_spans import SpanCollector, span_table
from kafka_quotas.pipeline.tables.schemas import THROTTLE_SPANS, WHATIF

_PERCENTILES: Final = (0.5, 0.95, 0.99)
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
        """Return the proposals for a quota type, in their order."""
        return [ProposedQuotas(each, quota_type) for each in self.proposals]

    def limits(self, quota_type: QuotaType) -> bool:
        """Check whether any proposal has a quota of the type."""
        return any(each.limits for each in self.quotas(quota_type))

    def columns(self) -> tuple[str, ...]:
        """Return the columns of events that the replay reads."""
        return columns_read(each for each in QuotaType if self.limits(each))

    def partition_columns(self) -> tuple[str, ...]:
        """Return the columns whose equal values keep clients that may share a bucket in one task."""
        return partition_columns(self.proposals)


def replay_task(slices: Iterable[pa.Table], plan: ReplayPlan) -> Tables:
    """Replay the events under every proposal, by every model.

    Returns:
        The tables `buckets`, `outcomes` (a row for each proposal, model and bucket with events), and `throttle_spans`,
        empty unless the plan asks for it. `bucket` is a place in `buckets`, `proposal` one in the plan's proposals.
    """
    clients, passes = ClientNumbers(), passes_of(plan)
    for events in slices:
        for charges in charges_of(events, clients.of(events), passes.__contains__):
            for each in passes[charges.quota_type]:
                each.run(charges, clients.clients)
    return _tables(passes)


def counted_task(figures: pa.Table, plan: ReplayPlan) -> Tables:
    """Return the tables of `replay_task` for clients that no proposal throttles, given their figures."""
    clients, passes = clients_of_figures(figures), passes_of(plan)
    for quota_type, of_type in passes.items():
        for each in of_type:
            each.count(figures, clients, quota_type.value)
    return _tables(passes)


def clients_of_figures(figures: pa.Table) -> list[ChargedClient]:
    """Return the clients of a table of figures."""
    columns = figures.select(list(ChargedClient._fields)).to_pydict().values()
    return [ChargedClient(*names) for names in zip(*columns, strict=True)]


def _tables(passes: Mapping[QuotaType, Sequence["Pass"]]) -> Tables:
    first = 0
    buckets = [bucket_table([], [], QuotaType.PRODUCE)]
    outcomes, spans = [task_schema(WHATIF).empty_table()], [task_schema(THROTTLE_SPANS).empty_table()]
    for quota_type, of_type in passes.items():
        names: dict[BucketName, int] = {}
        for each in of_type:
            outcomes += each.outcomes(names, first)
            spans += each.throttle_spans(names, first)
        buckets.append(bucket_table(list(names), [None] * len(names), quota_type))
        first += len(names)
    return {
        "buckets": numbered(buckets),
        "outcomes": pa.concat_tables(outcomes),
        "throttle_spans": pa.concat_tables(spans),
    }


def passes_of(plan: ReplayPlan) -> dict[QuotaType, list["Pass"]]:
    """Return the passes of each quota type that is limited."""
    return {each: list(_passes(plan, each)) for each in QuotaType if plan.limits(each)}


def _passes(plan: ReplayPlan, quota_type: QuotaType) -> Iterator["Pass"]:
    """Yield one pass for all proposals with equal sharing of buckets.

    A sweep is one pass. With throttle spans every proposal has a pass of its own.
    """
    by_sharing: dict[Any, list[int]] = {}
    quotas = plan.quotas(quota_type)
    for number, each in enumerate(quotas):
        by_sharing.setdefault((each.sharing, number if plan.throttle_spans else None), []).append(number)
    for numbers in by_sharing.values():
        if quotas[numbers[0]].limits:
            yield Pass(plan, quota_type, numbers, [quotas[number] for number in numbers])


class Pass:
    """The limiters of one quota type under proposals with equal sharing."""

    def __init__(
        self, plan: ReplayPlan, quota_type: QuotaType, proposals: Sequence[int], quotas: Sequence[ProposedQuotas]
    ) -> None:
        self._quota_type = quota_type
        self._proposals = proposals
        self._buckets = BucketRows(quotas)
        self._bounded = 0
        self._totals = np.empty(0, dtype=np.int64)
        """Whole amounts by row, for a rule that admits all of them: their sum is the same in any order."""
        nothing = np.empty((0, len(quotas)))
        self._limiters = {model: Limiters(plan.rule(quota_type, model), nothing) for model in plan.models}
        collected = self._limiters if plan.throttle_spans else {}
        self._collectors = {model: SpanCollector(each) for model, each in collected.items()}

    def run(self, charges: Charges, clients: Sequence[ChargedClient]) -> None:
        """Run the charges through the limiters of each model."""
        for rows, placed in self._buckets.placed(charges, clients):
            self._rebound()
            if self._quota_type is QuotaType.REQUEST:
                np.add.at(self._totals, rows, whole_amounts(placed))
            for each in self._collectors.values():
                each.run(rows, placed.times_ms, placed.amounts)
            if not self._collectors:
                first, *others = self._limiters.values()
                first.run(rows, placed.times_ms, placed.amounts, beside=others)

    def rows_and_limits(self, clients: Sequence[ChargedClient]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return the row of each client, and the lowest limit of each row."""
        return self._buckets.grow(clients), self._buckets.bounds().min(axis=1)

    def count(self, figures: pa.Table, clients: Sequence[ChargedClient], kind: str) -> None:
        """Count the charges of clients that are never throttled, given their figures."""
        events = figures[f"{kind}_events"].to_numpy()
        used = np.flatnonzero(events)
        own = {name: figures[f"{kind}_{name}"].to_numpy()[used] for name in ("amount", "first_ms", "last_ms")}
        rows = self._buckets.grow(clients)[used]
        self._rebound()
        np.add.at(self._totals, rows, own["amount"])
        for limiters in self._limiters.values():
            limiters.count_unthrottled(rows, events[used], own["amount"], own["first_ms"], own["last_ms"])

    def _rebound(self) -> None:
        """Take up the limits of new clients."""
        if self._bounded != self._buckets.changes:
            self._bounded = self._buckets.changes
            bounds = self._buckets.bounds()
            for limiters in self._limiters.values():
                limiters.rebound(bounds)
            grown = len(bounds) - self._totals.size
            self._totals = np.concatenate([self._totals, np.zeros(grown, dtype=np.int64)])

    def outcomes(self, names: dict[BucketName, int], first: int) -> Iterator[pa.Table]:
        """Yield one table for each model and proposal.

        Args:
            names: Numbers of the quota type's buckets, to which new buckets are added.
            first: The task's number of the quota type's first bucket.
        """
        used = self._used()
        buckets = self._numbers(used, names, first)
        for model, limiters in self._limiters.items():
            percentiles = [limiters.percentiles_ms(share)[used] for share in _PERCENTILES]
            longest_ms = limiters.counts[used, :, loop.LONGEST_MS]  # the middle of the last step may lie beyond
            for place, proposal in enumerate(self._proposals):
                quotas = [self._buckets.matches[row][place] for row in used.tolist()]
                columns = [
                    np.full(used.size, proposal, dtype=np.int32),
                    buckets,
                    [None if match is None else match.limit for match in quotas],
                    [_ALGORITHMS[limiters.rule.tokens]] * used.size,
                    [model.value] * used.size,
                    *_figures(limiters, used, place),
                    *(np.minimum(each[:, place], longest_ms[:, place]) for each in percentiles),
                    self._achieved(limiters, used, place),
                ]
                yield columns_table(columns, task_schema(WHATIF))

    def throttle_spans(self, names: dict[BucketName, int], first: int) -> Iterator[pa.Table]:
        """Yield one table for each model, if the plan asks for it, with buckets numbered as for `outcomes`."""
        used = self._used()
        buckets = np.zeros(len(self._buckets.names), dtype=np.int64)
        buckets[used] = self._numbers(used, names, first)
        for model, collector in self._collectors.items():
            proposal, reason = self._proposals[0], self._quota_type.value
            yield span_table(collector.spans(), buckets, proposal=proposal, model=model.value, reason=reason)

    def _achieved(self, limiters: Limiters, used: NDArray[np.int64], place: int) -> NDArray[np.float64]:
        """Return the admitted amount per second from the first event to the end of the last delay.

        The time is at least one sample of the window.
        """
        counts, amounts = limiters.counts[used, place], limiters.amounts[used, place, loop.AMOUNT]
        if self._quota_type is QuotaType.REQUEST:
            amounts = amount_of(self._totals[used], self._quota_type)
        span_ms = np.maximum(counts[:, loop.END_MS] - counts[:, loop.BEGIN_MS], limiters.rule.window.window_ms)
        rates: NDArray[np.float64] = amounts / (span_ms / 1000.0)
        return rates

    def _used(self) -> NDArray[np.int64]:
        return np.flatnonzero(next(iter(self._limiters.values())).counts[:, 0, loop.EVENTS])

    def _numbers(self, used: NDArray[np.int64], names: dict[BucketName, int], first: int) -> NDArray[np.int64]:
        numbers = [names.setdefault(self._buckets.names[row], len(names)) for row in used.tolist()]
        return np.array(numbers, dtype=np.int64) + first


def _figures(limiters: Limiters, used: NDArray[np.int64], place: int) -> list[Any]:
    """Return the counts of the rows, from the column n to delay_ms."""
    counts = limiters.counts[used, place]
    return [
        counts[:, loop.EVENTS],
        counts[:, loop.THROTTLED],
        counts[:, loop.REFUSALS],
        counts[:, loop.THROTTLE_MS],
        counts[:, loop.LONGEST_MS],
        pa.array(counts[:, loop.FIRST_MS], mask=counts[:, loop.THROTTLED] == 0),
        counts[:, loop.LATE_MS],
    ]
