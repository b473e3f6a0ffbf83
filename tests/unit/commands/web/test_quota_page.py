"""The documents of the page of quotas, and the files that show them."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_quotas.commands.insight.usage import UsageReading
from kafka_quotas.commands.web.quota_documents import (
    MAX_CHANGES,
    MAX_QUOTAS,
    MAX_ROWS,
    LiveReading,
    LiveStore,
)
from kafka_quotas.commands.web.quota_page import quota_routes
from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.groups.group import Group, GroupMember, GroupRates, GroupTree
from kafka_quotas.core.groups.membership import ClientGroups, Membership, groups_of
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import RecentThrottling
from kafka_quotas.core.resolution.effective import EffectiveQuotas, QuotaClient
from kafka_quotas.core.resolution.quota_resolver import GROUP_USER, GUARANTEED_USER
from kafka_quotas.core.resolution.usage import Usage
from kafka_quotas.enforcement.telemetry.status import HourRow
from kafka_quotas.stores.files.journal import JournalEntry
from kafka_quotas.stores.store import QuotaEntry

HOSTILE = "<script>alert(1)</script>"
PRODUCE = "producer_byte_rate"
ASSETS = files("kafka_quotas.commands.web").joinpath("assets")
HOUR = HourRow(quota=PRODUCE, user="", client_id=HOSTILE, times=3, total_ms=4500, minutes_ms=(0,) * 59 + (4500,))
THROTTLED = Usage(
    broker="1",
    key=PRODUCE,
    user="",
    client_id=HOSTILE,
    observed=2e6,
    throttle_ms=300.0,
    limit=1e6,
    last_minute=RecentThrottling(times=3, total_ms=4500, held_ms=4000),
    is_waiting=False,
)


def entry(quotas: Mapping[str, float], **names: str | None) -> QuotaEntry:
    return QuotaEntry(entity=Entity.of(**names), quotas=quotas)


ENTRIES = (
    entry({PRODUCE: 1e6}, client_id=HOSTILE),
    entry({PRODUCE: 5e6}, user="alice"),
    entry({PRODUCE: 2e6, "consumer_byte_rate": float(2**63)}, client_id=None),
    entry({"connection_creation_rate": 10.0}, ip="192.0.2.7"),
    entry({"total.bytes.in.per.sec.threshold": 1e8}, broker=None),
    entry({"request_rate": 50.0}, user="carol"),
)


GROUPS = (
    Group(name="payments", producer_byte_rate=5e7),
    Group(
        name="payments/checkout",
        members=(GroupMember(user="checkout"),),
        guaranteed=GroupRates(producer_byte_rate=2e7),
    ),
)


CHANGE = JournalEntry(
    entry_id="x",
    time_ms=5,
    command="apply",
    user="ops",
    store_url="local:/q.db",
    changes=tuple(PlannedChange(entity=Entity.of(user=f"u{n}"), key=PRODUCE, old=None, new=1e6) for n in range(25)),
    reason="why",
)
NEWEST_FIRST = (CHANGE, *(replace(CHANGE, store_url=f"zk://{n}") for n in (1, 2, 3, 4)))


class FixedQuotas:
    """What a test says, for the page to show."""

    def __init__(
        self, usages: tuple[Usage, ...] = (THROTTLED,), entries: tuple[QuotaEntry, ...] = ENTRIES, **changes: Any
    ) -> None:
        reading = UsageReading(origin="daemon 7", usages=usages)
        self.live = replace(
            LiveReading(at_ms=1, reading=reading, status=None, last_hour=(HOUR,), sampled_from_ms=None), **changes
        )
        self.entries = entries

    async def usage(self) -> LiveReading:
        return self.live

    async def store(self) -> LiveStore:
        return LiveStore(
            url="local:/q.db",
            entries=self.entries,
            resolver=EffectiveQuotas(self.entries),
            is_static=False,
            groups=GroupTree(GROUPS),
        )

    async def groups_of(self, client: QuotaClient) -> ClientGroups:
        return groups_of(Membership(GroupTree(GROUPS)), client)

    async def store_url(self) -> str:
        return "local:/q.db"

    journal = SimpleNamespace(path="/j", newest_first=lambda: NEWEST_FIRST)


def document(path: str, quotas: FixedQuotas | None = None, **query: str) -> Any:
    reply = asyncio.run(quota_routes(quotas or FixedQuotas())[f"/api/{path}"](query))  # type: ignore[arg-type]
    return json.loads(reply.body)


def test_the_overview_says_who_is_throttled_by_which_quota() -> None:
    found = document("overview")
    (row,) = found["rows"]
    assert (row["client_id"], row["quota"], row["entity"]) == (HOSTILE, PRODUCE, f"client-id {HOSTILE}")
    assert (row["rate"], row["limit"], row["share"]) == ("2 MB/s", "1 MB/s", 2)
    assert (row["held"], row["waiting"]) == (True, False)
    assert row["minute"] == "3x, 4.5 s, 7% of the minute"
    (hour,) = found["hour"]
    assert (hour["entity"], hour["times"], hour["total"]) == (f"client-id {HOSTILE}", 3, "4.5 s")


def test_of_many_buckets_the_held_back_ones_stay_then_the_closest() -> None:
    many = tuple(
        replace(THROTTLED, client_id=f"c{number}", observed=number * 1000.0, last_minute=None, throttle_ms=0.0)
        for number in range(2 * MAX_ROWS)
    )
    found = document("overview", FixedQuotas(usages=(*many, replace(THROTTLED, observed=0.0))))
    assert found["buckets"] == 2 * MAX_ROWS + 1
    assert len(found["rows"]) == MAX_ROWS
    assert found["rows"][0]["client_id"] == HOSTILE
    assert found["rows"][1]["rate"] == "399 kB/s"


@pytest.mark.parametrize("observed", [float("nan"), float("inf")])
def test_figures_that_are_no_numbers_are_no_json_of_their_own(observed: float) -> None:
    (row,) = document("overview", FixedQuotas(usages=(replace(THROTTLED, observed=observed),)))["rows"]
    assert row["share"] is None


def test_what_can_t_be_read_is_said_beside_what_can() -> None:
    trouble = KafkaQuotasError("no daemon answers", hint="start one")
    found = document("overview", FixedQuotas(usages=(), last_hour=(), trouble=trouble))
    assert found["trouble"] == {"error": "no daemon answers", "hint": "start one"}
    assert found["store"] == "local:/q.db"


def test_very_long_names_are_shortened() -> None:
    name = "x" * 32_000
    found = document("overview", FixedQuotas(usages=(replace(THROTTLED, client_id=name),), last_hour=()))
    assert found["rows"][0]["client_id"] == "x" * 300 + "... (32,000 letters)"


def test_quotas_have_their_status_and_are_found_by_name() -> None:
    found = document("quotas")
    status = {(row["entity"], row["quota"]): (row["limit"], row["status"]) for row in found["quotas"]}
    assert status["user alice", PRODUCE] == ("5 MB/s", "wins")
    assert status["default client-id", "consumer_byte_rate"] == ("unlimited (explicit)", "wins")
    assert status["ip 192.0.2.7", "connection_creation_rate"] == ("10/s", "wins")
    assert status["default broker", "total.bytes.in.per.sec.threshold"] == ("100 MB/s", "threshold")
    assert status["user carol", "request_rate"] == ("50/s", "policy file")
    assert [row["entity"] for row in document("quotas", text=" ALICE")["quotas"]] == ["user alice"]
    assert document("quotas", text="nobody")["found"] == 0


def test_of_many_quotas_an_answer_has_some_and_the_number_of_all() -> None:
    many = tuple(entry({PRODUCE: 1.0}, user=f"u{number}") for number in range(1200))
    found = document("quotas", FixedQuotas(entries=many))
    assert (found["found"], len(found["quotas"])) == (1200 + 2, MAX_QUOTAS)


def test_the_effective_answer_names_winner_losers_and_usage() -> None:
    found = document("effective", client_id=HOSTILE)
    answer = next(each for each in found["answers"] if each["quota"] == PRODUCE)
    assert found["user"] == "ANONYMOUS"
    assert (answer["limit"], answer["entity"], answer["level"]) == ("1 MB/s", f"client-id {HOSTILE}", "7")
    assert answer["overridden"] == [{"entity": "default client-id", "limit": "2 MB/s"}]
    assert [(each["broker"], each["held"]) for each in answer["usage"]] == [("1", True)]
    assert answer["ends_at"] is not None


def test_changes_say_when_who_why_and_how_many_more() -> None:
    (made,) = document("changes")["entries"]
    assert (document("changes")["other_stores"], document("changes")["more_stores"]) == (
        ["zk://1", "zk://2", "zk://3"],
        1,
    )
    assert (made["at_ms"], made["by"], made["reason"]) == (5, "ops", "why")
    assert (len(made["changes"]), made["more"]) == (MAX_CHANGES, 25 - MAX_CHANGES)
    assert made["changes"][0] == {"entity": "user u0", "quota": PRODUCE, "old": "not set", "new": "1 MB/s"}


def test_the_page_is_served_with_every_file_that_it_names() -> None:
    routes = quota_routes(FixedQuotas())
    for page in (each.name for each in ASSETS.iterdir() if each.name.endswith(".html")):
        text = ASSETS.joinpath(page).read_text(encoding="utf-8")
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|style=|https?://", text), page
        if page == "quotas.html":
            assert {f"/{name}" for name in re.findall(r'(?:src|href)="([^"#]+)"', text)} <= routes.keys()


def test_no_script_makes_markup_of_texts() -> None:
    for each in ASSETS.iterdir():
        if each.name.endswith(".js"):
            text = each.read_text(encoding="utf-8")
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text), each.name
            assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), each.name


def test_a_groups_bucket_is_shown_by_the_groups_name() -> None:
    limit = replace(THROTTLED, user=GROUP_USER, client_id="payments", limit=1e6)
    guaranteed = replace(THROTTLED, user=GUARANTEED_USER, client_id="payments/checkout", limit=2e7, last_minute=None)
    hour = replace(HOUR, user=":group", client_id="payments")
    found = document("overview", FixedQuotas(usages=(limit, guaranteed), last_hour=(hour,)))
    shown = {row["group"]: row for row in found["rows"]}
    assert set(shown) == {"group payments", "guaranteed rate of group payments/checkout"}
    assert (shown["group payments"]["user"], shown["group payments"]["client_id"]) == ("", "")
    assert (shown["group payments"]["entity"], shown["group payments"]["guaranteed"]) == ("group payments", False)
    assert shown["guaranteed rate of group payments/checkout"]["guaranteed"]
    assert found["hour"][0]["group"] == "group payments"


def test_the_effective_answer_has_the_groups_around_the_client() -> None:
    usage = replace(THROTTLED, user=GROUP_USER, client_id="payments", limit=5e7, observed=6e7)
    found = document("effective", FixedQuotas(usages=(usage,)), user="checkout", client_id="web")
    assert found["group"] == "payments/checkout"
    of_groups = [each for each in found["answers"] if each["level"] in ("group", "guaranteed")]
    assert [(each["level"], each["entity"], each["limit"]) for each in of_groups] == [
        ("guaranteed", "group payments/checkout", "20 MB/s"),
        ("group", "group payments", "50 MB/s"),
    ]
    assert of_groups[1]["usage"][0]["rate"] == "60 MB/s"
    assert document("effective", user="mallory")["group"] is None


def test_the_quotas_in_force_have_the_rates_of_groups() -> None:
    found = document("quotas", text="PAYMENTS")
    assert [(row["entity"], row["limit"], row["status"]) for row in found["quotas"]] == [
        ("group payments", "50 MB/s", "group"),
        ("group payments/checkout", "guaranteed 20 MB/s", "group"),
    ]
    assert found["found"] == 2
