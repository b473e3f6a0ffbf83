"""`watch`: what changed, in order, and an end when it is asked for."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.core.virtual_clock import VirtualClock
from tests.support.processes.output_contract import check_document
from tests.support.processes.run_cli import refused, run_cli
from tests.support.stores.stored_quotas import new_store

from kafka_quotas.cli.output.listing import Column, Listing, Output, Table, View, json_line
from kafka_quotas.cli.output.render import RowStream
from kafka_quotas.commands.quotas.watch import watch
from kafka_quotas.core.changes.plan import differences
from kafka_quotas.core.errors import StoreRefusedError, StoreUnreachableError
from kafka_quotas.core.groups.group import Group, GroupMember
from kafka_quotas.core.model.entity import EVERYTHING, Entity, FilterComponent, Match, QuotaFilter
from kafka_quotas.stores.address import StoreKind
from kafka_quotas.stores.store import Alteration, AlterationResult, QuotaEntry, Snapshot

ALICE, BOB = Entity.of(user="alice"), Entity.of(user="bob")
RATE, SHARE = "producer_byte_rate", "request_percentage"
ONLY_ALICE = QuotaFilter(components=(FilterComponent(entity_type="user", match=Match.EXACT, name="alice"),))


def snapshot(revision: str, **users: float) -> Snapshot:
    entries = (QuotaEntry(entity=Entity.of(user=name), quotas={RATE: value}) for name, value in users.items())
    return Snapshot(revision=revision, entries=tuple(entries))


class Script:
    """A store whose `watch` answers what was written down.

    The clock moves on by the time it was given.
    """

    url = "local:/script"
    kind = StoreKind.LOCAL

    def __init__(self, *answers: Snapshot | Exception | None, longest_s: float = float("inf")) -> None:
        self._longest_s = longest_s
        self.answers: Iterator[Snapshot | Exception | None] = iter(answers)
        self.asked: list[str | None] = []
        self.now_s = 0.0

    def watch(self, since: str | None, *, timeout_s: float) -> Snapshot | None:
        self.asked.append(since)
        answer = next(self.answers)
        if answer is None:
            self.now_s += min(timeout_s, self._longest_s)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def describe(self, quota_filter: QuotaFilter) -> list[QuotaEntry]:
        raise AssertionError("a watch does not describe")

    def alter(self, entries: Sequence[Alteration], *, validate_only: bool = False) -> list[AlterationResult]:
        raise AssertionError("a watch does not alter")

    def close(self) -> None:
        """Hold nothing."""


class Seen:
    """One watch of a script: the changes, and what was told besides."""

    def __init__(self, script: Script, *, quota_filter: QuotaFilter = EVERYTHING, **bounds: float) -> None:
        self.began: list[int] = []
        self.lost: list[StoreUnreachableError] = []
        self.paused: list[float] = []
        changes = watch(
            script,
            **bounds,  # type: ignore[arg-type]
            clock=VirtualClock(1000),
            monotonic_s=lambda: script.now_s,
            pause=self.paused.append,
            began=self.began.append,
            lost=self.lost.append,
            quota_filter=quota_filter,
        )
        self.changes = [(each.time_ms, change(each.entity, each.old, each.new, each.key)) for each in changes]


def change(entity: Entity, old: float | str | None, new: float | str | None, key: str = RATE) -> tuple[object, ...]:
    return entity, key, old, new


def test_differences_are_sorted_and_whole() -> None:
    before = {BOB: {RATE: 1.0}, ALICE: {SHARE: 1.0, RATE: 2.0}}
    after = {ALICE: {SHARE: 5.0, RATE: 2.0}, Entity.of(user=None): {RATE: float("nan")}}
    found = differences(before, after)
    assert [(str(each.entity), each.key, each.old) for each in found] == [
        ("user alice", SHARE, 1.0),
        ("user bob", RATE, 1.0),
        ("default user", RATE, None),
    ]
    assert differences(after, after) == ()
    assert sum(map(len, before.values())) == 3


def test_changes_of_groups_are_seen_unless_an_entity_is_asked_for() -> None:
    team = Group(name="team", members=(GroupMember(user="alice"),), producer_byte_rate=5.0)
    snapshots = snapshot("1", alice=1), replace(snapshot("2", alice=2), groups=(team,)), snapshot("3", alice=2)
    whole = Seen(Script(*snapshots, None), duration_s=10)
    group = team.entity
    assert [each for _, each in whole.changes] == [
        change(ALICE, 1, 2),
        change(group, None, "team", "group"),
        change(group, None, 5.0, RATE),
        change(group, None, "user alice", "member"),
        change(group, "team", None, "group"),
    ]
    of_alice = Seen(
        Script(*snapshots, None),
        duration_s=10,
        quota_filter=ONLY_ALICE,
    )
    assert [each for _, each in of_alice.changes] == [change(ALICE, 1, 2)]


def test_what_is_there_at_first_is_no_change() -> None:
    script = Script(snapshot("1", alice=1), snapshot("2", alice=2, bob=1), snapshot("3", bob=1), None)
    seen = Seen(script, duration_s=10)
    assert seen.began == [1]
    assert script.asked == [None, "1", "2", "3"]
    assert seen.changes == [(1000, change(ALICE, 1, 2)), (1000, change(BOB, None, 1)), (1000, change(ALICE, 2, None))]


@pytest.mark.parametrize(
    ("script", "bounds", "seen", "ended_s"),
    [
        (Script(snapshot("1"), snapshot("2", alice=2, bob=1)), {"count": 1}, 2, 0),
        (Script(snapshot("1"), None, None, snapshot("2", alice=1)), {"count": 1}, 1, 7200),
        (Script(snapshot("1"), None, snapshot("2", alice=1), None, None, longest_s=4), {"duration_s": 10}, 1, 10),
    ],
    ids=["after so many changes", "never without a change", "only when its time is over"],
)
def test_it_ends(script: Script, bounds: dict[str, float], seen: float, ended_s: float) -> None:
    assert [each for _, each in Seen(script, **bounds).changes] == [change(ALICE, None, seen)]
    assert script.now_s == ended_s


def test_a_count_of_zero_ends_it_before_it_asks() -> None:
    script = Script(snapshot("1"), snapshot("2", alice=2))
    assert (Seen(script, count=0).changes, script.asked) == ([], [])


def test_a_store_that_was_lost_is_asked_again_and_nothing_is_missed() -> None:
    gone = StoreUnreachableError("gone")
    script = Script(snapshot("1", alice=1), gone, gone, snapshot("2", alice=2), None)
    seen = Seen(script, duration_s=10)
    assert (seen.lost, seen.paused) == ([gone, gone], [2.0, 2.0])
    assert [each for _, each in seen.changes] == [change(ALICE, 1, 2)]


@pytest.mark.parametrize(
    "answers",
    [(StoreUnreachableError("gone"),), (snapshot("1"), StoreRefusedError("no"))],
)
def test_a_store_that_never_answered_or_says_no_ends_it(answers: tuple[Snapshot | Exception, ...]) -> None:
    with pytest.raises((StoreUnreachableError, StoreRefusedError)):
        Seen(Script(*answers), duration_s=10)


def test_a_line_of_json_is_one_line() -> None:
    document = {"a": "x\n y\u2028z", "b": [1, {"c": 0.00001}], "d": {}}
    line = json_line(document)
    assert "\n" not in line
    assert json.loads(line) == document


@pytest.mark.parametrize("duration", ["0s", "5", "soon"])
def test_a_duration_that_cannot_be_meant_is_refused(tmp_path: Path, duration: str) -> None:
    err = refused("watch", "--store", f"local:{tmp_path}/q.db", "--duration", duration)
    assert err.startswith("error: ")


def test_the_command_prints_changes_of_another_process(tmp_path: Path) -> None:
    url = new_store(tmp_path, {})
    watching = [sys.executable, "-m", "kafka_quotas", "watch", "--store", url, "--limit", "2", "--duration", "60s"]
    with subprocess.Popen(
        [*watching, "--output", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == f"note: watching {url}, which has quotas of 0 entities\n"
        for value in ("10MiB", "unlimited"):
            run_cli("alter", "--store", url, "--user", "alice", "--add-config", f"{RATE}={value}")
            document = json.loads(process.stdout.readline())
            check_document(document)
            assert document.pop("time").endswith("Z")
            expected = 10485760 if value == "10MiB" else 9223372036854775807
            assert document == {
                "schema": "kafka-quotas.change/1",
                "store": url,
                "entity": {"user": "alice"},
                "key": RATE,
                "old": None if value == "10MiB" else 10485760,
                "new": expected,
            }
        assert process.wait(timeout=240) == 0


def test_only_entities_that_pass_the_filter_count() -> None:
    script = Script(snapshot("1", alice=1, bob=1), snapshot("2", alice=1, bob=2), snapshot("3", alice=3), None)
    seen = Seen(script, quota_filter=ONLY_ALICE, duration_s=10)
    assert seen.began == [1]
    assert [each for _, each in seen.changes] == [change(ALICE, 1, 3)]


@pytest.mark.parametrize(
    ("form", "lines"),
    [
        ("table", ["TIME  user bob  producer_byte_rate  not set -> 1 MB/s"]),
        ("csv --columns time,user,key,old,new", ["time,user,key,old,new", "TIME,bob,producer_byte_rate,,1000000"]),
        ("yaml", ["---", "schema: kafka-quotas.change/1", "time: TIME"]),
    ],
)
def test_a_filtered_watch_in_every_form(tmp_path: Path, form: str, lines: list[str]) -> None:
    url = new_store(tmp_path, {})
    argv = ("--store", url, "--user", "bob", "--limit", "1", "--duration", "60s", "--output", *form.split())
    watching = [sys.executable, "-m", "kafka_quotas", "watch", *argv]
    with subprocess.Popen(watching, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stderr.readline()
        for name in ("alice", "bob"):
            run_cli("alter", "--store", url, "--user", name, "--add-config", f"{RATE}=1M")
        out, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    assert [re.sub(r"'?\d{4}-[\d-]+T[\d:.]+Z'?", "TIME", line) for line in out.splitlines()[: len(lines)]] == lines


def test_a_filter_that_no_broker_takes_is_refused(tmp_path: Path) -> None:
    err = refused("watch", "--store", new_store(tmp_path, {}), "--ip-default", "--user-default")
    assert err.startswith("error: Invalid entity filter component combination.")


def test_rows_that_come_one_by_one_have_one_header(capsys: pytest.CaptureFixture[str]) -> None:
    def row(value: int) -> Listing:
        table = Table(columns=[Column(title="a"), Column(title="b")], rows=[(value, "x")])
        return Listing(noun="made-up", data={"a": value}, table=table, records=table)

    for form in (Output.CSV, Output.MARKDOWN, Output.JSON):
        rows = RowStream(View(form=form, columns=("b", "a")))
        rows.print_row(row(1))
        rows.print_row(row(2))
    assert capsys.readouterr().out.splitlines() == [
        *("b,a", "x,1", "x,2"),
        *("| b   |   a |", "|:----|----:|", "| x   |   1 |", "| x   |   2 |"),
        *(f'{{"schema": "kafka-quotas.made-up.rows/1","rows": [{{"b": "x","a": {value}}}]}}' for value in (1, 2)),
    ]
