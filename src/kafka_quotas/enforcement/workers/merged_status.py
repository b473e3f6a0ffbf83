"""The status of a daemon with workers: what the parent measures, and what the workers' connections add to it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from heapq import nlargest

from kafka_quotas.enforcement.telemetry.status import MAX_ROWS, DaemonStatus, WorkerRow, merge_rows
from kafka_quotas.enforcement.workers.protocol import WorkerTotals


def merged(
    parent: DaemonStatus,
    workers: Sequence[DaemonStatus],
    rows: tuple[WorkerRow, ...],
    ended: Iterable[WorkerTotals] = (),
) -> DaemonStatus:
    """Return the status of the daemon as a whole.

    Args:
        parent: The parent's, which has every bucket.
        workers: Those of the workers that answered.
        rows: The workers themselves.
        ended: Counters of workers that have ended, which still count.
    """
    everyone = (parent, *workers)
    throttled = merge_rows(row for each in workers for row in each.throttled)
    # The first bucket of a name is the parent's, which measures all; throttle times are the workers'.
    buckets = merge_rows(row for each in everyone for row in each.buckets)
    throttles = merge_rows(row for each in workers for row in each.throttles)
    hours = merge_rows(row for each in workers for row in each.last_hour)
    listeners = merge_rows(row for each in everyone for row in each.listeners)
    totals = [*ended, *(WorkerTotals(counters=each.counters, quota_totals=each.quota_totals) for each in everyone)]
    total = sum_of(totals)
    return replace(
        parent,
        connections=sum(each.connections for each in workers),
        longest_stall_ms=max(each.longest_stall_ms for each in everyone),
        listeners=tuple(listeners[: len(parent.listeners)]),
        throttled=tuple(nlargest(MAX_ROWS, throttled, key=lambda row: row.remaining_ms)),
        buckets=tuple(sorted(buckets, key=lambda row: (row.user, row.client_id, row.quota, row.broker, row.mode))),
        throttles=tuple(sorted(throttles, key=lambda row: (row.user, row.client_id, row.quota))[: 2 * MAX_ROWS]),
        thresholds=tuple(merge_rows(row for each in everyone for row in each.thresholds)[:MAX_ROWS]),
        counters=total.counters,
        quota_totals=total.quota_totals,
        last_hour=tuple(nlargest(MAX_ROWS, hours, key=lambda row: row.total_ms)),
        workers=rows,
    )


def sum_of(totals: Iterable[WorkerTotals]) -> WorkerTotals:
    """Return the sums of all counters."""
    every = list(totals)
    counters: Counter[str] = Counter()
    for each in every:
        counters.update(each.counters)
    rows = merge_rows(row for each in every for row in each.quota_totals)
    return WorkerTotals(counters=dict(counters), quota_totals=tuple(rows))
