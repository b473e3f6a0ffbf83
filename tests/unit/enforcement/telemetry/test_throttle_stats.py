"""The throttle times of the last hour."""

from tests.support.daemon.whole_run import run_whole

from kafka_quotas.enforcement.telemetry.status import HourRow
from kafka_quotas.enforcement.telemetry.throttle_stats import (
    HOUR_ROWS,
    MINUTE_BUCKETS,
    MINUTE_MS,
    MINUTE_NAME_BYTES,
    ThrottleHistory,
)

APP = ("producer_byte_rate", "alice", "app")
BOB = ("producer_byte_rate", "bob", "")
START_MS = 1_000 * MINUTE_MS


def rows(history: ThrottleHistory, now_ms: int) -> tuple[HourRow, ...]:
    return run_whole(history.rows(now_ms))


def test_throttle_times_are_summed_by_minute_the_present_one_last() -> None:
    history = ThrottleHistory()
    history.add(APP, 100, START_MS)
    history.add(APP, 50, START_MS + MINUTE_MS - 1)
    history.add(APP, 7, START_MS + 2 * MINUTE_MS)
    (row,) = rows(history, START_MS + 2 * MINUTE_MS)
    assert (row.times, row.total_ms, row.minutes_ms[-4:]) == (3, 157, (0, 150, 0, 7))
    assert len(row.minutes_ms) == 60


def test_what_is_older_than_an_hour_is_forgotten() -> None:
    history = ThrottleHistory()
    history.add(APP, 100, START_MS)
    assert rows(history, START_MS + 59 * MINUTE_MS)[0].minutes_ms[0] == 100
    assert rows(history, START_MS + 60 * MINUTE_MS) == ()


def test_those_throttled_longest_come_first() -> None:
    history = ThrottleHistory()
    history.add(APP, 10, START_MS)
    history.add(BOB, 11, START_MS)
    assert [row.user for row in rows(history, START_MS)] == ["bob", "alice"]


def test_a_clock_that_goes_back_loses_nothing() -> None:
    history = ThrottleHistory()
    history.add(APP, 10, START_MS)
    history.add(APP, 10, START_MS - 5 * MINUTE_MS)
    assert rows(history, START_MS)[0].minutes_ms[-1] == 20
    assert rows(history, START_MS - 5 * MINUTE_MS)[0].total_ms == 20


def test_no_number_of_buckets_fills_memory() -> None:
    history = ThrottleHistory()
    for number in range(MINUTE_BUCKETS + 500):
        history.add(("producer_byte_rate", "", f"c{number}"), 1, START_MS)
    assert len(history._minutes[0].sums) == MINUTE_BUCKETS + 1
    found = rows(history, START_MS)
    assert len(found) == HOUR_ROWS
    assert (found[0].client_id, found[0].times) == ("(others)", 500)


def test_no_length_of_names_fills_memory() -> None:
    history = ThrottleHistory()
    for number in range(100):
        history.add(("producer_byte_rate", "", "x" * 32_000 + str(number)), 1, START_MS)
    kept = [name for _, _, name in history._minutes[0].sums]
    assert sum(map(len, kept)) <= MINUTE_NAME_BYTES
    assert "(others)" in kept
