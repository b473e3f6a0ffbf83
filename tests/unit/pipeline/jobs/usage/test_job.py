"""The usage of recorded events on this machine, against plain sums and `core`'s own rate."""

import math
from collections import defaultdict
from pathlib import Path

import pytest
from tests.support.pipeline.events import BASE_MS, events_folder, events_table, proposal, random_events, run_locally

from kafka_quotas.core.metrics.rate import Rate
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.charges import BucketRows
from kafka_quotas.pipeline.buckets.proposal import BucketName, ProposedQuotas, partition_columns
from kafka_quotas.pipeline.engine.sql import DuckTables
from kafka_quotas.pipeline.jobs.usage.job import UsagePlan, UsageTables, usage_job, usage_task
from kafka_quotas.pipeline.tables.schemas import NAMES

NOTHING = proposal("nothing")
USERS = proposal("users", (Entity.of(user=None), {"producer_byte_rate": 20_000.0}))


def used(folder: Path, quotas=NOTHING, *, seconds: int = 120) -> UsageTables:
    plan, tables = UsagePlan(quotas=quotas, seconds=seconds, windows_s=(1, 60, 3600)), DuckTables()
    return UsageTables.of(tables, tables.add("usage", run_locally(usage_job(plan), folder)))


def windows(found: UsageTables) -> list[dict]:
    return found.tables.query(f"SELECT * FROM {found.windows}").to_pylist()


def key(row: dict) -> tuple:
    return tuple(row[name] for name in NAMES)


def charged(rows: list[dict], quota_type: str) -> list[dict]:
    """The rows that a quota type is charged for, with the amount in its unit, by time and amount."""
    found = []
    for row in rows:
        if row["is_exempt"]:
            continue
        if quota_type == "request" and row["thread_ms"] is not None:
            found.append({**row, "amount": row["thread_ms"] * 0.1})
        elif quota_type == row["quota_type"] != "request":
            found.append({**row, "amount": float(row["mutations"] or row["bytes"])})
    return sorted(found, key=lambda row: (row["ts_ms"], row["amount"]))


def test_cells_and_rates_are_those_of_plain_sums_and_of_core(tmp_path: Path) -> None:
    rows = random_events(2_000, seed=6)
    tables = used(events_folder(tmp_path / "data", rows, ingests=2))
    buckets = tables.ranked(None).to_pylist()
    rows_of_windows = windows(tables)
    cells = {(*key(row), row["window_s"], row["window_start_ms"]): row for row in rows_of_windows}
    assert (len(cells), len(buckets)) == (len(rows_of_windows), tables.count())
    expected_count = 0
    for bucket in buckets:
        own = [
            row
            for row in charged(rows, bucket["quota_type"])
            if (row["broker_id"], row["user"], row["client_id"])
            == (bucket["broker_id"], bucket["user"], bucket["client_id"])
        ]
        expected_count += _cells_agree(cells, key(bucket), own)
        _profile_agrees(bucket, own)
        _totals_agree(bucket, own)
    assert len(cells) == expected_count


