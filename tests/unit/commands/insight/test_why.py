"""`top` and `why` over readings: limits from the store, order, verdicts, and what is said where nothing is seen."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.statuses import bucket_row, daemon_status, waiting_client
from tests.support.processes.run_cli import done, printed, run_cli
from tests.support.stores.stored_quotas import new_store

from kafka_quotas.commands.insight.usage import UsageReading, UsageSource, usage_of_daemon
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import NOT_THROTTLED, QuotaWindow, RecentThrottling
from kafka_quotas.core.resolution.quota_resolver import GROUP_USER, GUARANTEED_USER
from kafka_quotas.core.resolution.usage import Usage
from kafka_quotas.enforcement.telemetry.status import BucketRow, DaemonStatus

MINUTE = ("throttled_times", "throttled_total_ms", "throttled_share")
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
Feed = Callable[..., None]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return new_store(
        tmp_path,
        {
            Entity.of(user="alice"): {PRODUCE: 5e6, FETCH: 9223372036854775807.0},
            Entity.of(user="bob", client_id="app"): {PRODUCE: 2e6},
            Entity.of(client_id="batch"): {PRODUCE: 1e6},
        },
    )


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Feed:
    """Makes both commands read these usages."""

    def put(*usages: Usage, store_url: str | None = None) -> None:
        def read(source: UsageSource) -> UsageReading:
            return UsageReading(origin="a test", usages=usages, store_url=store_url)

        monkeypatch.setattr("kafka_quotas.commands.insight.usage.read_usage", read)

    return put


def usage(user: str, client_id: str, observed: float, throttle_ms: float | None = 0.0, **more: Any) -> Usage:
    fixed: dict[str, Any] = {"broker": "1", "key": PRODUCE} | more
    return Usage(user=user, client_id=client_id, observed=observed, throttle_ms=throttle_ms, **fixed)


SEEN = (
    usage("alice", "", 4e6, 0.0),
    usage("alice", "", 6e6, 2000.0, broker="2"),
    usage("bob", "app", 1e6),
    usage("", "batch", 990e3),
    usage("zoe", "new", 7e6, None),
    usage("alice", "", 9e6, 0.0, key=FETCH),
)


def rows(store: str, *options: str) -> list[dict[str, Any]]:
    out = done("top", "--store", store, "--once", "--output", "json", *options)
    document = json.loads(out)
    assert document["schema"] == "kafka-quotas.top/1"
    found: list[dict[str, Any]] = document["rows"]
    return found


def test_a_request_rate_that_a_policy_limits_is_a_row_as_well(store: str, feed: Feed) -> None:
    feed(usage("alice", "", 80.0, 500.0, key="request_rate", limit=50.0))
    (row,) = rows(store)
    assert (row["key"], row["limit"], row["share"]) == ("request_rate", 50.0, 1.6)
    out = done("top", "--store", store, "--once")
    assert "50/s" in out


def test_rows_carry_the_limit_and_the_level_that_set_it(store: str, feed: Feed) -> None:
    feed(*SEEN)
    first = rows(store)[0]
    assert first == {
        "user": "alice",
        "client_id": "",
        "key": PRODUCE,
        "limit": 5000000,
        "level": 3,
        "entity": {"user": "alice"},
        "throttled": True,
        "broker": "2",
        "observed": 6000000,
        "share": 1.2,
        "throttle_ms": 2000,
        "last_minute": None,
    }
    by_name = {(row["user"], row["client_id"], row["key"]): row for row in rows(store)}
    assert by_name[("bob", "app", PRODUCE)]["level"] == 1
    assert by_name[("", "batch", PRODUCE)]["level"] == 7
    assert by_name[("zoe", "new", PRODUCE)]["limit"] is None
    assert by_name[("alice", "", FETCH)]["share"] is None


@pytest.mark.parametrize(
    ("sort", "first", "last"),
    [
        ("share", ("alice", "2"), ("zoe", "1")),
        ("rate", ("alice", "1"), ("", "1")),
        ("throttle", ("alice", "2"), ("zoe", "1")),
        ("name", ("", "1"), ("zoe", "1")),
    ],
)
def test_rows_are_sorted_as_asked(
    store: str, feed: Feed, sort: str, first: tuple[str, str], last: tuple[str, str]
) -> None:
    feed(*SEEN)
    found = [(row["user"], row["broker"]) for row in rows(store, "--sort", sort)]
    assert (found[0], found[-1]) == (first, last)


def test_the_table_says_how_many_are_left_out(store: str, feed: Feed) -> None:
    feed(*SEEN)
    out = done("top", "--store", store, "--limit", "2")
    lines = out.splitlines()
    assert lines[0] == "a test: 2 buckets, 1 throttled, 4 more not shown"
    assert lines[3].split() == ["user", "alice", "produce", "2", "6", "MB/s", "5", "MB/s", "120%", "2000", "ms", "3"]
    assert len(lines) == 5


def test_nothing_seen_is_explained_with_the_default_that_starts_the_metrics(tmp_path: Path, feed: Feed) -> None:
    feed()
    code, out, err = run_cli("top", "--store", new_store(tmp_path, {}), "--once")
    assert code == 0
    assert out.startswith("a test: 0 buckets")
    assert "only after a quota of that type existed" in err
    assert (
        "  kafka-quotas alter --user-default --add-config producer_byte_rate=unlimited,consumer_byte_rate=unlimited,"
        "request_percentage=unlimited,controller_mutation_rate=unlimited" in err.splitlines()
    )


def test_a_default_is_offered_only_for_keys_that_nothing_is_stored_for(store: str, feed: Feed) -> None:
    feed()
    _, _, err = run_cli("top", "--store", store, "--once")
    assert "--add-config request_percentage=unlimited,controller_mutation_rate=unlimited\n" in err
    assert f"for {PRODUCE}, {FETCH} there are quotas" in err


def test_without_a_store_the_one_of_the_daemon_is_asked(store: str, feed: Feed) -> None:
    feed(SEEN[0], store_url=store)
    code, out, _ = run_cli("top", "--once", "-o", "json")
    document = json.loads(out)
    assert (code, document["store"], document["rows"][0]["level"]) == (0, store, 3)


def test_the_live_table_ends_with_ctrl_c(store: str, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(*SEEN)

    def interrupted(_timeout: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kafka_quotas.cli.insight.top.time.sleep", interrupted)
    code, out, err = run_cli("top", "--store", store, terminal=True)
    assert (code, err) == (130, "")
    assert "user alice" in out


def why(store: str, *options: str) -> dict[str, Any]:
    out = printed("why", "--store", store, "--output", "json", *options)
    document: dict[str, Any] = json.loads(out)
    assert document["schema"] == "kafka-quotas.why/1"
    return document


def test_a_client_that_is_held_back_is_told_by_what_and_what_would_end_it(store: str, feed: Feed) -> None:
    feed(*SEEN)
    document = why(store, "--user", "alice", "--client", "app")
    assert document["throttled_by"] == PRODUCE
    answer = document["answers"][0]
    assert [(row["broker"], row["share"], row["throttle_ms"]) for row in answer["brokers"]] == [
        ("1", 0.8, 0),
        ("2", 1.2, 2000),
    ]
    assert (answer["limit"], answer["level"], answer["ends_at"]) == (5000000, 3, 6000000)
    out = printed("why", "--store", store, "--user", "alice", "--client", "app")
    assert out.split("\n\n")[1] == (
        f"yes: {PRODUCE} holds user alice, client-id app back: 6 MB/s against 5 MB/s, set on user alice, "
        "throttled for 2000 ms\n"
        "the bucket is used by all client-ids of user alice except those with a user+client-id quota; the limit "
        "holds per broker\n"
        f"{PRODUCE}=7200000 (7.2 MB/s) would end it at the present demand, with a fifth to spare; "
        "a client that was held back may ask for more\n"
    )


@pytest.mark.parametrize(("is_waiting", "end"), [(True, ""), (False, "; not at this instant")])
def test_the_last_minute_decides_and_not_one_instant(store: str, feed: Feed, is_waiting: bool, end: str) -> None:
    recent = RecentThrottling(times=36, total_ms=41_234, held_ms=40_800)
    feed(usage("alice", "", 1e6, 0.0, last_minute=recent, is_waiting=is_waiting))
    document = why(store, "--user", "alice", "--client", "app")
    assert document["throttled_by"] == PRODUCE
    assert document["verdict"][0] == (
        f"yes: {PRODUCE} holds user alice, client-id app back: 1 MB/s against 5 MB/s, set on user alice, "
        f"throttled 36 times for 41.2 s in the last minute, 68% of it{end}"
    )
    assert document["answers"][0]["brokers"][0]["last_minute"] == {
        "times": 36,
        "total_ms": 41234,
        "held_ms": 40800,
        "share": 0.68,
    }
    _, out, _ = run_cli("top", "--store", store)
    assert out.startswith(f"a test: 1 bucket, 1 throttled in the last minute, {int(is_waiting)} at this instant\n")
    assert "36x 41.2 s, 68%" in out


QUIET = usage("alice", "", 1e6, 0.0, last_minute=NOT_THROTTLED, is_waiting=False)


@pytest.mark.parametrize(
    ("seen", "user", "client_id", "verdict"),
    [
        (SEEN, "bob", "app", "no: no quota holds {0} back now; at most 50% of {1} is used"),
        (SEEN, "carol", "x", "not known: no rates were seen for {0}"),
        (
            (QUIET,),
            "alice",
            "app",
            "no: no quota held {0} back in the last minute; at most 20% of {1} is used",
        ),
    ],
)
def test_a_client_that_is_not_held_back_or_was_not_seen(
    store: str, feed: Feed, seen: tuple[Usage, ...], user: str, client_id: str, verdict: str
) -> None:
    feed(*seen)
    document = why(store, "--user", user, "--client", client_id)
    assert document["throttled_by"] is None
    assert document["verdict"] == [verdict.format(f"user {user}, client-id {client_id}", PRODUCE)]


def test_the_limit_that_the_source_enforces_counts(store: str, feed: Feed) -> None:
    feed(usage("alice", "", 3e6, 500.0, limit=2e6))
    answer = why(store, "--user", "alice")["answers"][0]
    assert (answer["limit"], answer["ends_at"]) == (2000000, 3000000)


def test_what_was_not_given_is_said(store: str, feed: Feed) -> None:
    feed(*SEEN)
    _, _, err = run_cli("why", "--store", store, "--client", "batch")
    assert err.startswith("note: no user was given")
    _, _, err = run_cli("why", "--store", store, "--user", "alice")
    assert err.startswith("note: no client-id was given")
    assert run_cli("why", "--store", store)[0] == 2


@pytest.mark.parametrize(
    "options", [["--control", "x", "--prometheus", "http://h/m"], ["--metric-names", "f"], ["--prometheus", "h:7071"]]
)
def test_sources_that_cannot_be_meant(store: str, options: list[str]) -> None:
    assert run_cli("top", "--store", store, *options)[0] == 2


def test_effective_quotas_with_usage(store: str, feed: Feed) -> None:
    feed(*SEEN)
    options = ("describe", "--store", store, "--effective", "--user", "alice", "--client", "app", "--with-usage")
    out = printed(*options)
    assert "  at broker 2: 6 MB/s, 120% used, throttled for 2000 ms\n" in out
    out = printed(*options, "--output", "json")
    quota = json.loads(out)["clients"][0]["quotas"][0]
    assert quota["usage"] == [
        {"broker": "1", "observed": 4000000, "share": 0.8, "throttle_ms": 0, "last_minute": None},
        {"broker": "2", "observed": 6000000, "share": 1.2, "throttle_ms": 2000, "last_minute": None},
    ]


def test_usage_goes_with_effective_only(store: str) -> None:
    code, _, err = run_cli("describe", "--store", store, "--with-usage")
    assert (code, err.splitlines()[0]) == (2, "error: --with-usage: only with --effective")
    code, _, err = run_cli("describe", "--store", store, "--effective", "--user", "a", "--prometheus", "http://h/m")
    assert (code, err.splitlines()[0]) == (2, "error: --prometheus goes with --with-usage")


def test_a_daemons_throttle_times_are_those_of_the_clients_that_wait() -> None:
    status = status_of(
        bucket_row(broker="1", user="al%20ice", client_id="", limit=5e6, observed=6e6),
        bucket_row(broker="2", user="al%20ice", client_id="", limit=5e6, observed=1e6),
        bucket_row(broker="1", user="", client_id="app", limit=5e6, observed=1e6),
    )
    reading = usage_of_daemon(status)
    assert reading.window == QuotaWindow(samples=3, window_s=2)
    assert [(seen.broker, seen.user, seen.client_id, seen.throttle_ms, seen.limit) for seen in reading.usages] == [
        ("1", "al ice", "", 700.0, 5e6),
        ("2", "al ice", "", 0.0, 5e6),
        ("1", "", "app", 700.0, 5e6),
    ]


def status_of(*buckets: BucketRow) -> DaemonStatus:
    waiting = waiting_client(user="al ice", client_id="app", limit=5e6, observed=6e6, throttle_ms=700, remaining_ms=300)
    return daemon_status(pid=7, window_num=3, window_size_seconds=2, throttled=(waiting,), buckets=buckets)


@pytest.mark.parametrize(
    "options", [("why", "--user", "alice", "--client", "app"), ("top", "--once"), ("top", "--once", "--limit", "1")]
)
def test_tables_fit_a_terminal_of_80_columns(store: str, feed: Feed, options: tuple[str, ...]) -> None:
    feed(*SEEN, usage("a.very.long.user.name.of.some.team", "and-a-client-id-as-long", 4e9, 30000.0))
    out = printed(*options, "--store", store, terminal=True)
    tables = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out).split("\n\n")[0]
    assert max(len(line) for line in tables.splitlines()) <= 80
    assert "2000 ms" in tables


POLICY = """
[[group]]
name = "payments"
producer_byte_rate = "5MB"

