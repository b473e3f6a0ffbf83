"""validate, recommend and report over what real brokers logged: the request logs that come with the sources."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
from tests.support.pipeline.logs import ROOT
from tests.support.processes.run_cli import run_cli

from kafka_quotas.cli.demos.pipeline import Recording, steps
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.engine.sql import DuckTables
from kafka_quotas.pipeline.jobs.report import slots_of
from kafka_quotas.pipeline.jobs.validate import (
    BucketVerdict,
    checked,
    compared_rates,
    first_checks,
    scraped_rates,
)
from kafka_quotas.pipeline.tables import results
from kafka_quotas.pipeline.tables.results import REPLAYED, USED
from kafka_quotas.pipeline.tables.schemas import NAMES

IN_FORCE = str(ROOT / "examples/request-log/quotas.yaml")
WINDOW = ("--quota-window-num", "3")
START_MS = 1_795_262_400_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("sample") / "data")
    source = str(ROOT / "examples/request-log/{broker_id}/*.gz")
    code, _, err = run_cli("pipeline", "ingest", "--source", source, "--timezone", "UTC", "--out", folder)
    assert code == 0, err
    return folder


def document(*argv: str, code: int = 0) -> dict[str, Any]:
    found, out, err = run_cli(*argv, "--output", "json")
    assert found == code, err
    return json.loads(out)  # type: ignore[no-any-return]


def test_the_replay_throttles_as_real_brokers_did(data: str) -> None:
    found = document("pipeline", "validate", data, "--quotas", IN_FORCE, *WINDOW)
    assert found["schema"] == "kafka-quotas.pipeline-validate/1"
    assert set(found) == {"schema", "events", "seconds", "quotas", "tolerance", "ok", "buckets"}
    assert found["ok"] is True
    by_name = {(each["broker_id"], each["quota_type"], each["user"]): each for each in found["buckets"]}
    assert len(by_name) == 8
    for broker_id in (1, 2):
        produce = by_name[broker_id, "produce", "alice"]
        assert produce["observed_throttle_ms"] > 2000
        assert produce["throttle_error"] < 0.005, "bytes are estimated to a fraction of a percent"
        assert produce["observed_throttled"] == produce["simulated_throttled"] > 0
        fetch = by_name[broker_id, "fetch", "bob"]
        assert fetch["throttle_error"] is None, "the size of a throttled fetch is in no log"
        assert fetch["peak"] <= fetch["limit"] * 1.01
        assert fetch["verdict"] == "met"


def test_other_quotas_than_those_in_force_are_found_out(data: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("entries:\n  - {entity: {user: alice}, quotas: {producer_byte_rate: 400000}}\n")
    code, out, err = run_cli("pipeline", "validate", data, "--quotas", str(wrong), *WINDOW)
    assert code == 1
    assert "missed" in out
    assert "verdict: NOT met" in err
    assert re.search(r"missed: erin.* was throttled at broker 1, and no quota in the file concerns it", err)
    verdict = err.splitlines()[-1]
    code, out, err = run_cli("pipeline", "validate", data, "--quotas", str(wrong), *WINDOW, "--limit", "1")
    assert code == 1
    assert re.search(r", \d+ buckets more: --limit 0", out)
    assert err.splitlines()[-1] == verdict, "of all buckets"


def test_quotas_that_concern_nobody_prove_nothing(data: str, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("entries:\n  - {entity: {user: nobody}, quotas: {controller_mutation_rate: 5}}\n")
    code, _, err = run_cli("pipeline", "validate", data, "--quotas", str(other), *WINDOW)
    assert code == 1
    assert "NOT met" in err


def test_a_tolerance_below_nothing_is_refused(data: str) -> None:
    code, _, err = run_cli("pipeline", "validate", data, "--quotas", IN_FORCE, "--tolerance", "-1")
    assert code == 2
    assert "the tolerance must be 0 or more" in err


_BUCKETS = pa.schema(
    [USED.field(name) for name in (*NAMES, "quota", "max", "throttled", "throttle_ms")] + [("active_s", pa.int64())]
)
_REPLAYED = pa.schema([REPLAYED.field(name) for name in (*NAMES, "throttled_n", "throttle_ms")])
_RATES = pa.schema(
    [
        *(USED.field(name) for name in NAMES),
        ("scrapes", pa.int64()),
        ("scraped", pa.float64()),
        ("reckoned", pa.float64()),
    ]
)
_USUAL: dict[str, Any] = {
    "cluster": "c",
    "broker_id": 1,
    "quota_type": "produce",
    "user": "alice",
    "client_id": "",
    "quota": 100.0,
    "max": 150.0,
    "throttled": 0,
    "throttle_ms": 0,
    "active_s": 10,
}


def checks(
    *buckets: dict[str, Any], replayed: Sequence[dict[str, Any]] = (), rates: Sequence[dict[str, Any]] = ()
) -> tuple[DuckTables, str]:
    """The comparison of buckets with these figures, and the usual ones for the rest."""
    tables = DuckTables()
    added = [
        tables.add(name, pa.Table.from_pylist([_USUAL | each for each in rows], schema=schema))
        for name, rows, schema in (
            ("used", buckets, _BUCKETS),
            ("replayed", replayed, _REPLAYED),
            ("rates", rates, _RATES),
        )
    ]
    return tables, checked(tables, *added, tolerance=0.1)


def verdict(
    *, own_ms: int = 0, others_ms: int = 0, rate: dict[str, float] | None = None, **changed: Any
) -> BucketVerdict:
    buckets = [changed, {"quota_type": "request", "throttle_ms": others_ms}]
    replayed = [{"throttled_n": 1, "throttle_ms": own_ms}]
    replayed.append({"quota_type": "request", "throttled_n": 1, "throttle_ms": others_ms})
    tables, found = checks(*buckets[: 1 + (others_ms > 0)], replayed=replayed, rates=[rate] if rate else [])
    rows = tables.query(f"SELECT verdict FROM {found} WHERE quota_type <> 'request'").to_pylist()
    return BucketVerdict(rows[0]["verdict"]) if rows else BucketVerdict.OPEN


@pytest.mark.parametrize(
    ("observed_ms", "low_ms", "high_ms", "expected"),
    [
        (1000, 1000, 1000, BucketVerdict.MET),
        (1000, 1101, 1101, BucketVerdict.MISSED),
        (1000, 1099, 1099, BucketVerdict.MET),
        (1000, 500, 1500, BucketVerdict.MET),  # two quotas: anything between
        (1000, 500, 800, BucketVerdict.MISSED),
        (0, 100, 100, BucketVerdict.MET),  # 1 % of ten active seconds
        (0, 101, 101, BucketVerdict.MISSED),
    ],
)
def test_throttle_times_are_compared_with_a_range(
    observed_ms: int, low_ms: int, high_ms: int, expected: BucketVerdict
) -> None:
    assert verdict(throttle_ms=observed_ms, own_ms=low_ms, others_ms=high_ms - low_ms) is expected


def test_fetches_are_held_against_their_quota_and_rates_against_scrapes() -> None:
    assert verdict(quota=None) is BucketVerdict.OPEN
    assert verdict(quota_type="fetch", max=109.0) is BucketVerdict.MET
    assert verdict(quota_type="fetch", max=111.0) is BucketVerdict.MISSED
    assert verdict(quota=None, rate={"scrapes": 3, "scraped": 100.0, "reckoned": 91.0}) is BucketVerdict.MET
    assert verdict(quota=None, rate={"scrapes": 3, "scraped": 100.0, "reckoned": 89.0}) is BucketVerdict.MISSED


def test_of_many_buckets_as_many_are_named_as_asked_for_and_all_are_counted() -> None:
    names = [f"user-{number:02}" for number in range(20)]
    tables, found = checks(*({"user": name, "throttle_ms": int(name[-1] == "7") * 900} for name in names))
    for limit, expected in ((3, ["user-07", "user-17", "user-00"]), (None, ["user-07", "user-17", *names[:7]])):
        first = first_checks(tables, found, limit)
        assert first["user"].to_pylist()[: len(expected)] == expected
        assert first.num_rows == (limit or 20)
    counted = Counter(first["verdict"].to_pylist())
    assert counted == {BucketVerdict.MET: 18, BucketVerdict.MISSED: 2}


def test_scraped_rates_are_compared_where_the_window_is_full() -> None:
    names = _USUAL | {"bytes": 500, "window_s": 1}
    cells = [names | {"window_start_ms": START_MS + second * 1000} for second in range(30)]
    cells.append(names | {"window_start_ms": START_MS, "window_s": 60, "bytes": 15_000})
    schema = pa.schema([*(USED.field(name) for name in NAMES), *results.WINDOW])
    tables = DuckTables()
    windows = tables.add("windows", pa.Table.from_pylist(cells, schema=schema))
    rows = [(5, "1", 1.0), (20, "1", 520.0), (25, "1", 480.0), (25, "broker-1:9092", 1.0), (25, "1", float("nan"))]
    scrapes = [
        {
            "ts_ms": START_MS + second * 1000,
            "cluster": "c",
            "broker": broker,
            "quota_type": "produce",
            "user": "alice",
            "client_id": "",
            "metric": metric,
            "value": value,
        }
        for second, broker, value in rows
        for metric in ("byte_rate", "byte_rate_limit")
    ]
    window = QuotaWindow(samples=11, window_s=1)
    metrics = pa.Table.from_pylist(scrapes)

    def compared(rows: pa.Table) -> list[dict[str, Any]]:
        known = tables.define("scrapes", scraped_rates(tables.add("metrics", rows)))
        return tables.query(compared_rates(tables, known, windows, window)).to_pylist()

    (found,) = compared(metrics)
    assert list(found.values()) == ["c", 1, "produce", "alice", "", 2, 500.0, 500.0]
    assert compared(metrics.slice(0, 1)) == [], "the window is not full"


def test_of_many_buckets_those_count_that_may_be_compared() -> None:
    free = {"quota": None, "max": 1.0}
    buckets = [{"user": "limited"}, *({"user": name} | free for name in ("throttled", "scraped", "other", ""))]
    buckets[1]["throttle_ms"] = 7
    tables, found = checks(*buckets, rates=[{"user": "scraped", "scrapes": 1, "scraped": 1.0, "reckoned": 1.0}])
    assert first_checks(tables, found, None)["user"].to_pylist() == ["limited", "scraped", "throttled"]


def test_requests_are_shared_with_quotas_of_request_time_alone() -> None:
    given: list[tuple[str, str, str, int]] = [
        ("request", "alice", "", 1),
        ("request", "bob", "app", 2),
        ("produce", "alice", "app", 4),
        ("fetch", "", "app", 8),  # by what was observed, for nothing of it is replayed
    ]
    wanted = [("produce", "", "app"), ("produce", "carol", "app"), ("request", "bob", "other"), ("request", "", "")]
    buckets = [
        *(
            {"quota_type": kind, "user": user, "client_id": name, "throttle_ms": ms * 8}
            for kind, user, name, ms in given
        ),
        *({"quota_type": kind, "user": user, "client_id": name} for kind, user, name in wanted),
        {"quota_type": "request", "broker_id": 2, "throttle_ms": 1000},
    ]
    replayed = [row | {"throttled_n": 1, "throttle_ms": ms} for row, (*_, ms) in zip(buckets, given, strict=False)]
    tables, checked_rows = checks(*buckets, replayed=replayed)
    found = tables.query(f"SELECT * FROM {checked_rows}").to_pylist()
    added = {(row["broker_id"], row["quota_type"], row["user"], row["client_id"]): row["others_ms"] for row in found}
    assert added == {
        (1, "request", "alice", ""): 4 + 64,
        (1, "request", "bob", "app"): 64,
        (1, "produce", "alice", "app"): 1,
        (1, "fetch", "", "app"): 1 + 2,
        (1, "produce", "", "app"): 1 + 2,
        (1, "produce", "carol", "app"): 0,
        (1, "request", "bob", "other"): 0,
        (1, "request", "", ""): 4 + 64,
        (2, "request", "alice", ""): 0,
    }


def test_a_recommendation_has_its_document_and_explains_each_client(data: str, tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    found = document("pipeline", "recommend", data, *WINDOW, "--min-recorded", "30s", "--file", str(file))
    assert found["schema"] == "kafka-quotas.pipeline-recommend/1"
    assert set(found) == {"schema", "events", "seconds", "cluster", "default_of", "enough_data", "quotas", "groups"}
    kinds = {(each["quota_type"], each["kind"]): each for each in found["quotas"]}
    assert kinds["produce", "override"]["user"] == "alice"
    assert kinds["produce", "override"]["value"] > kinds["produce", "default"]["value"]
    code, out, _ = run_cli("diff", str(file), "--store", f"local:{tmp_path / 'q.db'}")
    assert code == 0
    assert "alice" in out
    told = document("pipeline", "recommend", data, *WINDOW, "--explain", "alice")
    assert told["schema"] == "kafka-quotas.pipeline-recommend-explain/1"
    assert {each["quota_type"] for each in told["quotas"]} == {"produce", "fetch", "request"}
    (why,) = [each["why"] for each in told["quotas"] if each["quota_type"] == "produce"]
    assert "of its own: producer_byte_rate: at least 1.098 MB/s, which its throttle times imply" in why
    code, _, err = run_cli("pipeline", "recommend", data, *WINDOW, "--file", str(tmp_path / "none.yaml"))
    assert code == 2
    assert "not enough data for a file of quotas: 40 s are recorded, 86,400 s are wanted" in err
    assert not (tmp_path / "none.yaml").exists()
    code, _, err = run_cli("pipeline", "recommend", data, *WINDOW)
    assert "warning: fetch: the demand of user bob is unknown: it was held back for 100% of its time" in err
    assert "warning: not enough data" in err
    code, _, err = run_cli("pipeline", "recommend", data, *WINDOW, "--explain", "mallory")
    assert code == 2
    assert "no events of user mallory" in err


def test_a_report_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    code, _, err = run_cli("pipeline", "report", str(tmp_path), "--out", str(tmp_path / "none" / "r.html"))
    assert code == 2
    assert "there is no folder" in err


@pytest.mark.parametrize(
    ("seconds", "columns", "first", "recorded"),
    [
        (1, 1, "12:00:00", 1.0),
        (40, 40, "12:00:00", 40.0),
        (3600, 30, "12:00", 3600.0),
        (86_400 * 2, 24, "00", 172_800.0),
    ],
)
def test_time_is_cut_into_columns_that_can_be_read(seconds: int, columns: int, first: str, recorded: float) -> None:
    slots = slots_of(START_MS, START_MS + seconds * 1000 - 1)
    assert len(slots.names) == columns
    assert slots.names[0] == first
    assert sum(slots.seconds) == recorded


def test_the_demo_does_without_java_and_its_report_is_one_page_that_stands_alone(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    nowhere = {"JAVA_HOME": str(tmp_path / "none")}
    code, told, err = run_cli("pipeline", "demo", "--out", str(out), environment=nowhere)
    assert code == 0, err
    assert "note: no broker of our own: Spark needs Java" in err
    assert "engine spark" not in err
    steps = [line.split()[2:4] for line in told.splitlines() if line.startswith("$ kafka-quotas ")]
    verbs = [second if first == "pipeline" else first for first, second in steps]
    assert verbs == ["ingest", "usage", "replay", "recommend", "report", "apply", "describe"]
    assert "producer_byte_rate" in (out / "journal.jsonl").read_text()  # not in the user's
    stored = document("describe", "--store", f"local:{out / 'quotas.db'}")
    assert {"producer_byte_rate", "consumer_byte_rate"} <= {key for each in stored["entries"] for key in each["quotas"]}
    page = (out / "report.html").read_text(encoding="utf-8")
    for question in ("Which limits to set", "Who uses the most?", "When?", "What if the limit were lower"):
        assert question in page
    assert "3 clients" in page, "alice, bob and erin were slowed down"
    assert "carol@payments" in page
    assert not re.search(r"""<script|<link|(?:src|href)=["'](?!#|data:)""", page), "it loads nothing"
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) >= 8
    for drawing in drawings:
        ET.fromstring(drawing)


def test_every_job_of_the_demo_runs_on_spark_where_it_can(tmp_path: Path) -> None:
    for has_spark, engine in ((True, "spark"), (False, "local")):
        recording = Recording(
            logs=tmp_path,
            in_force=tmp_path / "in-force.yaml",
            window=DEFAULT_WINDOW,
            has_spark=has_spark,
            default_of="user",
            tight="1k",
            generous="1M",
        )
        commands = [arguments for _, arguments in steps(tmp_path, recording)]
        jobs = [command for command in commands if command[0] == "pipeline"]
        assert [command[1] for command in jobs] == ["ingest", "usage", "replay", "recommend", "report"]
        assert [command[-2:] for command in jobs] == [["--engine", engine]] * 5
        assert not any("--engine" in command for command in commands if command not in jobs)


def test_the_demo_leaves_folders_of_others_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    code, _, err = run_cli("pipeline", "demo", "--out", str(tmp_path))
    assert code == 2
    assert "holds other things than an earlier demo" in err
    assert (tmp_path / "mine.txt").read_text() == "mine"