def _cells_agree(cells: dict, bucket: tuple, own: list[dict]) -> int:
    """How many cells were expected, all of which agree."""
    by_second: dict[int, float] = defaultdict(float)
    for row in own:
        by_second[row["ts_ms"] // 1000] += row["amount"]
    count = 0
    for window_s in (1, 60, 3600):
        windows: dict[int, list[dict]] = defaultdict(list)
        for row in own:
            windows[row["ts_ms"] // (window_s * 1000)].append(row)
        for window, inside in windows.items():
            cell = cells[*bucket, window_s, window * window_s * 1000]
            assert cell["requests"] == len(inside)
            assert cell["bytes"] == sum(row["bytes"] for row in inside)
            assert cell["mutations"] == sum(row["mutations"] for row in inside)
            assert cell["throttle_ms"] == sum(row["throttle_ms"] for row in inside)
            assert cell["throttled"] == sum(row["throttle_ms"] > 0 for row in inside)
            assert cell["thread_ms"] == pytest.approx(sum(row["thread_ms"] or 0.0 for row in inside))
            seconds = {row["ts_ms"] // 1000 for row in inside}
            assert cell["peak_rate"] == pytest.approx(max(by_second[second] for second in seconds))
            count += 1
    return count


def _profile_agrees(profile: dict, own: list[dict]) -> None:
    rate = Rate(DEFAULT_WINDOW.samples, DEFAULT_WINDOW.window_ms)
    peaks: dict[int, float] = defaultdict(float)
    throttled: dict[int, bool] = defaultdict(bool)
    amounts: dict[int, float] = defaultdict(float)
    for row in own:
        rate.record(row["amount"], row["ts_ms"])
        second = row["ts_ms"] // 1000
        peaks[second] = max(peaks[second], rate.measure(row["ts_ms"]))
        throttled[second] |= row["throttle_ms"] > 0
        amounts[second] += row["amount"]
    ordered = sorted(peaks.values())
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)):
        assert profile[name] == ordered[math.ceil(share * len(ordered)) - 1]
    assert profile["active_share"] == len(peaks) / 120
    assert profile["throttled_share"] == sum(throttled.values()) / len(peaks)
    mean = sum(amounts.values()) / len(amounts)
    assert profile["burst_ratio"] == pytest.approx(max(amounts.values()) / mean)


def _totals_agree(bucket: dict, own: list[dict]) -> None:
    for name in ("bytes", "mutations", "throttle_ms"):
        assert bucket[name] == sum(row[name] for row in own)
    assert bucket["thread_ms"] == pytest.approx(sum(row["thread_ms"] or 0.0 for row in own))
    assert (bucket["requests"], bucket["throttled"]) == (len(own), sum(row["throttle_ms"] > 0 for row in own))


def test_quotas_in_force_tell_buckets_and_limits(tmp_path: Path) -> None:
    rows = random_events(800)
    tables = used(events_folder(tmp_path / "data", rows), USERS)
    produce = [row for row in tables.ranked(None).to_pylist() if row["quota_type"] == "produce"]
    assert {row["client_id"] for row in produce} == {""}
    assert {(row["matched_level"], row["quota"]) for row in produce} == {(6, 20_000.0)}
    fetch = [row for row in tables.ranked(None).to_pylist() if row["quota_type"] == "fetch"]
    assert {row["quota"] for row in fetch} == {None}
    assert {row["client_id"] for row in fetch} > {"client-0", "client-1"}
    whole = [row for row in windows(tables) if row["window_s"] == 3600 and row["quota_type"] == "produce"]
    assert sum(row["bytes"] for row in whole) == sum(row["bytes"] for row in charged(rows, "produce"))


def test_no_events_give_empty_tables(tmp_path: Path) -> None:
    tables = used(events_folder(tmp_path / "none", []))
    assert (tables.count(), len(windows(tables)), tables.ranked(5).num_rows) == (0, 0, 0)
    exempt = [{"is_exempt": True, "bytes": 5}, {"quota_type": "request", "thread_ms": None}]
    assert usage_task([events_table(exempt)], UsagePlan(quotas=NOTHING, seconds=1)).num_rows == 0


def test_requests_of_the_daemons_own_quota_are_counted() -> None:
    rows = [{"quota_type": "request_rate", "ts_ms": BASE_MS + second * 1000} for second in (0, 0, 1)]
    (profile,) = usage_task([events_table(rows)], UsagePlan(quotas=NOTHING, seconds=2)).to_pylist()
    assert (profile["quota_type"], profile["requests"], profile["burst_ratio"]) == ("request_rate", 3, 2 / 1.5)


def test_an_event_of_nothing_bursts_like_its_mean() -> None:
    rows = [{"ts_ms": BASE_MS, "bytes": 0}]
    (profile,) = usage_task([events_table(rows)], UsagePlan(quotas=NOTHING, seconds=1)).to_pylist()
    assert (profile["burst_ratio"], profile["max"], profile["active_share"]) == (1.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("entities", "columns"),
    [
        ([], ("user", "client_id")),
        ([Entity.of(user=None, client_id=None)], ("user", "client_id")),
        ([Entity.of(user="a")], ("user",)),
        ([Entity.of(client_id=None)], ("client_id",)),
        ([Entity.of(user="a"), Entity.of(user=None, client_id=None)], ()),
        ([Entity.of(user="a"), Entity.of(client_id="x")], ()),
    ],
)
def test_what_keeps_sharers_together_follows_from_the_levels_in_use(entities, columns) -> None:
    quotas = proposal("any", *((entity, {"producer_byte_rate": 1.0}) for entity in entities))
    assert partition_columns([quotas]) == ("cluster", "broker_id", *columns)
    clients = [BucketName("c", 1, user, client) for user in ("a", "b", "") for client in ("x", "y", "")]
    buckets = BucketRows([ProposedQuotas(quotas, QuotaType.PRODUCE)])
    rows = buckets.grow(clients)
    for first, one in zip(clients, rows, strict=True):
        for second, other in zip(clients, rows, strict=True):
            if one == other and columns:
                assert [getattr(first, name) for name in columns] == [getattr(second, name) for name in columns]


def test_static_quotas_are_found_below_all_others() -> None:
    static = ((Entity.of(client_id=None), {"producer_byte_rate": 7.0}),)
    quotas = ProposedQuotas(proposal("static").__class__(name="s", entries=(), static=static), QuotaType.PRODUCE)
    assert quotas.partition_columns == {"client_id"}
    assert quotas.match(quotas.bucket("a", "x")).limit == 7.0
    assert ProposedQuotas(NOTHING, QuotaType.PRODUCE).match(("a", "x")) is None


def test_a_new_client_gets_a_row_of_its_own_and_old_ones_keep_theirs() -> None:
    buckets = BucketRows([ProposedQuotas(USERS, QuotaType.PRODUCE)])
    first = [BucketName("c", 1, "a", "x"), BucketName("c", 2, "a", "x")]
    assert buckets.grow(first).tolist() == [0, 1]
    assert buckets.grow([*first, BucketName("c", 1, "a", "y"), BucketName("c", 1, "b", "y")]).tolist() == [
        0,
        1,
        0,
        2,
    ]
    assert buckets.bounds().tolist() == [[20_000.0]] * 3