[[group]]
name = "payments/checkout"
members = [{ user = "alice" }]
guaranteed = { producer_byte_rate = "2MB" }

[[group]]
name = "payments/reports"
members = [{ user = "bob" }]
"""
MINUTE_OF_GROUP = RecentThrottling(times=12, total_ms=9000, held_ms=8000)


def of_groups(guaranteed: float) -> tuple[Usage, ...]:
    """The group is throttled at 6 of 5 MB/s, and `payments/checkout` uses so much of the 2 MB/s guaranteed to it."""
    group = usage(GROUP_USER, "payments", 6e6, 700.0, limit=5e6, last_minute=MINUTE_OF_GROUP)
    inner = usage(GUARANTEED_USER, "payments/checkout", guaranteed, 0.0, limit=2e6, last_minute=NOT_THROTTLED)
    return group, inner, usage("alice", "", 1e6, limit=5e6, last_minute=NOT_THROTTLED)


@pytest.fixture
def policy(tmp_path: Path) -> str:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY, encoding="utf-8")
    return str(file)


def why_of(store: str, *options: str) -> Any:
    return json.loads(done("why", "--store", store, "--output", "json", *options))


def test_top_shows_groups_by_name(store: str, feed: Feed) -> None:
    feed(*of_groups(3e6))
    shown = [(row["user"], row["client_id"], row["level"], row["entity"]) for row in rows(store)]
    assert shown == [
        (":guaranteed", "payments/checkout", "guaranteed", {"group": "payments/checkout"}),
        (":group", "payments", "group", {"group": "payments"}),
        ("alice", "", 3, {"user": "alice"}),
    ]
    table = done("top", "--store", store, "--once")
    assert "guaranteed rate of group payments/checkout" in table
    assert re.search(r"^group payments +produce ", table, re.MULTILINE)


def test_the_limit_of_a_group_is_named_where_it_holds_a_client_back(store: str, feed: Feed, policy: str) -> None:
    feed(*of_groups(3e6))
    found = why_of(store, "--user", "alice", "--client", "app", "--policy", policy)
    assert (found["group"], found["throttled_by"]) == ("payments/checkout", PRODUCE)
    said = found["verdict"]
    assert said[0].startswith(
        f"yes: {PRODUCE} holds user alice, client-id app back: 6 MB/s against 5 MB/s, set on group payments, throttled "
    )
    assert said[1] == "the bucket is used by all clients in group payments; the limit holds per broker"
    assert said[2].startswith(f"{PRODUCE}=7200000 (7.2 MB/s) would end it")
    guaranteed = f"group payments/checkout is guaranteed 2 MB/s of {PRODUCE} and uses 3 MB/s"
    assert said[3:] == [
        "it is in group payments/checkout, within payments",
        f"{guaranteed}, so limits of groups around it count",
    ]


def test_below_its_guaranteed_rate_no_limit_around_a_group_is_to_blame(store: str, feed: Feed, policy: str) -> None:
    feed(*of_groups(1e6))
    found = why_of(store, "--user", "alice", "--client", "app", "--policy", policy)
    assert found["throttled_by"] is None
    assert found["verdict"][-1] == (
        f"group payments/checkout is guaranteed 2 MB/s of {PRODUCE} and uses 1 MB/s, so no limit of a group around it "
        "counts"
    )
    sibling = why_of(store, "--user", "bob", "--client", "app", "--policy", policy)
    assert (sibling["throttled_by"], sibling["group"]) == (PRODUCE, "payments/reports")


def test_a_client_in_no_group_is_said_to_be_in_none_and_nothing_is_said_where_none_are_known(
    store: str, feed: Feed, policy: str
) -> None:
    feed(*of_groups(3e6))
    assert why_of(store, "--user", "zoe", "--client", "x", "--policy", policy)["verdict"][-1] == "it is in no group"
    assert not any("group" in line for line in why_of(store, "--user", "zoe", "--client", "x")["verdict"])


def test_a_client_waits_for_the_group_whose_limit_holds_it_and_not_for_its_own_bucket() -> None:
    own = bucket_row(user="u", client_id="", limit=100.0)
    group = bucket_row(broker="cluster", user=":group", client_id="payments")
    waits = waiting_client(user="u", entity="group payments", throttle_ms=900)
    reading = usage_of_daemon(daemon_status(buckets=(own, group, bucket_row(user=":group")), throttled=(waits,)))
    assert [(each.client_id, each.is_waiting) for each in reading.usages] == [
        ("", False),
        ("payments", True),
        ("app", False),
    ]
    assert reading.usages[1].throttle_ms == 900.0
    assert reading.usages[1].user == GROUP_USER
