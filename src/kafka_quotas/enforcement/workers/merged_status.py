"""The status of a daemon with workers: what the parent measures, and what the workers' connections add to it."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from heapq import nlargest
from typing import TypeVar

from kafka_quotas.enforcement.telemetry.status import (
    MAX_ROWS,
    BucketRow,
    DaemonStatus,
    ListenerRow,
    QuotaTotals,
    ThresholdRow,
    ThrottledClient,
    ThrottleRow,
    WorkerRow,
)
from kafka_quotas.enforcement.telemetry.throttle_history import HourRow
from kafka_quotas.enforcement.workers.protocol import WorkerTotals

R = TypeVar("R")


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
    throttled = _by_key((row for each in workers for row in each.throttled), _client_key, _both_clients)
    buckets = _by_key((row for each in everyone for row in each.buckets), _bucket_key, _both_buckets)
    throttles = _by_key((row for each in workers for row in each.throttles), _throttle_key, _both_throttles)
    thresholds = _by_key((row for each in everyone for row in each.thresholds), _threshold_key, _larger)
    hours = _by_key((row for each in workers for row in each.last_hour), _hour_key, _both_hours)
    totals = [*ended, *(WorkerTotals(counters=each.counters, quota_totals=each.quota_totals) for each in everyone)]
    total = sum_of(totals)
    return replace(
        parent,
        connections=sum(each.connections for each in workers),
        longest_stall_ms=max(each.longest_stall_ms for each in everyone),
        listeners=_listeners(parent.listeners, workers),
        throttled=tuple(nlargest(MAX_ROWS, throttled, key=lambda row: row.remaining_ms)),
        buckets=tuple(sorted(buckets, key=_bucket_key)),
        throttles=tuple(sorted(throttles, key=lambda row: (row.user, row.client_id, row.quota))[: 2 * MAX_ROWS]),
        thresholds=tuple(thresholds[:MAX_ROWS]),
        counters=total.counters,
        quota_totals=total.quota_totals,
        last_hour=tuple(nlargest(MAX_ROWS, hours, key=lambda row: row.total_ms)),
        workers=rows,
    )


def _by_key(rows: Iterable[R], key: Callable[[R], object], both: Callable[[R, R], R]) -> list[R]:
    found: dict[object, R] = {}
    for row in rows:
        name = key(row)
        found[name] = both(found[name], row) if name in found else row
    return list(found.values())


def _client_key(row: ThrottledClient) -> tuple[str, str, str, str]:
    return row.broker, row.user, row.client_id, row.quota


def _both_clients(one: ThrottledClient, other: ThrottledClient) -> ThrottledClient:
    longest = max(one, other, key=lambda row: row.remaining_ms)
    return replace(longest, connections=one.connections + other.connections)


def _bucket_key(row: BucketRow) -> tuple[str, str, str, str, str]:
    return row.user, row.client_id, row.quota, row.broker, row.mode


def _both_buckets(one: BucketRow, other: BucketRow) -> BucketRow:
    # The first is the parent's, which measures all; throttle times are the workers'.
    return replace(
        one,
        throttle_ms=max(one.throttle_ms, other.throttle_ms),
        last_minute_times=one.last_minute_times + other.last_minute_times,
        last_minute_total_ms=one.last_minute_total_ms + other.last_minute_total_ms,
        last_minute_held_ms=max(one.last_minute_held_ms, other.last_minute_held_ms),
    )


def _throttle_key(row: ThrottleRow) -> tuple[str, str, str]:
    return row.quota, row.user, row.client_id


def _both_throttles(one: ThrottleRow, other: ThrottleRow) -> ThrottleRow:
    return replace(
        one,
        times=one.times + other.times,
        total_ms=one.total_ms + other.total_ms,
        upstream_times=one.upstream_times + other.upstream_times,
        upstream_total_ms=one.upstream_total_ms + other.upstream_total_ms,
        shadow_times=one.shadow_times + other.shadow_times,
        shadow_total_ms=one.shadow_total_ms + other.shadow_total_ms,
        refused_times=one.refused_times + other.refused_times,
    )


def _hour_key(row: HourRow) -> tuple[str, str, str]:
    return row.quota, row.user, row.client_id


def _both_hours(one: HourRow, other: HourRow) -> HourRow:
    longer, shorter = sorted((one.minutes_ms, other.minutes_ms), key=len, reverse=True)
    aligned = (0,) * (len(longer) - len(shorter)) + shorter
    minutes_ms = tuple(map(sum, zip(longer, aligned, strict=True)))
    return replace(one, times=one.times + other.times, total_ms=one.total_ms + other.total_ms, minutes_ms=minutes_ms)


def _threshold_key(row: ThresholdRow) -> tuple[str, str]:
    return row.broker, row.topic


def _larger(one: ThresholdRow, other: ThresholdRow) -> ThresholdRow:
    return max(one, other, key=lambda row: row.observed)


def _listeners(listeners: tuple[ListenerRow, ...], workers: Sequence[DaemonStatus]) -> tuple[ListenerRow, ...]:
    served: Counter[tuple[str, str]] = Counter()
    for each in workers:
        for row in each.listeners:
            served[row.listen, row.broker] += row.connections
    return tuple(replace(row, connections=served[row.listen, row.broker]) for row in listeners)


def sum_of(totals: Iterable[WorkerTotals]) -> WorkerTotals:
    """Return the sums of all counters."""
    every = list(totals)
    counters: Counter[str] = Counter()
    for each in every:
        counters.update(each.counters)
    rows = _by_key((row for each in every for row in each.quota_totals), lambda row: row.quota, _both_totals)
    return WorkerTotals(counters=dict(counters), quota_totals=tuple(rows))


def _both_totals(one: QuotaTotals, other: QuotaTotals) -> QuotaTotals:
    return replace(
        one,
        waiting=one.waiting + other.waiting,
        times=one.times + other.times,
        total_ms=one.total_ms + other.total_ms,
        upstream_times=one.upstream_times + other.upstream_times,
        shadow_times=one.shadow_times + other.shadow_times,
        refused_times=one.refused_times + other.refused_times,
    )
