"""The status of several processes is that of one daemon: nothing is missing and nothing counts twice."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

from tests.support.daemon.proxy_quotas import proxy_quotas
from tests.support.daemon.statuses import bucket_row, daemon_status, throttle_row, waiting_client

from kafka_quotas.core.clock import MonotonicClock
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.quotas.quota_registry import BucketId
from kafka_quotas.enforcement.sharing.channel import WorkerProcess, WorkerTotals
from kafka_quotas.enforcement.sharing.pool import WorkerPool, merged, sum_of
from kafka_quotas.enforcement.telemetry.status import (
    DaemonStatus,
    HourRow,
    ListenerRow,
    QuotaTotals,
    ThresholdRow,
    WorkerRow,
)

BUCKET = bucket_row(limit=10.0, observed=12.0)
CLIENT = waiting_client(client_id="app", throttle_ms=100, remaining_ms=50)
THROTTLE = throttle_row()
LISTENER = ListenerRow(broker="1", listen="127.0.0.1:9093", upstream="b:9092", connections=0)


def status(**changes: object) -> DaemonStatus:
    return daemon_status(**{"listeners": (LISTENER,), "counters": {"requests": 1}, **changes})


def test_rows_of_one_client_become_one_row() -> None:
    totals = (QuotaTotals(quota="producer_byte_rate", waiting=1, times=2, total_ms=200),)
    worker = status(
        pid=2, connections=3, throttled=(CLIENT,), throttles=(THROTTLE,), quota_totals=totals,
        buckets=(replace(BUCKET, observed=5.0, throttle_ms=100.0, last_minute_times=2, last_minute_held_ms=90),),
        listeners=(replace(LISTENER, connections=3),),
        thresholds=(ThresholdRow(broker="1", topic="t", threshold=5.0, observed=4.0),),
        last_hour=(HourRow(quota="q", user="", client_id="app", times=2, total_ms=9, minutes_ms=(4, 5)),),
    )  # fmt: skip
    other = replace(
        worker,
        pid=3,
        throttled=(replace(CLIENT, remaining_ms=70),),
        thresholds=(ThresholdRow(broker="1", topic="t", threshold=5.0, observed=4.5),),
    )
    rows = (WorkerRow(number=1, pid=2, connections=3, starts=1), WorkerRow(number=2, pid=3, connections=3, starts=2))
    ended = WorkerTotals(counters={"requests": 10}, quota_totals=totals)
    worker, other = replace(worker, longest_stall_ms=7.0), replace(other, longest_stall_ms=70.0)
    whole = merged(status(buckets=(BUCKET,), longest_stall_ms=8.0), [worker, other], rows, ended)
    assert whole.longest_stall_ms == 70.0
    assert (whole.pid, whole.connections, whole.workers) == (1, 6, rows)
    assert whole.listeners == (replace(LISTENER, connections=6),)
    assert whole.throttled == (replace(CLIENT, connections=2, remaining_ms=70),)
    assert whole.buckets == (replace(BUCKET, throttle_ms=100.0, last_minute_times=4, last_minute_held_ms=90),)
    (throttle,) = whole.throttles
    assert (throttle.times, throttle.total_ms, throttle.upstream_times, throttle.upstream_total_ms) == (4, 400, 2, 10)
    (hour,) = whole.last_hour
    assert (hour.times, hour.total_ms, hour.minutes_ms) == (4, 18, (8, 10))
    assert whole.counters == {"requests": 13}
    assert [(row.waiting, row.times, row.total_ms) for row in whole.quota_totals] == [(3, 6, 600)]
    assert [row.observed for row in whole.thresholds] == [4.5]


def test_a_daemon_whose_workers_do_not_answer_reports_what_it_knows() -> None:
    alone = status(buckets=(BUCKET,))
    assert merged(alone, [], (), WorkerTotals()) == replace(alone, listeners=(LISTENER,))
    assert sum_of([]) == WorkerTotals()


def test_clients_that_wait_for_one_bucket_are_counted_in_all_workers() -> None:
    app, other = (BucketId(1, Mode.KAFKA, QuotaType.PRODUCE, ("", name)) for name in ("app", "other"))

    async def waiting() -> Mapping[BucketId, int]:
        pool = WorkerPool(proxy_quotas(workers=3), MonotonicClock())
        counts: tuple[dict[BucketId, int], ...] = ({app: 2}, {}, {app: 2, other: 1})
        for number, each in enumerate(counts, start=1):
            pool._workers[number] = cast("WorkerProcess", SimpleNamespace(waiting=each))
        return pool.waiting()

    assert asyncio.run(waiting()) == {app: 4, other: 1}
